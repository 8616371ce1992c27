/* SPDX-License-Identifier: MIT */
/* The attributes from which a layer can be built again. */
#include <string.h>

#include "nets/net_attrs.h"
#include "nets/net_ops.h"

static void copy_value(const nets_attr *attr, const nets_attrs *from, nets_attrs *to) {
    memcpy((char *)to + attr->offset, (const char *)from + attr->offset, attr->bytes);
}

/* Whether a layer built from the attributes `told` gets the attributes and the shape of `layer`. */
static bool becomes(const nets_net *net, const nets_layer *layer, const nets_attrs *told) {
    nets_shape in[NETS_MAX_INPUTS];
    for (int i = 0; i < layer->n_inputs; i++) in[i] = nets_net_layer(net, layer->inputs[i])->shape;
    nets_layer trial = *layer;
    trial.attrs = *told;
    return nets_op_infer(&trial, in) == MM_OK && nets_attrs_equal(&trial.attrs, &layer->attrs) &&
           nets_shape_equal(&trial.shape, &layer->shape);
}

mm_status nets_attrs_given(const nets_net *net, int layer, nets_attrs *told_out) {
    const nets_layer *l = nets_net_layer(net, layer);
    nets_attrs told = {0};
    const nets_attr *attr;
    for (size_t i = 0; (attr = nets_attr_of(l->op, i)); i++) copy_value(attr, &l->attrs, &told);
    if (!becomes(net, l, &told))
        return mm_fail(MM_ERR_UNSUPPORTED, "layer %s: has an attribute that operation %s does not take", l->name,
                       nets_op_name(l->op));
    for (size_t i = 0; (attr = nets_attr_of(l->op, i)); i++) {
        nets_attrs less = told;
        copy_value(attr, &(nets_attrs){0}, &less);
        if (becomes(net, l, &less)) told = less;
    }
    *told_out = told;
    return MM_OK;
}

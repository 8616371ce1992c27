/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "nets/net_attrs.h"

mm_status nets_copy_layer(const nets_net *net, int index, const int *inputs, nets_net *copy) {
    const nets_layer *layer = nets_net_layer(net, index);
    nets_attrs attrs;
    MM_TRY(nets_attrs_given(net, index, &attrs));
    const char **names = malloc(((size_t)layer->n_params + 1) * sizeof *names);
    if (!names) return mm_fail(MM_ERR_NOMEM, "layer %s: no memory for %d names", layer->name, layer->n_params);
    for (int i = 0; i < layer->n_params; i++) names[i] = nets_net_param(net, layer->first_param + i)->name;
    const int added = nets_add(copy, layer->name, layer->op, &attrs, inputs, layer->n_inputs);
    if (layer->n_params > 0) nets_name_params(copy, names, layer->n_params);
    free(names);
    MM_TRY(nets_net_status(copy));
    if (nets_layer_is_frozen(net, layer)) nets_freeze(copy, added);
    return MM_OK;
}

#include "nets/net_attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/net_ops.h"

/* clang-format off */
#define FIELD(field) (((nets_attrs *)0)->field) /* for its type only */
#define TYPE(field) _Generic(FIELD(field), \
    int64_t: NETS_ATTR_WHOLE, int64_t *: NETS_ATTR_WHOLE, bool: NETS_ATTR_FLAG, float: NETS_ATTR_REAL)
#define ATTR(field, ops) {#field, TYPE(field), offsetof(nets_attrs, field), sizeof FIELD(field), ops}
/* clang-format on */
#define OP(kind) (UINT64_C(1) << NETS_##kind)
#define POOLS    (OP(MAX_POOL) | OP(AVG_POOL))
#define CONVS    (OP(CONV) | OP(CONV_TRANSPOSE))

/* In the order in which they are printed. */
static const nets_attr ATTRS[] = {
    ATTR(out_channels, CONVS | OP(LINEAR)),
    ATTR(kernel, CONVS | POOLS),
    ATTR(stride, CONVS | POOLS),
    ATTR(pad, CONVS | POOLS),
    ATTR(output_pad, OP(CONV_TRANSPOSE)),
    ATTR(dilation, CONVS),
    ATTR(groups, CONVS),
    ATTR(bias, CONVS | OP(LINEAR)),
    ATTR(ceil_mode, POOLS),
    ATTR(exclude_pad, OP(AVG_POOL)),
    ATTR(size, OP(LRN)),
    ATTR(alpha, OP(LRN)),
    ATTR(beta, OP(LRN)),
    ATTR(k, OP(LRN)),
    ATTR(scale, OP(UPSAMPLE)),
    ATTR(bilinear, OP(UPSAMPLE)),
    ATTR(out_size, OP(CROP)),
    ATTR(offset, OP(CROP)),
    ATTR(center, OP(CROP)),
    ATTR(eps, OP(BATCH_NORM)),
    ATTR(momentum, OP(BATCH_NORM)),
    ATTR(p, OP(DROPOUT)),
};

_Static_assert(NETS_OP_KINDS <= 64, "an attribute's operations are bits of 64");

const nets_attr *nets_attr_table(size_t i) { return i < sizeof ATTRS / sizeof *ATTRS ? &ATTRS[i] : NULL; }

size_t nets_attr_elem_bytes(const nets_attr *attr) {
    static const size_t bytes[] = {
        [NETS_ATTR_WHOLE] = sizeof(int64_t), [NETS_ATTR_FLAG] = sizeof(bool), [NETS_ATTR_REAL] = sizeof(float)};
    return bytes[attr->type];
}

size_t nets_attr_elems(const nets_attr *attr) { return attr->bytes / nets_attr_elem_bytes(attr); }

bool nets_attr_is_taken(const nets_attr *attr, nets_op_kind op) { return attr->ops >> op & 1; }

const nets_attr *nets_attr_find(nets_op_kind op, const char *name) {
    const nets_attr *attr;
    for (size_t i = 0; (attr = nets_attr_table(i)); i++)
        if (nets_attr_is_taken(attr, op) && strcmp(attr->name, name) == 0) return attr;
    return NULL;
}

static const char *value_of(const nets_attr *attr, const nets_attrs *attrs) {
    return (const char *)attrs + attr->offset;
}

static void copy_value(const nets_attr *attr, const nets_attrs *from, nets_attrs *to) {
    memcpy((char *)to + attr->offset, value_of(attr, from), attr->bytes);
}

bool nets_attr_equal(const nets_attr *attr, const nets_attrs *a, const nets_attrs *b) {
    return memcmp(value_of(attr, a), value_of(attr, b), attr->bytes) == 0;
}

bool nets_attr_is_told(const nets_attr *attr, const nets_attrs *told) {
    return !nets_attr_equal(attr, told, &(nets_attrs){0});
}

/* The fewest digits that read back as the same float: 0.1, not 0.100000001. */
static int print_real(float value, char *at, size_t capacity) {
    int digits = 1, n = snprintf(at, capacity, "%.*g", digits, (double)value);
    while (digits < 9 && strtof(at, NULL) != value) n = snprintf(at, capacity, "%.*g", ++digits, (double)value);
    return n;
}

static int print_elem(const nets_attr *attr, const char *value, char *at, size_t capacity) {
    int64_t whole;
    float real;
    bool flag;
    switch (attr->type) {
    case NETS_ATTR_WHOLE:
        memcpy(&whole, value, sizeof whole);
        return snprintf(at, capacity, "%lld", (long long)whole);
    case NETS_ATTR_REAL:
        memcpy(&real, value, sizeof real);
        return print_real(real, at, capacity);
    case NETS_ATTR_FLAG:
        memcpy(&flag, value, sizeof flag);
        return snprintf(at, capacity, "%s", flag ? "true" : "false");
    }
    return 0;
}

/* Room for the widest: an element is at most 20 characters and 2 between. */
_Static_assert(sizeof(int64_t[4]) / sizeof(int64_t) * 22 + 3 <= NETS_ATTR_TEXT_CAPACITY, "texts of up to 4 elements");

const char *nets_attr_text(const nets_attr *attr, const nets_attrs *attrs, char text_out[NETS_ATTR_TEXT_CAPACITY]) {
    const char *value = value_of(attr, attrs);
    size_t n = nets_attr_elems(attr), elem_bytes = nets_attr_elem_bytes(attr), at = 0;
    bool same = true;
    for (size_t i = 1; i < n; i++) same &= memcmp(value, value + i * elem_bytes, elem_bytes) == 0;
    if (same) n = 1;
    for (size_t i = 0; i < n; i++) {
        if (!same) at += (size_t)snprintf(text_out + at, NETS_ATTR_TEXT_CAPACITY - at, "%s", i ? ", " : "[");
        at += (size_t)print_elem(attr, value + i * elem_bytes, text_out + at, NETS_ATTR_TEXT_CAPACITY - at);
    }
    if (!same) snprintf(text_out + at, NETS_ATTR_TEXT_CAPACITY - at, "]");
    return text_out;
}

/* Whether a layer told these attributes becomes one with `layer`'s. */
static bool becomes(const nets_net *net, const nets_layer *layer, const nets_attrs *told) {
    int64_t in[NETS_MAX_INPUTS][3];
    for (int i = 0; i < layer->n_inputs; i++) memcpy(in[i], nets_net_layer(net, layer->inputs[i])->shape, sizeof in[i]);
    nets_layer trial = *layer;
    trial.attrs = *told;
    const nets_op_info *info = nets_op_info_of(layer->op);
    if (info->infer && info->infer(&trial, (const int64_t(*)[3])in) != MM_OK) return false;
    const nets_attr *attr;
    for (size_t i = 0; (attr = nets_attr_table(i)); i++)
        if (!nets_attr_equal(attr, &trial.attrs, &layer->attrs)) return false;
    return memcmp(trial.shape, layer->shape, sizeof trial.shape) == 0;
}

mm_status nets_attrs_told(const nets_net *net, int layer, nets_attrs *told_out) {
    const nets_layer *l = nets_net_layer(net, layer);
    nets_attrs told = {0};
    const nets_attr *attr;
    for (size_t i = 0; (attr = nets_attr_table(i)); i++)
        if (nets_attr_is_taken(attr, l->op)) copy_value(attr, &l->attrs, &told);
    if (!becomes(net, l, &told))
        return mm_fail(MM_ERR_UNSUPPORTED, "layer %s: has an attribute that %s is not known to take", l->name,
                       nets_op_name(l->op));
    for (size_t i = 0; (attr = nets_attr_table(i)); i++) {
        nets_attrs less = told;
        copy_value(attr, &(nets_attrs){0}, &less);
        if (becomes(net, l, &less)) told = less;
    }
    *told_out = told;
    return MM_OK;
}

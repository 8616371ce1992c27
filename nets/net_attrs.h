/* SPDX-License-Identifier: MIT */
/* The attributes of layers as data: each one's name, type, default and range. Each operation has a list of them in its
 * description (net_ops.h); reading, checking, filling in, printing and documenting attributes all walk these lists. A
 * new attribute is a field of nets_attrs and a line in the list of each operation that takes it. Operations may give
 * one attribute different ranges. */
#ifndef NETS_NET_ATTRS_H
#define NETS_NET_ATTRS_H

#include <stddef.h>

#include "nets/net.h"

enum {
    NETS_ATTR_TEXT_CAPACITY = 128,
    NETS_MAX_EXTENT = 1 << 24 /* the largest dimension: sums and products of two cannot overflow */
};

typedef enum nets_attr_type {
    NETS_ATTR_WHOLE,
    NETS_ATTR_FLAG,
    NETS_ATTR_REAL
} nets_attr_type; /* int64_t, bool, float */

/* Where the default of an attribute comes from. */
typedef enum nets_attr_default {
    NETS_DEFAULT_VALUE,
    NETS_DEFAULT_NONE,   /* it must be given */
    NETS_DEFAULT_KERNEL, /* the kernel's value */
} nets_attr_default;

/* A condition on an attribute's values besides their range, which may depend on the layer's other attributes. */
typedef struct nets_attr_rule {
    const char *text;  /* "at most half the kernel" */
    const char *other; /* the attribute that it depends on; NULL: none */
    bool of_input;     /* whether it depends on the first input's shape */
    /* Whether element d satisfies it; `in` is the first input's shape. Attributes on earlier lines are filled in. */
    bool (*holds)(const nets_layer *layer, const nets_shape *in, size_t d);
} nets_attr_rule;

typedef struct nets_attr {
    const char *name; /* the field's: "out_channels" */
    nets_attr_type type;
    size_t offset, bytes; /* of the field in nets_attrs */
    const char *what;     /* one-line description */
    nets_attr_default from;
    double value;                       /* each element's default, with NETS_DEFAULT_VALUE */
    double least, most;                 /* each element's range */
    bool least_excluded, most_excluded; /* the bound itself is not allowed */
    const nets_attr_rule *rule;         /* NULL: none */
} nets_attr;

/* The i-th attribute that the operation takes, NULL past the last. */
const nets_attr *nets_attr_of(nets_op_kind op, size_t i);
/* How many numbers the attribute has, 1 or 2 ({height, width}), and the size of one. */
size_t nets_attr_elems(const nets_attr *attr);
size_t nets_attr_elem_bytes(const nets_attr *attr);
/* The operation's attribute of that name; NULL if it takes none. */
const nets_attr *nets_attr_find(nets_op_kind op, const char *name);

/* The range ("from 1 to 16777216, odd", "true or false") and the default ("1", "the kernel's", "required") as text.
 * They return text_out. */
const char *nets_attr_range_text(const nets_attr *attr, char text_out[NETS_ATTR_TEXT_CAPACITY]);
const char *nets_attr_default_text(const nets_attr *attr, char text_out[NETS_ATTR_TEXT_CAPACITY]);

/* MM_ERR_INVALID: a given value is out of range; the message names `layer`, the attribute, its range and the value.
 * Rules are not checked. */
MM_CHECKED mm_status nets_attr_check(const nets_attr *attr, const char *layer, const nets_attrs *attrs);

/* Whether a and b have the same value of one attribute, and of all attributes that any operation takes. */
bool nets_attr_equal(const nets_attr *attr, const nets_attrs *a, const nets_attrs *b);
bool nets_attrs_equal(const nets_attrs *a, const nets_attrs *b);
/* The attribute's value as a JSON value: "3", "[3, 1]", "true", "0.25". A pair of equal numbers is one number. Read
 * back, it gives the same bits. Returns text_out. */
const char *nets_attr_text(const nets_attr *attr, const nets_attrs *attrs, char text_out[NETS_ATTR_TEXT_CAPACITY]);

/* The attributes from which a finished net's layer can be built again: those whose value is the operation's default are
 * zero. MM_ERR_UNSUPPORTED: the layer has a value of an attribute that is not in its operation's list. */
MM_CHECKED mm_status nets_attrs_given(const nets_net *net, int layer, nets_attrs *told_out);
/* Whether the attribute's value is given: not zero. */
bool nets_attr_is_given(const nets_attr *attr, const nets_attrs *told);

#endif

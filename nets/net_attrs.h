/* The attributes that a layer can be told, as data: what each is called, its type, what it is where nobody tells it, and
 * what it may be. Whatever reads, checks, fills in, prints or documents attributes walks these lists: each operation has
 * its own, in its description (net_ops.h). A new attribute is a field of nets_attrs and a line for each operation that
 * takes it; they may differ in what it may be. */
#ifndef NETS_NET_ATTRS_H
#define NETS_NET_ATTRS_H

#include <stddef.h>

#include "nets/net.h"

enum {
    NETS_ATTR_TEXT_CAPACITY = 128,
    NETS_MAX_EXTENT = 1 << 24 /* of one dimension: keeps sums of a few of them far from overflow */
};

typedef enum nets_attr_type {
    NETS_ATTR_WHOLE,
    NETS_ATTR_FLAG,
    NETS_ATTR_REAL
} nets_attr_type; /* int64_t, bool, float */

/* What an attribute is where it is not told. */
typedef enum nets_attr_default {
    NETS_DEFAULT_VALUE,
    NETS_DEFAULT_NONE,   /* it must be told */
    NETS_DEFAULT_KERNEL, /* the kernel's value */
} nets_attr_default;

/* What values must have in common with others of the layer, besides their range. */
typedef struct nets_attr_rule {
    const char *text;  /* "at most half the kernel" */
    const char *other; /* the attribute that it depends on; NULL: none */
    bool of_input;     /* it depends on the first input's shape */
    /* Of element d; `in`: the first input's shape. Attributes on earlier lines are filled in. */
    bool (*holds)(const nets_layer *layer, const nets_shape *in, size_t d);
} nets_attr_rule;

typedef struct nets_attr {
    const char *name; /* the field's: "out_channels" */
    nets_attr_type type;
    size_t offset, bytes; /* in nets_attrs */
    const char *what;     /* one line */
    nets_attr_default from;
    double value;                       /* with NETS_DEFAULT_VALUE, of each element */
    double least, most;                 /* of each element */
    bool least_excluded, most_excluded; /* that number itself is not allowed */
    const nets_attr_rule *rule;         /* NULL: none */
} nets_attr;

/* The i-th attribute that the operation takes, NULL past the last. */
const nets_attr *nets_attr_of(nets_op_kind op, size_t i);
/* How many numbers it is: 1, or 2 for {height, width}; and the size of one. */
size_t nets_attr_elems(const nets_attr *attr);
size_t nets_attr_elem_bytes(const nets_attr *attr);
/* The attribute of that name, NULL if the operation takes none such. */
const nets_attr *nets_attr_find(nets_op_kind op, const char *name);

/* "from 1 to 16777216, odd", "true or false"; and "1", "the kernel's", "required". They return text_out. */
const char *nets_attr_range_text(const nets_attr *attr, char text_out[NETS_ATTR_TEXT_CAPACITY]);
const char *nets_attr_default_text(const nets_attr *attr, char text_out[NETS_ATTR_TEXT_CAPACITY]);

/* MM_ERR_INVALID: a value that was told is out of range; the message names `layer`, the attribute, its range and the
 * value. (Rules are not looked at.) */
MM_CHECKED mm_status nets_attr_check(const nets_attr *attr, const char *layer, const nets_attrs *attrs);

/* Fills in what a layer was not told (what is zero), and checks all: ranges and rules. `in`: the first input's shape.
 * MM_ERR_INVALID as nets_attr_check. */
MM_CHECKED mm_status nets_attrs_complete(nets_layer *layer, const nets_shape *in);

/* Whether both have the same value of it; of all that any operation takes. */
bool nets_attr_equal(const nets_attr *attr, const nets_attrs *a, const nets_attrs *b);
bool nets_attrs_equal(const nets_attrs *a, const nets_attrs *b);
/* Its value: "3", "[3, 1]", "true", "0.25"; a pair of equals is one number. Read back, it gives the same bits. Also
 * what JSON calls a value. Returns text_out. */
const char *nets_attr_text(const nets_attr *attr, const nets_attrs *attrs, char text_out[NETS_ATTR_TEXT_CAPACITY]);

/* What a finished net's layer has to be told to become what it is: its attributes, with those back at zero that the
 * operation fills in with the same value. MM_ERR_UNSUPPORTED: it has a value that the table does not know it takes. */
MM_CHECKED mm_status nets_attrs_told(const nets_net *net, int layer, nets_attrs *told_out);
/* Whether a value of it is one to mention: not zero. */
bool nets_attr_is_told(const nets_attr *attr, const nets_attrs *told);

#endif

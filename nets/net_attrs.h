/* The attributes that a layer can be told, as data: what each is called, its type, which operations take it. Whatever
 * reads or prints attributes walks this table. A new attribute is a field of nets_attrs and its line in net_attrs.c; a
 * new operation that takes attributes adds itself to their lines. */
#ifndef NETS_NET_ATTRS_H
#define NETS_NET_ATTRS_H

#include <stddef.h>

#include "nets/net.h"

enum { NETS_ATTR_TEXT_CAPACITY = 128 };

typedef enum nets_attr_type {
    NETS_ATTR_WHOLE,
    NETS_ATTR_FLAG,
    NETS_ATTR_REAL
} nets_attr_type; /* int64_t, bool, float */

typedef struct nets_attr {
    const char *name; /* the field's: "out_channels" */
    nets_attr_type type;
    size_t offset, bytes; /* in nets_attrs */
    uint64_t ops;         /* bit `op` is set if that operation takes it */
} nets_attr;

/* The i-th attribute, NULL past the last. */
const nets_attr *nets_attr_table(size_t i);
bool nets_attr_is_taken(const nets_attr *attr, nets_op_kind op);
/* How many numbers it is: 1, or 2 for {height, width}; and the size of one. */
size_t nets_attr_elems(const nets_attr *attr);
size_t nets_attr_elem_bytes(const nets_attr *attr);
/* The attribute of that name, NULL if the operation takes none such. */
const nets_attr *nets_attr_find(nets_op_kind op, const char *name);

/* Whether both have the same value of it. */
bool nets_attr_equal(const nets_attr *attr, const nets_attrs *a, const nets_attrs *b);
/* Its value: "3", "[3, 1]", "true", "0.25"; a pair of equals is one number. Read back, it gives the same bits. Also
 * what JSON calls a value. Returns text_out. */
const char *nets_attr_text(const nets_attr *attr, const nets_attrs *attrs, char text_out[NETS_ATTR_TEXT_CAPACITY]);

/* What a finished net's layer has to be told to become what it is: its attributes, with those back at zero that the
 * operation fills in with the same value. MM_ERR_UNSUPPORTED: it has a value that the table does not know it takes. */
MM_CHECKED mm_status nets_attrs_told(const nets_net *net, int layer, nets_attrs *told_out);
/* Whether told_out's value of it is one to mention: not zero. */
bool nets_attr_is_told(const nets_attr *attr, const nets_attrs *told);

#endif

/* What each operation is to the IR: its name, arity, the shape and the parameters that follow from its inputs and
 * attributes (net_attrs.h), and how a network file's reader is told of it. One table. */
#ifndef NETS_NET_OPS_H
#define NETS_NET_OPS_H

#include "nets/net.h"

enum { NETS_OP_NAMES_CAPACITY = 256 };

typedef struct nets_param_spec {
    const char *suffix; /* "weight" */
    nets_param_role role;
    bool learned;
    int rank;
    int64_t dims[4];
} nets_param_spec;

typedef struct nets_op_info {
    const char *name;
    int min_inputs, max_inputs;
    const char *what;    /* one line */
    const char *shape;   /* of its output, for an input of height, width, channels */
    const char *weights; /* "weight [out_channels, ...]"; NULL: none */
    const char *example; /* a layer of a network file; NULL: it is not one of a file's layers */
    /* Sets layer->shape, after the attributes were filled in. `in` are the inputs' shapes. */
    mm_status (*infer)(nets_layer *layer, const int64_t (*in)[3]);
    /* Its parameters; returns how many. NULL: none. */
    int (*params)(const nets_layer *layer, const int64_t in[3], nets_param_spec specs_out[NETS_MAX_PARAMS]);
} nets_op_info;

/* NULL for a number that is no operation. */
const nets_op_info *nets_op_info_of(nets_op_kind op);

/* The operation that a network file calls so; NETS_OP_KINDS: none. And the names of all: "conv, conv_transpose, ...".
 * Returns text_out. */
nets_op_kind nets_op_find(const char *name);
const char *nets_op_names(char text_out[NETS_OP_NAMES_CAPACITY]);

/* Fills in the layer's attributes, checks them, and sets layer->shape. `in` are the inputs' shapes; NULL for data.
 * MM_ERR_INVALID, or MM_ERR_UNSUPPORTED for what no device can compute: the message names the layer. */
MM_CHECKED mm_status nets_op_infer(nets_layer *layer, const int64_t (*in)[3]);

/* a * b for a, b >= 0, or -1 when above 2^60. */
int64_t nets_mul(int64_t a, int64_t b);

#endif

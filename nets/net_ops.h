/* What each operation is to the IR: its name, arity, the attributes that it accepts, the shape and the parameters that
 * follow from them. One table, internal to net.c. */
#ifndef NETS_NET_OPS_H
#define NETS_NET_OPS_H

#include "nets/net.h"

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
    /* Fills in default attributes, checks them, and sets layer->shape. `in` are the inputs' shapes. */
    mm_status (*infer)(nets_layer *layer, const int64_t (*in)[3]);
    /* Its parameters; returns how many. NULL: none. */
    int (*params)(const nets_layer *layer, const int64_t in[3], nets_param_spec specs_out[NETS_MAX_PARAMS]);
} nets_op_info;

/* NULL for a number that is no operation. */
const nets_op_info *nets_op_info_of(nets_op_kind op);

/* a * b for a, b >= 0, or -1 when above 2^60. */
int64_t nets_mul(int64_t a, int64_t b);

#endif

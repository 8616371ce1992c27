/* What each operation is, as data: its name, inputs and attributes, its output's shape, its parameters, and what its steps
 * read and write. A network file's reader, building, initial values, lowering, execution, states, the optimizer and
 * `mm nets --ops` follow from it.
 *
 * A further operation is a line of NETS_OPS (net.h), a description in nets/ops, and an implementation for each device
 * (op.h). */
#ifndef NETS_NET_OPS_H
#define NETS_NET_OPS_H

#include "nets/net_attrs.h"
#include "nets/role.h"

enum {
    NETS_OP_NAMES_CAPACITY = 512,
    NETS_PARAMS_TEXT_CAPACITY = 512,
    NETS_STEP_USES = 2 * NETS_MAX_INPUTS + 4,
    NETS_STEP_PAIRS = NETS_MAX_INPUTS
};

/* ---------------------------------------------------------------- parameters */

/* How a parameter begins (init.h). */
typedef enum nets_init_kind {
    NETS_INIT_CONSTANT,       /* `value` */
    NETS_INIT_NORMAL_FAN_OUT, /* normal, of variance value / fan out: the elements of the weight for each of its dims[1] */
    NETS_INIT_UNIFORM_FAN_IN, /* uniform in +-value / sqrt(fan in), the elements of the layer's first parameter for each of
                                 its dims[0] */
} nets_init_kind;

typedef struct nets_init {
    nets_init_kind kind;
    double value;
} nets_init;

/* One of an operation's parameters: NETS_PARAM + i is the i-th. */
typedef struct nets_param_spec {
    const char *name; /* "weight": the tensor, also in states, is "<layer>.weight". NULL ends a list */
    const char *dims; /* for people: "out_channels, channels / groups, kernel height, kernel width" */
    /* `in`: the inputs' shapes. Sets dims_out, returns the rank. */
    int (*shape)(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]);
    nets_init init;
    bool learned;     /* else statistics: the forward pass changes it in training */
    bool decayed;     /* by the optimizer's weight decay */
    const char *with; /* it is there if this attribute, a flag, is set; NULL: always */
} nets_param_spec;

/* ---------------------------------------------------------------- steps */

typedef struct nets_role_use {
    nets_role role; /* NETS_WORKSPACE (0) ends a list */
    mm_access access;
    mm_form form;
} nets_role_use;

/* The output may be written over the input. Where an earlier contribution is added into it, some may not, but over the
 * contribution instead. */
typedef enum nets_pairing {
    NETS_OVER,
    NETS_OVER_OR_EARLIER,
    NETS_EQUAL_OR_EARLIER /* equals it bit for bit */
} nets_pairing;

typedef struct nets_role_pair {
    nets_role input, output; /* NETS_WORKSPACE (0) ends a list */
    nets_pairing pairing;
} nets_role_pair;

typedef struct nets_step_spec {
    nets_role_use uses[NETS_STEP_USES]; /* of absent roles: left out */
    nets_role_pair pairs[NETS_STEP_PAIRS];
} nets_step_spec;

/* A tensor that the forward saves for the backward: NETS_SAVED + i is the i-th. */
typedef struct nets_saved_spec {
    const char *name; /* "<layer>.mean"; NULL ends a list */
    mm_dtype dtype;
    /* Of the inputs' shapes and the output's, with the batch. */
    nets_shape (*shape)(const nets_attrs *attrs, const nets_shape *x, const nets_shape *y);
    bool given; /* a forward that is recomputed is given it, rather than computes it again (nets_op_args.given_roles) */
} nets_saved_spec;

typedef struct nets_op_lowering {
    mm_layer_kind kind;
    bool identity_in_eval; /* no step there: the output is the input */
    nets_saved_spec saved[NETS_MAX_SAVED];
    nets_step_spec forward, eval, backward;
} nets_op_lowering;

/* ---------------------------------------------------------------- all */

typedef struct nets_op_info {
    const char *name;
    const char *what;    /* one line */
    const char *output;  /* its shape, for an input of height, width, channels */
    const char *example; /* a layer of a network file; NULL: it is not one of a file's layers */
    int min_inputs, max_inputs;
    int input_rank;         /* of each input's shape: 3 is that of an image. 0: any */
    const nets_attr *attrs; /* what it can be told, ended by one without a name; NULL: nothing */
    /* Sets layer->shape, after the attributes were filled in. `in` are the inputs' shapes; NULL: it is set */
    mm_status (*infer)(nets_layer *layer, const nets_shape *in);
    nets_param_spec params[NETS_MAX_PARAMS];
    nets_op_lowering steps;
    const nets_op_lowering
        *with_relu; /* of an operation that lowering may give a ReLU behind it (fuse.h); NULL: none */
} nets_op_info;

#define NETS_OP_DECLARE(NAME, name) extern const nets_op_info nets_info_##name;
NETS_OP_DECLARE(DATA, data)
NETS_OPS(NETS_OP_DECLARE)
#undef NETS_OP_DECLARE

/* NULL for a number that is no operation. */
const nets_op_info *nets_op_info_of(nets_op_kind op);

/* The operation that a network file calls so; NETS_OP_KINDS: none. And the names of all: "conv, conv_transpose, ...".
 * Returns text_out. */
nets_op_kind nets_op_find(const char *name);
const char *nets_op_names(char text_out[NETS_OP_NAMES_CAPACITY]);

/* The operation's i-th parameter, NULL past the last; and whether the layer has it. */
const nets_param_spec *nets_param_spec_of(nets_op_kind op, int i);
bool nets_param_is_had(const nets_param_spec *param, const nets_layer *layer);
/* "1"; "normal, variance 2 / fan out". Returns text_out. */
enum { NETS_INIT_TEXT_CAPACITY = 64 };
const char *nets_init_text(const nets_init *init, char text_out[NETS_INIT_TEXT_CAPACITY]);
/* "weight [channels], with bias: bias [channels]"; "" if there are none. Returns text_out. */
const char *nets_params_text(nets_op_kind op, char text_out[NETS_PARAMS_TEXT_CAPACITY]);

/* `relu`: of one that has a ReLU behind it. */
const nets_op_lowering *nets_op_lowering_of(nets_op_kind op, bool relu);

/* Fills in the layer's attributes, checks them, and sets layer->shape. `in` are the inputs' shapes; NULL for data.
 * MM_ERR_INVALID, or MM_ERR_UNSUPPORTED for what no device can compute: the message names the layer. */
MM_CHECKED mm_status nets_op_infer(nets_layer *layer, const nets_shape *in);

/* a * b for a, b >= 0, or -1 when above 2^60. */
int64_t nets_mul(int64_t a, int64_t b);

#endif

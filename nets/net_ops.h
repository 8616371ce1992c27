/* SPDX-License-Identifier: MIT */
/* The operations' descriptions as data: each one's name, inputs, attributes, output shape and parameters, and what its
 * steps read and write. Everything else about operations is derived from them: reading network files, building nets,
 * initial values, lowering, execution, saved states, the optimizer, and `mm nets --ops`.
 *
 * A new operation is a line of NETS_OPS (net.h), a description in nets/ops, and an implementation for each device
 * (op.h). */
#ifndef NETS_NET_OPS_H
#define NETS_NET_OPS_H

#include "mm/core/nearest.h"
#include "nets/net_attrs.h"
#include "nets/role.h"

enum {
    NETS_OP_NAMES_CAPACITY = 512,
    NETS_PARAMS_TEXT_CAPACITY = 512,
    NETS_STEP_USES = 2 * NETS_MAX_INPUTS + 4,
    NETS_STEP_PAIRS = NETS_MAX_INPUTS,
    NETS_STEP_CODES = 5
};

/* ---------------------------------------------------------------- parameters */

/* A parameter's initial values (init.h). */
typedef enum nets_init_kind {
    NETS_INIT_CONSTANT, /* `value` */
    /* Normal with variance value / fan out. The fan out is the weight's elements divided by its dims[1]. */
    NETS_INIT_NORMAL_FAN_OUT,
    /* Uniform in +-value / sqrt(fan in). The fan in is the elements of the layer's first parameter divided by its
     * dims[0]. */
    NETS_INIT_UNIFORM_FAN_IN,
    NETS_INIT_NORMAL, /* Normal with the layer's attribute `deviation` as standard deviation; 0 if it is `zero`. */
} nets_init_kind;

typedef struct nets_init {
    nets_init_kind kind;
    double value;
} nets_init;

/* One of an operation's parameters; the i-th has the role NETS_PARAM + i. */
typedef struct nets_param_spec {
    const char *name; /* "weight": the tensor is "<layer>.weight", also in saved states. NULL ends a list */
    const char *dims; /* as text: "out_channels, channels / groups, kernel height, kernel width" */
    /* Sets dims_out and returns the rank; `in`: the inputs' shapes. */
    int (*shape)(const nets_layer *layer, const nets_shape *in, int64_t dims_out[MM_RANK_MAX]);
    nets_init init;
    bool learned; /* false: a running statistic, which the forward pass changes in training */
    bool decayed; /* the optimizer's weight decay applies */
    /* Input maps are multiplied by it. It must be the first parameter. With bf16 maps its bf16 copy is used
     * (NETS_W16) */
    bool factor;
    /* The output has its elements, rounded to the maps' type. Frozen, with bf16 maps, it is held as its bf16 copy, as
     * a frozen factor is. It must be the first parameter. */
    bool looked_up;
    const char *with;    /* the layer has the parameter if this attribute, a flag, is set; NULL: always */
    const char *without; /* the layer has it unless this attribute, a flag, is set; NULL: `with` decides */
} nets_param_spec;

/* ---------------------------------------------------------------- steps */

typedef struct nets_role_use {
    nets_role role; /* NETS_WORKSPACE (0) ends a list */
    mm_access access;
    mm_form form;
    nets_role only_for; /* the step uses it only to compute this role, if that is there; NETS_WORKSPACE (0): always */
} nets_role_use;

/* Where an output may be written. */
typedef enum nets_pairing {
    NETS_OVER,            /* in place of the input */
    NETS_OVER_OR_EARLIER, /* in place of the input; or, if EARLIER (role.h) is added to the output, of EARLIER */
    NETS_EQUAL_OR_EARLIER /* in place of EARLIER if that is added; else it equals the input and may share its storage */
} nets_pairing;

typedef struct nets_role_pair {
    nets_role input, output; /* NETS_WORKSPACE (0) ends a list */
    nets_pairing pairing;
} nets_role_pair;

/* A map's code that the step can read instead of the elements, or write beside them, if the op can
 * (nets_op.code_needs). */
typedef struct nets_role_code {
    nets_role role; /* NETS_X or NETS_Y; NETS_WORKSPACE (0) ends a list */
    mm_access access;
    const char *codec; /* the codec's name */
} nets_role_code;

typedef struct nets_step_spec {
    nets_role_use uses[NETS_STEP_USES]; /* uses of absent roles are ignored */
    nets_role_pair pairs[NETS_STEP_PAIRS];
    nets_role_code codes[NETS_STEP_CODES + 1];
} nets_step_spec;

/* A tensor that the forward saves for the backward; the i-th has the role NETS_SAVED + i. */
typedef struct nets_saved_spec {
    const char *name; /* "<layer>.mean"; NULL ends a list */
    mm_dtype dtype;
    /* Computes its shape from those of the inputs and the output, which include the batch. */
    nets_shape (*shape)(const nets_attrs *attrs, const nets_shape *x, const nets_shape *y);
    bool given; /* a recomputation reads it instead of computing it again (nets_op_args.given_roles) */
} nets_saved_spec;

typedef struct nets_op_lowering {
    mm_layer_kind kind;
    bool repeats;          /* its forward step can run again, though those of its kind are not repeatable by default */
    bool identity_in_eval; /* in evaluation there is no step: the output is the input */
    nets_saved_spec saved[NETS_MAX_SAVED];
    nets_step_spec forward, eval, backward;
} nets_op_lowering;

/* ---------------------------------------------------------------- all */

typedef struct nets_op_info {
    const char *name;
    const char *what;    /* one-line description */
    const char *output;  /* as text: the output's shape for an input of height, width, channels */
    const char *example; /* a layer of a network file; NULL: a file cannot have this operation */
    int min_inputs, max_inputs;
    bool loss;              /* it is a net's last layer: reads labels, has no output in evaluation */
    int input_rank;         /* each input's rank without the batch, 3 for images; 0: any */
    const nets_attr *attrs; /* ended by one without a name; NULL: none */
    /* Sets layer->shape from the inputs' shapes and the complete attributes. NULL: layer->shape is set already. */
    mm_status (*infer)(nets_layer *layer, const nets_shape *in);
    nets_param_spec params[NETS_MAX_PARAMS];
    /* The steps leave out the gradients of frozen parameters. Other operations compute them in any case, to scratch. */
    bool skips_frozen;
    bool f32_output; /* the output is f32 even if maps are bf16: probabilities, whose small differences count */
    nets_op_lowering steps;
    const nets_op_lowering *with_relu; /* its steps with a fused ReLU (fuse.h); NULL: a ReLU cannot be fused */
} nets_op_info;

#define NETS_OP_DECLARE(NAME, name) extern const nets_op_info nets_info_##name;
NETS_OP_DECLARE(DATA, data)
NETS_OPS(NETS_OP_DECLARE)
#undef NETS_OP_DECLARE

/* NULL for a number that is no operation. */
const nets_op_info *nets_op_info_of(nets_op_kind op);

/* The operation of that name in network files; NETS_OP_KINDS: none. */
nets_op_kind nets_op_find(const char *name);
/* All names, "conv, conv_transpose, ...". Returns text_out. */
const char *nets_op_names(char text_out[NETS_OP_NAMES_CAPACITY]);
/* For a name that is none: " (did you mean conv?)", or "". Returns text_out. */
const char *nets_op_like(const char *name, char text_out[MM_NEAREST_CAPACITY]);

/* The operation's i-th parameter; NULL past the last. */
const nets_param_spec *nets_param_spec_of(nets_op_kind op, int i);
/* Whether the layer has the parameter. */
bool nets_param_is_had(const nets_param_spec *param, const nets_layer *layer);
/* The index of the parameter that the layer's input is multiplied by: its own, or an embedding's if tied; -1: none. */
int nets_factor_of(const nets_layer *layer);
/* Initial values as text: "1"; "normal, variance 2 / fan out". Returns text_out. */
enum { NETS_INIT_TEXT_CAPACITY = 64 };
const char *nets_init_text(const nets_init *init, char text_out[NETS_INIT_TEXT_CAPACITY]);
/* The parameters as text, "weight [channels], with bias: bias [channels]"; "" if there are none. Returns text_out. */
const char *nets_params_text(nets_op_kind op, char text_out[NETS_PARAMS_TEXT_CAPACITY]);

/* The operation's steps; `relu`: those with a fused ReLU. */
const nets_op_lowering *nets_op_lowering_of(nets_op_kind op, bool relu);

/* Fills in the layer's attributes, checks them, and sets layer->shape. `in` are the inputs' shapes; NULL for data.
 * MM_ERR_INVALID: an attribute or shape is wrong. MM_ERR_UNSUPPORTED: no device can compute it. Messages name the
 * layer. */
MM_CHECKED mm_status nets_op_infer(nets_layer *layer, const nets_shape *in);

/* a * b for a, b >= 0, or -1 when above 2^60. */
int64_t nets_mul(int64_t a, int64_t b);

#endif

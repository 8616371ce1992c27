/* How each operation uses its tensors, as data: the heart of lowering, internal to it. */
#ifndef NETS_LOWER_TABLE_H
#define NETS_LOWER_TABLE_H

#include "nets/op.h"

enum { NETS_STEP_USES = 2 * NETS_MAX_INPUTS + 2, NETS_STEP_PAIRS = NETS_MAX_INPUTS, NETS_STEP_SAVED = 3 };

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

/* A tensor that the forward saves for the backward. */
typedef struct nets_saved_spec {
    nets_role role; /* NETS_WORKSPACE (0) ends a list */
    mm_dtype dtype;
    bool channels_only; /* one element for each channel, else for each of the output. A forward that is recomputed is
                           given it (nets_op_args.given_roles) */
    const char *suffix; /* of its name, after the layer's */
} nets_saved_spec;

typedef struct nets_op_lowering {
    mm_layer_kind kind;
    bool identity_in_eval; /* no step there: the output is the input */
    nets_saved_spec saved[NETS_STEP_SAVED];
    nets_step_spec forward, eval, backward;
} nets_op_lowering;

/* `relu`: of a batch norm that has its ReLU in it. */
const nets_op_lowering *nets_op_lowering_of(nets_op_kind op, bool relu);

#endif

/* SPDX-License-Identifier: MIT */
/* Roles: what a tensor is to a step of a layer. Operations' descriptions say by role what they read and write
 * (net_ops.h), and their implementations get their tensors by role (op.h). */
#ifndef NETS_ROLE_H
#define NETS_ROLE_H

#include "nets/net.h"
#include "nets/rng.h"

enum { NETS_MAX_SAVED = 4 };

/* If a layer can have several tensors of a role, the i-th has role + i. */
typedef enum nets_role {
    NETS_WORKSPACE, /* scratch of the op; no tensor */
    NETS_X,         /* inputs */
    NETS_X2,
    NETS_X_LAST = NETS_X + NETS_MAX_INPUTS - 1,
    NETS_Y,     /* output; in training the loss's output is the probabilities */
    NETS_PARAM, /* parameters, in the order of the operation's list */
    NETS_PARAM_LAST = NETS_PARAM + NETS_MAX_PARAMS - 1,
    NETS_SAVED, /* what the forward saves for the backward, in the order of the operation's list */
    NETS_SAVED_LAST = NETS_SAVED + NETS_MAX_SAVED - 1,
    NETS_LABELS,     /* i32 [n], or [n, h, w], one for each of X's pixels */
    NETS_RNG,        /* i32 [NETS_RNG_WORDS]: rng.h */
    NETS_LOSS_VALUE, /* [1], mean over the labels of the whole batch (nets_pass) */
    /* i32 [1], the number of labels whose class had the highest score. A label that is not a class fails the stream. A
     * device that cannot do that writes -1 - i here, i being the first such label's index in the whole batch; that
     * label's loss is NaN and its gradient zero */
    NETS_CORRECT,
    NETS_DY, /* gradient of the loss with respect to Y */
    NETS_DX, /* gradients with respect to the inputs; absent if no step needs them */
    NETS_DX2,
    NETS_DX_LAST = NETS_DX + NETS_MAX_INPUTS - 1,
    NETS_EARLIER, /* sum of the gradients with respect to X from its other consumers, to be added to DX */
    NETS_EARLIER2,
    NETS_EARLIER_LAST = NETS_EARLIER + NETS_MAX_INPUTS - 1,
    NETS_DPARAM, /* gradients with respect to the parameters */
    NETS_DPARAM_LAST = NETS_DPARAM + NETS_MAX_PARAMS - 1,
    NETS_W16, /* the weight's bf16 copy, in place of NETS_W where maps are bf16 and it is a factor (net_ops.h) */
    NETS_ROLES,

    /* Names for the first parameters and saved tensors of the operations that list them in this order. */
    NETS_W = NETS_PARAM, /* weight; batch norm's scale */
    NETS_B,              /* bias; batch norm's shift */
    NETS_MEAN,           /* batch norm's running statistics; absent in a recomputation, which must not change them */
    NETS_VAR,
    NETS_DW = NETS_DPARAM,
    NETS_DB,
    NETS_SAVED_MEAN = NETS_SAVED, /* batch norm: the batch's mean, [c] */
    NETS_SAVED_VAR,               /* batch norm: the batch's biased variance, [c] */
    NETS_INDEX = NETS_SAVED       /* max_pool: u8, of Y's shape: the maximum's index in its window, row by row. If
                                     nets_halves_index, two channels share a byte, the first in its lower half */
} nets_role;

/* Whether a max pool's indices take 4 bits each: if its windows have at most 16 elements, and its channels are a
 * multiple of four (a GPU's thread computes four). */
static inline bool nets_halves_index(const nets_attrs *attrs, int64_t channels) {
    return attrs->kernel[0] * attrs->kernel[1] <= 16 && channels % 4 == 0;
}

#define NETS_ROLE_BIT(role) (UINT64_C(1) << (role))
_Static_assert(NETS_ROLES <= 64, "a set of roles fits in 64 bits");

#endif

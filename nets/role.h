/* What a tensor is to a step of a layer: the names by which operations say what they read and write (net_ops.h), and by
 * which what computes them finds its tensors (op.h). */
#ifndef NETS_ROLE_H
#define NETS_ROLE_H

#include "nets/net.h"

enum { NETS_MAX_SAVED = 4 };

/* Those with a number at most come in a row: role + i is that of the i-th. */
typedef enum nets_role {
    NETS_WORKSPACE, /* scratch of the op; no tensor */
    NETS_X,         /* inputs */
    NETS_X2,
    NETS_X_LAST = NETS_X + NETS_MAX_INPUTS - 1,
    NETS_Y,     /* output. Of the loss in training: the probabilities */
    NETS_PARAM, /* parameters, in the order of the operation's list */
    NETS_PARAM_LAST = NETS_PARAM + NETS_MAX_PARAMS - 1,
    NETS_SAVED, /* what the forward saves for the backward, in the order of the operation's list */
    NETS_SAVED_LAST = NETS_SAVED + NETS_MAX_SAVED - 1,
    NETS_LABELS,     /* i32 [n], or one for each of X's pixels [n, h, w] */
    NETS_RNG,        /* i32 [5]: seed low and high word, iteration low and high word; not 0: updates are halted */
    NETS_LOSS_VALUE, /* [1], mean over the labels */
    NETS_CORRECT,    /* i32 [1], how many labels had the highest score. A label that is no class fails the stream, or,
                        where a device cannot do that, makes this -1 - the label's place, the first one's: its loss
                        is not a number, its gradient zero */
    NETS_DY,         /* the loss's gradient by Y */
    NETS_DX,         /* by the inputs; absent where nobody needs it */
    NETS_DX2,
    NETS_DX_LAST = NETS_DX + NETS_MAX_INPUTS - 1,
    NETS_EARLIER, /* what other consumers of X contributed to its gradient; to be added into DX; absent: nothing */
    NETS_EARLIER2,
    NETS_EARLIER_LAST = NETS_EARLIER + NETS_MAX_INPUTS - 1,
    NETS_DPARAM, /* by the parameters */
    NETS_DPARAM_LAST = NETS_DPARAM + NETS_MAX_PARAMS - 1,
    NETS_ROLES,

    /* Names for some of them, where an operation's list has them in this order. */
    NETS_W = NETS_PARAM, /* weight, batch norm's scale */
    NETS_B,              /* bias, batch norm's shift */
    NETS_MEAN,           /* batch norm's running statistics; absent where the op is recomputed: they stay as they are */
    NETS_VAR,
    NETS_DW = NETS_DPARAM,
    NETS_DB,
    NETS_SAVED_MEAN = NETS_SAVED, /* batch norm's, of the batch, [c] */
    NETS_SAVED_VAR,               /* biased, as it normalises */
    NETS_INDEX = NETS_SAVED       /* max_pool's: u8, as its output: which of the window's elements, row by row, was the
                                     maximum */
} nets_role;

enum { NETS_RNG_WORDS = 5, NETS_RNG_HALTED = 4 };

#define NETS_ROLE_BIT(role) (UINT64_C(1) << (role))
_Static_assert(NETS_ROLES <= 64, "sets of roles are bits of 64");

#endif

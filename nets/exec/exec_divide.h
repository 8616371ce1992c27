/* SPDX-License-Identifier: MIT */
/* What ranks divide (nets/exchange.h): sums of gradients, of which each rank keeps its share, and weights, which each
 * rank sends to the others.
 *
 * Through host memory a tensor goes in pieces, through a few slots of pinned memory. A piece has as many elements of
 * each rank's part, one part after the other:
 *
 *   tensor   | 0 . . . . | 1 . . . . | 2 . . . . |      slot   | 0 . | 1 . | 2 . |
 *              ---         ---         ---                 first piece
 *
 * The compute stream copies a piece to its slot, begins the exchange and goes on; before a slot is used again, the
 * stream waits for the slot's exchange and copies the result back. The last step that adds up gradients, and the step
 * that gathers weights, wait for all. So no exchange is under way while the plan all-reduces other tensors, and all
 * ranks have one order of exchanges. */
#ifndef NETS_EXEC_EXEC_DIVIDE_H
#define NETS_EXEC_EXEC_DIVIDE_H

#include "nets/exec/exec.h"

typedef struct nets_piece_exchange nets_piece_exchange;

/* A parameter's gradient if steps add up shares (nets_lowered.sums_own), and where this rank's share of the sum
 * goes. */
typedef struct nets_divided {
    mm_tensor gradient; /* -1: it is computed in parts (nets_lower_parts) */
    float *share;       /* NULL: the plan all-reduces whole gradients */
} nets_divided;

typedef struct nets_divider {
    nets_exec *exec;
    mm_device *device;
    float *memory; /* pinned: the slots; NULL: exchanges are in place */
    int64_t slot_elems, bytes;
    nets_piece_exchange *pieces; /* of an iteration, in order */
    int n;
    int begun, ended; /* of the iteration that is being enqueued */
    mm_call wait;
    /* An element for each learned parameter. */
    nets_update_param *own; /* the executor's params with this rank's shares alone */
    nets_divided *divided;
    nets_exchanged *list; /* scratch */
} nets_divider;

/* Whether steps add up shares of gradients; false also if ranks divide nothing. */
static inline bool nets_divider_sums(const nets_divider *divider) {
    return divider->divided && divider->divided[0].share;
}

/* For an executor whose params are collected; does nothing if its ranks divide nothing. MM_ERR_NOMEM. Call fini also
 * after a failure; legal on a zeroed one. */
MM_CHECKED mm_status nets_divider_init(nets_divider *divider, nets_exec *exec);
void nets_divider_fini(nets_divider *divider);

/* To be called before each iteration. */
void nets_divider_begin(nets_divider *divider);
/* If shares are summed in place, each rank has checked its own: makes the word the sum of the ranks' words. */
MM_CHECKED mm_status nets_divider_agree(const nets_divider *divider, int32_t *halted, mm_stream *stream);
/* Enqueues what the step exchanges. */
MM_CHECKED mm_status nets_divider_run(nets_divider *divider, const nets_step *step, mm_stream *stream);

/* Elements first .. first + n - 1, in the device's order, of a persistent tensor that ranks divide. */
typedef struct nets_some {
    int64_t elems, unit; /* of the whole tensor; nets_param_share_unit */
    int64_t first, n;
} nets_some;

/* Gets these elements. All ranks call it, with equal arguments; it blocks. */
MM_CHECKED mm_status nets_divided_get(nets_exec *exec, const char *name, const nets_some *some, float *out);
/* Sets this rank's part of these elements. */
MM_CHECKED mm_status nets_divided_set(nets_exec *exec, const char *name, const nets_some *some, const float *in);

#endif

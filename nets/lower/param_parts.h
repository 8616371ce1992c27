/* SPDX-License-Identifier: MIT */
/* Parts of a weight's gradient, if several ranks add gradients up in host memory. A large weight's gradient is computed
 * in parts of a few rows, so that parts have the same bits whether all of them exist at a time or not.
 *
 * If ranks divide gradients (NETS_DIVIDE_GRADIENTS), it is then never whole: the last of the steps that contribute is
 * followed by one that computes a part for each rank, adds these up over the ranks, and goes on to the next parts. A
 * rank's share of the parameter has whole parts (nets_share_room).
 *
 *   rows     0        R       2 R           each      each + R                2 each
 *   rank 0   | part 0 | part 1 | part 2 ... |
 *   rank 1                                  | part 0  | part 1 | part 2 ...     |
 *   exchanged together: the parts 0; then the parts 1; ...; at last the rest of the last rank's
 *
 * An embedding that is tied to a loss of tokens has two contributions, which are added for each part. So the loss saves
 * its scores' gradients until then; its weight is whole where these would take more bytes than that. */
#ifndef NETS_LOWER_PARAM_PARTS_H
#define NETS_LOWER_PARAM_PARTS_H

#include "nets/lower/lower.h"

/* Decides about tensors->part_rows and parts_only of a parameter whose order is set. */
void nets_param_parts_choose(const nets_lowered *out, const nets_backend *backend, int param,
                             nets_param_tensors *tensors);

/* The weight of a layer whose gradient may be in parts: its first parameter, or the one it is tied to; -1: none. */
static inline int nets_parts_weight(const nets_layer *layer) {
    return layer->tied_param >= 0 ? layer->tied_param : layer->n_params > 0 ? layer->first_param : -1;
}

/* Adds the step that computes the parameter's gradient in parts, by n sources, and adds up the ranks' parts. `last`: as
 * of nets_lower_sums. */
MM_CHECKED mm_status nets_lower_parts(nets_lowered *out, int param, const nets_part_source *sources, int n, bool last);

#endif

/* SPDX-License-Identifier: MIT */
/* Bytes that any plan for a graph needs, and bytes by which moDNN chooses the sub-batch. */
#ifndef MM_CORE_ACCOUNT_ACCOUNT_BOUND_H
#define MM_CORE_ACCOUNT_ACCOUNT_BOUND_H

#include "mm/core/plan/plan.h"

/* moDNN's lower bound (Chen et al., DATE 2018, equation 7). A step needs its inputs, its outputs and a workspace; so
 * every plan needs at least the largest such sum, and the tensors that never leave the device. moDNN computes it for a
 * sub-batch of one image; for that figure, pass a graph of batch 1.
 *
 * A step counts each managed tensor that it uses, and its smallest workspace of the facts' variants. To stay below
 * every plan, a tensor whose sign alone is read counts one bit per element, and an output that may share an input's
 * bytes (in place, or as an alias) counts nothing.
 *   bytes            the largest sum, plus all persistent and external tensors
 *   offloaded_bytes  the largest sum, plus the step's own persistent and external tensors only. Steps of phase
 *                    MM_UPDATE are left out, because they work element by element, and so can run in parts
 * Bytes are not rounded up to MM_ALIGN. */
typedef struct mm_lower_bound {
    int64_t bytes, offloaded_bytes;
    int step, offloaded_step; /* the steps with the largest sums; -1: none */
    int64_t persistent_bytes; /* of `bytes`: persistent and external tensors */
} mm_lower_bound;

/* facts NULL: uses the workspaces that the graph declares. */
mm_lower_bound mm_lower_bound_of(const mm_graph *graph, const mm_graph_facts *facts);

/* The bytes by which moDNN chooses the sub-batch (Chen et al., equation 8): the most that any window of consecutive
 * steps uses together. A window has `permille` of all steps (1 to 1000), at least one. Each managed tensor that its
 * steps use counts once. Added are the largest workspace of the steps' fastest variants (facts NULL: as the graph
 * declares it), and all persistent and external tensors. MM_ERR_NOMEM. O(uses + steps * length). */
MM_CHECKED mm_status mm_window_bytes(const mm_graph *graph, const mm_graph_facts *facts, int permille,
                                     int64_t *bytes_out);

#endif

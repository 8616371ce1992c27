/* SPDX-License-Identifier: MIT */
/* Copies a finished plan and inserts further operations: measures, or the copies of an all-reduce. The plan's segments
 * and their places stay.
 *
 *   mm_plan_rewrite_begin
 *     mm_plan_rewrite_keep for each node of the plan, in order; between them mm_plan_rewrite_add
 *   mm_plan_rewrite_end */
#ifndef MM_CORE_PLAN_PLAN_REWRITE_H
#define MM_CORE_PLAN_PLAN_REWRITE_H

#include "mm/core/plan/plan.h"

typedef struct mm_plan_rewrite {
    mm_plan *copy;
    int32_t *moved[MM_STREAM_COUNT]; /* per stream and seq in the plan: the seq in the copy */
    int32_t *all_moved;              /* the array that `moved` points into */
} mm_plan_rewrite;

/* Begins a copy with room for so many more nodes and segments. MM_ERR_NOMEM: there is nothing to free. */
MM_CHECKED mm_status mm_plan_rewrite_begin(const mm_plan *plan, int more_nodes, int more_segments,
                                           mm_plan_rewrite *rewrite_out);
/* Appends a copy of a node of the plan. It waits for the copies of the nodes that the original waits for. */
void mm_plan_rewrite_keep(mm_plan_rewrite *rewrite, const mm_node *node);
/* Appends an operation without waits: mm_plan_wait adds them. Returns its index. */
int mm_plan_rewrite_add(mm_plan_rewrite *rewrite, mm_node_kind kind, mm_tensor tensor, int32_t src, int32_t dst);
/* Finishes the copy, which the caller destroys. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_plan_rewrite_end(mm_plan_rewrite *rewrite, mm_plan **plan_out);

#endif

/* SPDX-License-Identifier: MIT */
/* Measures of a plan, for an iteration that samples. */
#ifndef MM_CORE_PLAN_PLAN_MEASURES_H
#define MM_CORE_PLAN_PLAN_MEASURES_H

#include "mm/core/plan/plan.h"

/* A measure to add: it measures what `segment` holds, right before a node, which must be a step other than the first,
 * or after all nodes. */
typedef struct mm_measure_at {
    int32_t before; /* index of the node; n_nodes: after all nodes */
    int32_t segment;
} mm_measure_at;

/* A copy of a finished plan with measures. The computation waits for each of them. Segments and their places are the
 * plan's. MM_ERR_NOMEM. The caller destroys the copy. */
MM_CHECKED mm_status mm_plan_add_measures(const mm_plan *plan, const mm_measure_at *at, int n, mm_plan **plan_out);

#endif

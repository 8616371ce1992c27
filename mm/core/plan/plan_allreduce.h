/* SPDX-License-Identifier: MIT */
/* The copies of all-reduced tensors (mm_graph_allreduce), and the groups of those that are all-reduced in place. */
#ifndef MM_CORE_PLAN_PLAN_ALLREDUCE_H
#define MM_CORE_PLAN_PLAN_ALLREDUCE_H

#include "mm/core/plan/plan.h"

/* A copy of a finished plan in which tensors that are all-reduced through copies (mm_graph_allreduce) go to pinned
 * memory, after the last step that writes them, and come back before the update, which waits for them. Their pinned
 * bytes lie above the plan's. MM_ERR_NOMEM. The caller destroys the copy. */
MM_CHECKED mm_status mm_plan_add_allreduce(const mm_plan *plan, mm_plan **plan_out);
/* The most pinned bytes that mm_plan_add_allreduce adds; 0: no tensor is all-reduced through copies. */
int64_t mm_plan_allreduce_bytes(const mm_graph *graph);

/* Tensors whose all-reduces in place begin together, when those of earlier groups have begun. */
typedef struct mm_allreduce_group {
    int first, n;          /* its tensors: mm_allreduce_groups.tensors[first] to [first + n - 1] */
    int32_t after, update; /* nodes: the all-reduces may begin after `after`, and must be done before `update` */
    int32_t writer; /* the graph's step that writes these gradients last; INT32_MAX: no gradients, or all at the end */
} mm_allreduce_group;

/* Groups in the order in which they begin, which is the same for all plans of a graph. */
typedef struct mm_allreduce_groups {
    mm_allreduce_group *groups;
    int n; /* number of groups */
    mm_tensor *tensors;
} mm_allreduce_groups;

/* Groups the tensors that a plan all-reduces in place. MM_ERR_NOMEM. mm_allreduce_groups_fini frees the groups. */
MM_CHECKED mm_status mm_plan_allreduce_groups(const mm_plan *plan, mm_allreduce_groups *groups_out);
/* Bytes of a group's tensors. */
int64_t mm_allreduce_group_bytes(const mm_plan *plan, const mm_allreduce_groups *groups, int group);
/* Legal on a zeroed mm_allreduce_groups. */
void mm_allreduce_groups_fini(mm_allreduce_groups *groups);

#endif

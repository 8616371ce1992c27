/* SPDX-License-Identifier: MIT */
/* Chooses the homes of persistent tensors: on the device, or in pinned memory, from where plans fetch them for the
 * steps that use them (mm/core/plan/plan.h). The policy's option `resident` says how many may leave the device. As few
 * as the budget forces leave it, unless more are predicted to be faster. */
#ifndef MM_PLANNING_HOMES_H
#define MM_PLANNING_HOMES_H

#include "mm/planning/persistent_table.h"
#include "mm/planning/planning.h"

/* A graph's persistent tensors that may leave the device, in the order in which they do: those that few steps use come
 * first, and of equal ones each next lies as far as can be from those before it, so that copies are spread over the
 * iteration. */
typedef struct mm_home_order {
    mm_tensor *tensors;
    int n;
} mm_home_order;

/* Finds the order. Statistics and counts stay, also what the first step uses, what the forward pass writes, what is
 * all-reduced, and what is so small that a copy does not pay. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_home_order_init(const mm_graph *graph, mm_home_order *order_out);
void mm_home_order_fini(mm_home_order *order);

/* Plans with the first n tensors of an order in pinned memory. first_fit: any plan that fits will do. *ns_out: its
 * predicted time; 0: not known. *fits_out: whether it fits the limits. */
typedef mm_status (*mm_home_try)(void *ctx, int n, bool first_fit, bool *fits_out, int64_t *ns_out);

/* Finds how many of an order's n tensors leave the device, with about log n + 4 tries, and tries this number last.
 * Where none fits, all have left. */
MM_CHECKED mm_status mm_homes_search(mm_resident resident, int n, mm_home_try try, void *ctx);

/* As mm_planned_make, for a graph alone, whose persistent tensors lie one after the other from 0 in the limits' base:
 * chooses their homes, too. With resident=all the two are the same. limits.places must be NULL. */
MM_CHECKED mm_status mm_planned_make_housed(mm_planned *planned, const mm_policy *policy, const mm_graph *graph,
                                            const mm_limits *limits);

#endif

/* SPDX-License-Identifier: MIT */
/* Prepared graphs, and their plans. */
#ifndef MM_MANAGER_PREPARE_H
#define MM_MANAGER_PREPARE_H

#include "mm/planning/plan_set.h"

/* Prepares a graph that is not prepared yet; the manager is idle. On failure nothing changed. MM_ERR_ORDER: it is not
 * frozen; errors of mm_manager_prepare. */
MM_CHECKED mm_status mm_manager_prepare_new(mm_manager *manager, const mm_new_graph *added);

/* The plan under which a prepared graph runs now; NULL if it is not prepared. The manager owns it, until the policy or
 * the budget changes or the graph is forgotten. */
const mm_plan *mm_plan_now(const mm_manager *manager, const mm_graph *graph);

/* Offers a plan for a graph that will be prepared. The plan was made for an equal graph, under the manager's policy and
 * with its facts, within device_bytes and at least as much pinned memory as it takes. When the graph is first prepared
 * within such limits, this plan is proved and used, instead of making one. Takes over the plan, also on failure; the
 * equal graph may be destroyed. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_plan_offer(mm_manager *manager, mm_plan *plan, int64_t device_bytes);

#endif

/* SPDX-License-Identifier: MIT */
/* Installs drafted plans: makes them ready to run, and zeroes new persistent tensors; then commits all of them, or
 * none. */
#ifndef MM_MANAGER_INSTALL_H
#define MM_MANAGER_INSTALL_H

#include "mm/manager/manager.h"
#include "mm/planning/fallback_draft.h"

/* Makes the draft ready to run, and commits it. On failure nothing changed. The caller frees the draft in any case. */
MM_CHECKED mm_status mm_manager_install(mm_manager *manager, mm_draft *draft);
/* Plans all prepared graphs anew under a policy, or, if memory is short, under a substitute from its ladder, and
 * installs the plans. why: the reason for a substitute, for the log. On failure nothing changed. */
MM_CHECKED mm_status mm_manager_replan(mm_manager *manager, const mm_policy *policy, const char *why);
/* What mm_manager_replan plans by. */
mm_fallback_request mm_manager_request(const mm_manager *manager, const mm_policy *policy);
/* Installs plans that were drafted by such a request, for a policy that is being set. On failure nothing changed. The
 * caller frees the draft in any case. */
MM_CHECKED mm_status mm_manager_install_wanted(mm_manager *manager, mm_draft *draft, const mm_policy *wanted);
/* Plans a new graph and installs its plan. others_stay: the other graphs keep their plans if the new graph's plan fits;
 * else all are planned anew. On failure nothing changed. */
MM_CHECKED mm_status mm_manager_add(mm_manager *manager, const mm_new_graph *added, bool others_stay);
/* Plans all prepared graphs anew under the policy that runs now, within the present limits, and installs the plans.
 * Tries no substitute. On failure nothing changed. */
MM_CHECKED mm_status mm_manager_plan_around(mm_manager *manager);

/* To be called when memory has run out in an iteration. Lowers the ceiling below the largest plan of the iterations
 * that were running, and plans all graphs anew. If no plan fits, logs that, and the ceiling stays. */
void mm_manager_run_out(mm_manager *manager, const mm_failure *reason);
/* Waits for iterations that were ended without waiting; returns their failure, and clears it. what: the call that
 * needs an idle manager, for messages. MM_ERR_ORDER: an iteration is under way. */
MM_CHECKED mm_status mm_manager_drain(mm_manager *manager, const char *what);

/* Passes the functions of mm_allreduce_set to the graph's executions. */
void mm_ready_set_allreduce(mm_ready *ready);
void mm_ready_fini(mm_ready *ready);

#endif

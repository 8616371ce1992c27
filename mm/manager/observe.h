/* SPDX-License-Identifier: MIT */
/* Observing (mm.h: mm_observe): iterations are compared with their plan, a window of them at a time. If they take
 * another time than planned, facts get the measured times, and the policy plans again.
 *
 *   iterations ──▶ window full ──▶ as planned? ── yes ──▶ next window
 *                                       │ no, and 100 iterations since the policy last planned again
 *                                       ▼
 *                         renew facts, draft plans of all graphs
 *                                       │
 *                                       ▼
 *                 taken up if: faster by the renewed facts, never left before,
 *                 no variant of a step and no exactness of what a step reads changes
 *
 * Windows are compared when an iteration begins, so nothing waits unless there is something to plan. */
#ifndef MM_MANAGER_OBSERVE_H
#define MM_MANAGER_OBSERVE_H

#include "mm/manager/manager.h"

/* Between iterations, before one begins: compares the graph whose window is full, if any is, and plans again where that
 * is due. Returns the failure of iterations that were ended without waiting; failures to plan are logged. */
MM_CHECKED mm_status mm_observe_look(mm_manager *manager);
/* Whether the graph's next iterations are to be measured. Such iterations must run step by step. If iterations cannot
 * be recorded, all of them are measured. */
bool mm_observe_measures(const mm_manager *manager, const mm_ready *ready);
/* Makes facts of a graph that is observed and planned with measured times, from all that was observed of it, the latest
 * iterations included. The caller destroys them. */
MM_CHECKED mm_status mm_observe_facts(const mm_manager *manager, const mm_ready *ready, mm_graph_facts **facts_out);
void mm_observe_forget(mm_manager *manager, const mm_graph *graph);
void mm_observe_fini(mm_manager *manager);

#endif

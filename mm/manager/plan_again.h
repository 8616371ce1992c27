/* SPDX-License-Identifier: MIT */
/* Plans again, in the midst of training, by facts that were learned from iterations. */
#ifndef MM_MANAGER_PLAN_AGAIN_H
#define MM_MANAGER_PLAN_AGAIN_H

#include "mm/manager/manager.h"

/* Plans that were made again, compared with those that run. */
typedef struct mm_again {
    const char *refused;     /* why the old plans stay (static); NULL: the new ones run from now on */
    int64_t now_ns, next_ns; /* of the old plans and of the new ones: what an iteration of each graph takes, added up */
} mm_again;

/* Plans all graphs again under the policy that runs now, by the present facts and with the variants of steps that run
 * now. Takes the plans up if they are faster, are not among those left before, and lose the same bits of the same maps
 * (none, of a lossless policy). Between iterations, when no iteration runs. On failure nothing changed. */
MM_CHECKED mm_status mm_plan_again(mm_manager *manager, mm_again *again_out);

/* Counts and reports (MM_EVENT_REPLAN) that plans changed because of what was learned of a graph. */
void mm_again_note(mm_manager *manager, const mm_graph *graph, const mm_again *again);

/* Predicts the time of an iteration under a plan by the plan's facts. node_ns: per node; NULL: not wanted. */
MM_CHECKED mm_status mm_planned_expect(const mm_planned *planned, int64_t *ns_out, int64_t *node_ns);

#endif

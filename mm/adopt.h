/* From plans that are drafted to plans that are run: executions are made, new persistent tensors zeroed, and then all is
 * taken up, or nothing. */
#ifndef MM_ADOPT_H
#define MM_ADOPT_H

#include "mm/manager.h"

/* Makes the draft ready to run, and commits it. On failure nothing changed. The caller ends the draft. */
MM_CHECKED mm_status mm_manager_adopt(mm_manager *manager, mm_draft *draft);
/* Plans every prepared graph anew under a policy, or what its ladder has if memory is short, and adopts that. `why`: of a
 * step down the ladder, for the log. */
MM_CHECKED mm_status mm_manager_replan(mm_manager *manager, const mm_policy *policy, const char *why);
/* Plans the newcomer, and, unless the others may stay, every other graph anew. */
MM_CHECKED mm_status mm_manager_add(mm_manager *manager, const mm_newcomer *added, bool others_stay);
/* Plans every prepared graph anew by what is run now, within the present limits: no substitute is tried. */
MM_CHECKED mm_status mm_manager_plan_around(mm_manager *manager);

/* One of the iterations that were running failed because memory ran out: the largest of their plans, and all that need
 * as much, are given up for smaller ones, if there are any. */
void mm_manager_run_out(mm_manager *manager, const mm_failure *reason);
/* MM_ERR_ORDER if an iteration is under way. Waits for iterations that were ended without waiting: a failure of theirs is
 * returned and cleared. */
MM_CHECKED mm_status mm_manager_settle(mm_manager *manager, const char *what);

void mm_ready_fini(mm_ready *ready);

#endif

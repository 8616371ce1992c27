/* What a plan that has no places yet takes at the least when it has them. */
#ifndef POLICIES_LEAST_TIME_H
#define POLICIES_LEAST_TIME_H

#include "mm/core/plan.h"

/* No more than mm_simulate says of the plan, wherever its segments are placed. Errors of mm_simulate. */
MM_CHECKED mm_status mm_least_time(const mm_plan *plan, const mm_facts *facts, int64_t *ns_out);

#endif

/* SPDX-License-Identifier: MIT */
/* Operations of a plan for which facts have no time. */
#ifndef MM_CORE_TIME_UNTIMED_H
#define MM_CORE_TIME_UNTIMED_H

#include "mm/core/plan/plan.h"

/* The name of an operation for which the facts have no time: a simulation would count it as 0. NULL: none. Valid as
 * long as the facts. */
const char *mm_plan_untimed(const mm_plan *plan, const mm_graph_facts *facts);

#endif

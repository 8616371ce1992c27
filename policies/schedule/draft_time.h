/* SPDX-License-Identifier: MIT */
/* A plan's time, and a lower bound of it before its segments are placed. */
#ifndef POLICIES_SCHEDULE_DRAFT_TIME_H
#define POLICIES_SCHEDULE_DRAFT_TIME_H

#include "mm/core/plan/plan.h"

/* *ns_out: at most the iteration's time that mm_simulate gives for the plan, wherever its segments are placed. Errors
 * of mm_simulate. */
MM_CHECKED mm_status mm_draft_time(const mm_plan *plan, const mm_facts *facts, int64_t *ns_out);

/* The iteration's time that mm_simulate gives, and nothing else of it. Errors of mm_simulate. */
MM_CHECKED mm_status mm_simulated_time(const mm_plan *plan, const mm_facts *facts, int64_t *ns_out);

#endif

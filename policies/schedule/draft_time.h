/* SPDX-License-Identifier: MIT */
/* A plan's predicted time, and a lower bound of it before the segments are placed. */
#ifndef POLICIES_SCHEDULE_DRAFT_TIME_H
#define POLICIES_SCHEDULE_DRAFT_TIME_H

#include "mm/core/plan/plan.h"

/* *ns_out: a lower bound of the iteration's time that mm_simulate gives for the plan, wherever its segments are placed.
 * Errors of mm_simulate. */
MM_CHECKED mm_status mm_draft_time(const mm_plan *plan, const mm_graph_facts *facts, int64_t *ns_out);

/* A lower bound that ignores waits, from the time of each stream's own work: no stream takes less, and the computation
 * takes longer while codecs or copies run beside it. */
double mm_busiest_ns(const double busy[MM_STREAM_COUNT], const mm_graph_facts *facts);

/* What the simulator gives at least for work of `ns` in so many nodes: it rounds. */
int64_t mm_ns_at_least(double ns, int n_nodes);

/* *ns_out: the iteration's time that mm_simulate gives. Errors of mm_simulate. */
MM_CHECKED mm_status mm_simulated_time(const mm_plan *plan, const mm_graph_facts *facts, int64_t *ns_out);

#endif

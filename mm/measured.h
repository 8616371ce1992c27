/* What a manager measured while it ran a graph (mm_options.measure_times), for making facts of it. */
#ifndef MM_MEASURED_H
#define MM_MEASURED_H

#include "pipeline/dispatch.h"

typedef struct mm_measured {
    const mm_plan *plan;
    const mm_facts *facts;         /* whose codecs the plan's segments name */
    const mm_execution *execution; /* mm_execution_ns */
} mm_measured;

/* Between iterations. All of it belongs to the manager, until the policy changes or the graph is forgotten. */
MM_CHECKED mm_status mm_measured_get(mm_manager *manager, const mm_graph *graph, mm_measured *measured_out);

/* The plan by which a prepared graph is run now, for its figures: the manager's, until the policy or the budget changes or
 * the graph is forgotten. NULL if it was not prepared. */
const mm_plan *mm_plan_now(const mm_manager *manager, const mm_graph *graph);

/* How long the thread that drives the manager has stood waiting in calls of iterations: for data, for workers to issue,
 * at the end for the device. Asks no device. */
int64_t mm_host_wait_ns(mm_manager *manager);

#endif

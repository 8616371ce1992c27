/* What a manager measured while it ran a graph (mm_options.measure_times), for making facts of it. */
#ifndef MM_MEASURED_H
#define MM_MEASURED_H

#include "pipeline/dispatch.h"

typedef struct mm_measured {
    const mm_plan *plan;
    const mm_facts *facts;     /* whose codecs the plan's segments name */
    const mm_execution *execution; /* mm_execution_ns */
} mm_measured;

/* Between iterations. All of it belongs to the manager, until the policy changes or the graph is forgotten. */
MM_CHECKED mm_status mm_measured_get(mm_manager *manager, const mm_graph *graph, mm_measured *measured_out);

/* How long the thread that drives the manager has stood waiting in calls of iterations: for data, for workers to issue,
 * at the end for the device. Asks no device. */
int64_t mm_host_wait_ns(mm_manager *manager);

#endif

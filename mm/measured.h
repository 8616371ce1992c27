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

/* Sums of what a line is fitted to: the time of a copy is a constant, and its bytes at a rate. */
typedef struct mm_copy_line {
    double n, bytes, ns, bytes_bytes, bytes_ns;
} mm_copy_line;

/* Measured times into facts of the same graph; `part` of each. Of steps: of the variant that ran. */
void mm_measured_steps(const mm_measured *measured, double part, mm_facts *facts);
/* Of encodings and decodings, of codecs that the facts know; copies are added to the lines of the ways in and out. */
void mm_measured_operations(const mm_measured *measured, double part, mm_facts *facts, mm_copy_line copies[2]);
/* What follows from all copies: issue_ns, and the rate of each way that has any. */
void mm_measured_link(const mm_copy_line copies[2], mm_facts *facts);

/* The plan by which a prepared graph is run now, for its figures: the manager's, until the policy or the budget changes or
 * the graph is forgotten. NULL if it was not prepared. */
const mm_plan *mm_plan_now(const mm_manager *manager, const mm_graph *graph);

/* How long the thread that drives the manager has stood waiting in calls of iterations: for data, for workers to issue,
 * at the end for the device. Asks no device. */
int64_t mm_host_wait_ns(mm_manager *manager);

#endif

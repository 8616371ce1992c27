/* SPDX-License-Identifier: MIT */
/* Times that a manager measured while it ran a graph (mm_options.measure_times), and facts made from them. */
#ifndef MM_MANAGER_MEASURED_H
#define MM_MANAGER_MEASURED_H

#include "pipeline/dispatch.h"

typedef struct mm_measured {
    const mm_plan *plan;
    const mm_facts *facts; /* the facts that the plan was made with; the plan's segments number codecs as these facts
                              do */
    const mm_execution *execution; /* has the times (mm_execution_ns) */
} mm_measured;

/* The measured times of a graph under its present plan. The manager owns all of it, until the policy changes or the
 * graph is forgotten. Between iterations. MM_ERR_ORDER: the graph is not prepared, or times are not measured. */
MM_CHECKED mm_status mm_measured_get(mm_manager *manager, const mm_graph *graph, mm_measured *measured_out);

/* Sums for fitting a line to copies: the time of a copy is a constant, plus its bytes over a rate. */
typedef struct mm_copy_line {
    double n, bytes, ns, bytes_bytes, bytes_ns;
} mm_copy_line;

/* Puts the measured times of steps, multiplied by `part`, into facts of the same graph: of each step, into the variant
 * that ran. only_unknown: times that the facts have already stay. */
void mm_measured_steps(const mm_measured *measured, double part, bool only_unknown, mm_facts *facts);
/* Puts the measured times of encodings and decodings, multiplied by `part`, and the sizes of codes' bodies (the parts
 * of variable size), into facts of the same graph that have these codecs. Adds copies to the lines: [0] in, [1] out. */
void mm_measured_operations(const mm_measured *measured, double part, mm_facts *facts, mm_copy_line copies[2]);
/* Fits the lines, and sets issue_ns and the rate of each direction that has copies. */
void mm_measured_link(const mm_copy_line copies[2], mm_facts *facts);

/* The plan under which a prepared graph runs now; NULL if it is not prepared. The manager owns it, until the policy or
 * the budget changes or the graph is forgotten. */
const mm_plan *mm_plan_now(const mm_manager *manager, const mm_graph *graph);

/* Offers a plan for a graph that will be prepared. The plan was made for an equal graph, under the manager's policy and
 * with its facts, within device_bytes and at least as much pinned memory as it takes. When the graph is first prepared
 * within such limits, the plan is proved and used, not made again. Takes over the plan, also on failure; the equal
 * graph may be destroyed. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_plan_offer(mm_manager *manager, mm_plan *plan, int64_t device_bytes);

/* Sizes of the codes of a graph's maps in the iteration that ended last (mm_execution_codes). Waits for iterations that
 * were ended without waiting. *n_out: their number; at most `capacity` are filled in. Between iterations. MM_ERR_ORDER:
 * the graph is not prepared; else the failure of an iteration. */
MM_CHECKED mm_status mm_code_sizes(mm_manager *manager, const mm_graph *graph, mm_code_size *sizes_out, int capacity,
                                   int *n_out);

/* Ends the trace that is under way (mm_trace_start), and gives its timeline to the caller. Waits for iterations that
 * were ended without waiting, and drops their failure. Between iterations. MM_ERR_ORDER: no trace is under way. */
MM_CHECKED mm_status mm_trace_take(mm_manager *manager, mm_timeline **timeline_out);

/* How long the thread that drives the manager has blocked in calls of iterations: for data, for workers to issue, and
 * at the end for the device. Does not call the device. */
int64_t mm_host_wait_ns(mm_manager *manager);

#endif

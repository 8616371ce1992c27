/* SPDX-License-Identifier: MIT */
/* Times that a manager measured while it ran a graph (mm_options.measure_times), and facts made from them. */
#ifndef MM_MANAGER_FACTS_MEASURED_H
#define MM_MANAGER_FACTS_MEASURED_H

#include "mm/manager/plan_again.h"
#include "pipeline/dispatch.h"

typedef struct mm_measured {
    const mm_plan *plan;
    const mm_graph_facts
        *facts; /* the facts that the plan was made with; the plan's segments number codecs as these facts
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
void mm_measured_steps(const mm_measured *measured, double part, bool only_unknown, mm_graph_facts *facts);
/* Puts the measured times of encodings and decodings, multiplied by `part`, and the sizes of codes' bodies (the parts
 * of variable size), into facts of the same graph that have these codecs. Adds copies to the lines: [0] in, [1] out. */
void mm_measured_operations(const mm_measured *measured, double part, mm_graph_facts *facts, mm_copy_line copies[2]);
/* Fits the lines, and sets issue_ns and the rate of each direction that has copies. */
void mm_measured_link(const mm_copy_line copies[2], mm_graph_facts *facts);

/* Puts what was measured of a graph into facts of it; what the iterations did not show is left to the caller. */
typedef mm_status (*mm_measured_learn)(void *ctx, const mm_measured *measured, mm_graph_facts *facts);

/* Plans again (mm_plan_again) by what the iterations have shown of these graphs so far: `learn` is called for the facts
 * by which each is planned from now on, and for those of its present plan, by which that is judged. Between iterations;
 * the policy's own facts are used for all other graphs. MM_ERR_ORDER: a graph was not run with measure_times. Else
 * errors of `learn` and of mm_plan_again: the plans stay, but later ones are made by what was learned. */
MM_CHECKED mm_status mm_measured_plan_again(mm_manager *manager, const mm_graph *const *graphs, int n,
                                            mm_measured_learn learn, void *ctx, mm_again *again_out);

#endif

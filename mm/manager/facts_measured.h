/* SPDX-License-Identifier: MIT */
/* Times that a manager measured while it ran a graph (mm_options.measure_times), and facts made from them. */
#ifndef MM_MANAGER_FACTS_MEASURED_H
#define MM_MANAGER_FACTS_MEASURED_H

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

#endif

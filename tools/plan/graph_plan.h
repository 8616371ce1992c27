/* SPDX-License-Identifier: MIT */
/* mm plan --graph: plans the graphs of a file, which a program of one's own wrote (mm/mm_plan.h), by mm's public
 * interface alone. */
#ifndef TOOLS_PLAN_GRAPH_PLAN_H
#define TOOLS_PLAN_GRAPH_PLAN_H

#include <stdbool.h>

#include "mm/mm.h"
#include "tools/args/args.h"

typedef struct graph_plan {
    const char *path, *facts; /* facts NULL: none */
    const char *policy_list;  /* of --policy */
    int64_t effort;           /* of --plan-effort */
    int64_t pinned_bytes;     /* of --pinned; negative: half of what this host has free; with a disk a quarter */
    mm_plan_limits limits;    /* pinned_bytes is set by graph_plan_run */
    bool chart;
    const char *json, *svg, *html; /* files to write; NULL: none */
    /* set by graph_plan_run */
    bool misfit; /* a policy does not fit */
} graph_plan;

/* Refuses options of mm plan that are about networks: a graph is planned as it is. MM_ERR_INVALID. */
MM_CHECKED mm_status graph_plan_check_options(int argc, char **argv, const arg *table);

/* Plans, prints, and writes the files. What does not fit is no failure: it is printed why, and which policy would fit.
 * Errors of mm_graph_load, mm_facts_load, mm_requirement_get, of options, and of writing. */
MM_CHECKED mm_status graph_plan_run(graph_plan *plan);

#endif

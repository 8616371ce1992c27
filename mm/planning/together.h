/* SPDX-License-Identifier: MIT */
/* Plans graphs of one arena together, with homes of their persistent tensors that all of them share. */
#ifndef MM_PLANNING_TOGETHER_H
#define MM_PLANNING_TOGETHER_H

#include "mm/planning/homes.h"
#include "mm/planning/planning.h"

/* Graphs of one arena. */
typedef struct mm_together {
    const mm_graph *const *graphs;
    mm_planned *const *planned; /* of each graph; initialised, with its facts */
    int n;
    const mm_persistent_table *persistents; /* all of the arena, from its low end; NULL: the graphs' own, at the low end
                                               of limits.base_bytes */
} mm_together;

/* As mm_planned_make for each graph; chooses homes, too, as the policy's option `resident` says (homes.h): of the
 * persistent tensors of the graph that has most of them. limits.places must be NULL. On failure some plans may have
 * been replaced. Errors of mm_planned_make. */
MM_CHECKED mm_status mm_together_plan(const mm_together *together, const mm_policy *policy, const mm_limits *limits);

/* The same for a graph alone. */
MM_CHECKED mm_status mm_planned_make_housed(mm_planned *planned, const mm_policy *policy, const mm_graph *graph,
                                            const mm_limits *limits);

#endif

/* SPDX-License-Identifier: MIT */
/* The oracle: checks plans by brute force, without any code of mm_program_prove. It uses a search for reachability
 * instead of vector clocks, all pairs of accesses and segments instead of a sweep, and simulates the bytes in issue
 * order. For small plans. All functions abort when out of memory. */
#ifndef TESTS_CORE_PLAN_ORACLE_H
#define TESTS_CORE_PLAN_ORACLE_H

#include "mm/core/plan/plan.h"

/* The happens-before relation of a plan's nodes. */
typedef struct closure {
    int n;
    bool *before; /* [a * n + b]: a ends before b starts */
} closure;

/* The plan's waits must be for earlier nodes. */
closure closure_create(const mm_plan *plan);
void closure_destroy(closure *closure);
static inline bool closure_before(const closure *c, int a, int b) { return c->before[a * c->n + b]; }

/* One access of a node to a segment. */
typedef struct access {
    int node, segment;
    int use; /* index of the step's use; -1 for an operation, workspace, stage or pool */
    bool write;
} access;

/* All accesses, in issue order. A MODIFY is one write. The caller frees them. */
access *plan_accesses(const mm_plan *plan, int *n_out);

/* Whether the step at `node` may write its use `output` over its use `input`, in the segments that these are bound
 * to. */
bool plan_inplace(const mm_plan *plan, int node, int input, int output);

/* Whether all indices in the plan are in range, so that it can be walked. */
bool plan_walkable(const mm_plan *plan);

/* Numbers of writes and reads of a segment, by whether the content was bit for bit what was first computed. */
typedef struct plan_contents {
    int exact_writes, inexact_writes, inexact_reads;
} plan_contents;

/* Checks a plan. MM_ERR_PLAN, or MM_ERR_INFEASIBLE if only the budget is exceeded. *why_out: the reason, in a few
 * words. contents_out: zeroed, one per segment; counted unless the plan is refused. */
mm_status plan_oracle(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits,
                      plan_contents *contents_out, const char **why_out);

#endif

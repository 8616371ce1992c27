/* A second opinion on plans, by brute force and without a line of mm_plan_check: reachability by search instead of
 * vector clocks, every pair of accesses and of segments instead of a sweep, and the bytes themselves played through in
 * issue order. For small plans. */
#ifndef TESTS_CORE_PLAN_ORACLE_H
#define TESTS_CORE_PLAN_ORACLE_H

#include "mm/core/plan.h"

/* Which nodes end before which others start. */
typedef struct closure {
    int n;
    bool *before; /* [a * n + b]: a ends before b starts */
} closure;

/* The plan's waits must name earlier nodes. Aborts when memory is out, as everything here. */
closure closure_create(const mm_plan *plan);
void closure_destroy(closure *closure);
static inline bool closure_before(const closure *c, int a, int b) { return c->before[a * c->n + b]; }

/* What one node does to one segment. */
typedef struct access {
    int node, segment;
    int use; /* of the step; -1 for an operation, workspace or stage */
    bool write;
} access;

/* All accesses, in issue order; to be freed. A MODIFY is one write. */
access *plan_accesses(const mm_plan *plan, int *n_out);

/* Whether the step at `node` may write its use `output` over its use `input`, both in the segments that they are. */
bool plan_inplace(const mm_plan *plan, int node, int input, int output);

/* Whether every index in the plan is in range, so that it can be walked. */
bool plan_walkable(const mm_plan *plan);

/* How often a segment was written or read whose content was, or was not, bit for bit what was computed first. */
typedef struct plan_contents {
    int exact_writes, inexact_writes, inexact_reads;
} plan_contents;

/* MM_OK, MM_ERR_PLAN, or MM_ERR_INFEASIBLE if only the budget is exceeded. why_out: a word on it. contents_out: zeroed,
 * one of each segment, counted unless the plan is refused. */
mm_status plan_oracle(const mm_plan *plan, const mm_facts *facts, const mm_limits *limits, plan_contents *contents_out,
                      const char **why_out);

#endif

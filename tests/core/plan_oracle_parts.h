/* SPDX-License-Identifier: MIT */
/* Shared by the files of the oracle, plan_oracle*.c. */
#ifndef TESTS_CORE_PLAN_ORACLE_PARTS_H
#define TESTS_CORE_PLAN_ORACLE_PARTS_H

#include <stdlib.h>

#include "tests/core/plan_oracle.h"

/* Allocates zeroed memory. Aborts when out of memory. */
static inline void *oracle_allocate(size_t n, size_t item) {
    void *memory = calloc(n + 1, item);
    if (!memory) abort();
    return memory;
}

/* Whether a step's use is an output that shares the storage of an input. */
static inline bool oracle_shares(const mm_plan *plan, const mm_use *use) {
    return use->access == MM_WRITE && plan->alias[use->tensor] != use->tensor;
}

/* The segment that a step writes the code of its use to; -1: none. */
static inline int oracle_code(const mm_plan *plan, const mm_node *n, int use) {
    return n->kind == MM_NODE_STEP && n->first_code >= 0 ? plan->bindings[n->first_code + use] : -1;
}

/* Whether a segment of a well-formed plan is that of a persistent tensor. */
static inline bool oracle_persists(const mm_plan *plan, int segment) {
    return plan->segments[segment].category == MM_CAT_PERSISTENT;
}

/* The code that an operation encodes or decodes, if it has a body; else NULL. */
static inline const mm_segment *oracle_body(const mm_plan *plan, const mm_node *n) {
    if (n->kind != MM_NODE_ENCODE && n->kind != MM_NODE_DECODE) return NULL;
    const mm_segment *code = &plan->segments[n->kind == MM_NODE_ENCODE ? n->dst : n->src];
    return code->pool >= 0 ? code : NULL;
}

static inline bool oracle_is_pool(const mm_plan *plan, int segment) {
    return plan->segments[segment].content == MM_CONTENT_POOL;
}

/* Whether all indices are in range, and all segments and nodes well-formed. */
bool oracle_form(const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits);

/* Simulates the plan in issue order: whether all reads find the right value, and all results of operations are read.
 * The plan must be well-formed, and its segments written before they are read. contents: see plan_oracle. */
bool oracle_plays(const mm_plan *plan, const mm_graph_facts *facts, plan_contents *contents);

#endif

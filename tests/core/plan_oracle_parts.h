/* What the files of the oracle share: plan_oracle*.c. */
#ifndef TESTS_CORE_PLAN_ORACLE_PARTS_H
#define TESTS_CORE_PLAN_ORACLE_PARTS_H

#include <stdlib.h>

#include "tests/core/plan_oracle.h"

/* Zeroed. Aborts when memory is out. */
static inline void *oracle_allocate(size_t n, size_t item) {
    void *memory = calloc(n + 1, item);
    if (!memory) abort();
    return memory;
}

/* Whether a step's use is an output that lies where one of its inputs does, and equals it. */
static inline bool oracle_shares(const mm_plan *plan, const mm_use *use) {
    return use->access == MM_WRITE && plan->alias[use->tensor] != use->tensor;
}

/* Whether it is the segment of a persistent tensor, in a plan that is well-formed. */
static inline bool oracle_persists(const mm_plan *plan, int segment) {
    return plan->segments[segment].category == MM_CAT_PERSISTENT;
}

/* Every index in range, every segment and node well-formed. */
bool oracle_form(const mm_plan *plan, const mm_facts *facts, const mm_limits *limits);

/* Played through in issue order, every read finds the right value, and every operation's result is read. Of a plan that
 * is well-formed and whose segments are written before they are read. contents: as of plan_oracle. */
bool oracle_plays(const mm_plan *plan, const mm_facts *facts, plan_contents *contents);

#endif

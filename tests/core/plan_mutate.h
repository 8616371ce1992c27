/* SPDX-License-Identifier: MIT */
/* Mutations: plans that are broken in one place. */
#ifndef TESTS_CORE_PLAN_MUTATE_H
#define TESTS_CORE_PLAN_MUTATE_H

#include "mm/core/plan/plan.h"

/* A plan and the limits it is checked against; a mutation may change either. */
typedef struct mutant {
    mm_plan *plan;
    mm_limits limits;
    const mm_graph_facts *facts;
    uint64_t random;
    bool keep_sums; /* it changed members that mm_plan_finish fills in, so that must not be called again */
} mutant;

typedef struct mutation {
    const char *name;
    bool (*apply)(mutant *m); /* false: the plan has nothing to break in this way */
} mutation;

/* The mutation of that index; NULL past the last. */
const mutation *mutation_at(int index);

/* A copy with room for one more node and one more segment, to be destroyed with mm_plan_destroy. Aborts when out of
 * memory. */
mm_plan *plan_clone(const mm_plan *plan);

#endif

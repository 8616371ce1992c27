/* Plans broken in one place. */
#ifndef TESTS_CORE_PLAN_MUTATE_H
#define TESTS_CORE_PLAN_MUTATE_H

#include "mm/core/plan.h"

/* A plan and the limits it is checked against; a mutation may change either. */
typedef struct mutant {
    mm_plan *plan;
    mm_limits limits;
    const mm_facts *facts;
    uint64_t random;
    bool keep_sums; /* the mutation is of what mm_plan_finish fills in: it must not be called again */
} mutant;

typedef struct mutation {
    const char *name;
    bool (*apply)(mutant *m); /* false: there is nothing of that kind in this plan */
} mutation;

/* The mutations; NULL past the last. */
const mutation *mutation_at(int index);

/* A copy with room for one more node, to be destroyed with mm_plan_destroy. Aborts when memory is out. */
mm_plan *plan_clone(const mm_plan *plan);

#endif

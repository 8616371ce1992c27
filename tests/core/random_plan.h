/* Random plans that are right, of a random graph with its random_facts: every action that a plan can hold, in every
 * combination, packed as tightly as the waits allow. Quadratic: for graphs of some tens of steps. */
#ifndef TESTS_CORE_RANDOM_PLAN_H
#define TESTS_CORE_RANDOM_PLAN_H

#include "mm/core/plan.h"

typedef struct random_plan_options {
    uint64_t seed;
    bool lossy;   /* lossy codes too; else every value comes back bit for bit */
    bool dynamic; /* some segments in the heap, and stages */
} random_plan_options;

MM_CHECKED mm_status random_plan_create(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                                        const random_plan_options *options, mm_plan **plan_out);

/* Places the segments of a plan whose nodes and waits are there, some of them at run time, and finishes it: what
 * random_plan_create ends with. */
MM_CHECKED mm_status random_place(mm_plan *plan, const random_plan_options *options, const mm_limits *limits,
                                  uint64_t *random);

#endif

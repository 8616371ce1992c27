/* SPDX-License-Identifier: MIT */
/* Random correct plans of a random graph with random_facts: all actions that a plan can have, in all combinations,
 * packed as tightly as the waits allow. Takes quadratic time; for graphs of some tens of steps. */
#ifndef TESTS_CORE_RANDOM_PLAN_H
#define TESTS_CORE_RANDOM_PLAN_H

#include "mm/core/plan/plan.h"

typedef struct random_plan_options {
    uint64_t seed;
    bool lossy;    /* use lossy codes too; else all values come back bit for bit */
    bool dynamic;  /* place some segments in the heap, and use stages */
    bool measures; /* measure tensors after steps that use them */
    bool disk;     /* move some of what is in pinned memory on to the disk, and back */
    bool pools;    /* use codes with bodies: in pools on the device, with a spill or without, or in pinned memory */
} random_plan_options;

MM_CHECKED mm_status random_plan_create(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                        const random_plan_options *options, mm_plan **plan_out);

/* Places the segments of a plan that has its nodes and waits, some of them at run time, and finishes it. The last part
 * of random_plan_create. */
MM_CHECKED mm_status random_place(mm_plan *plan, const random_plan_options *options, const mm_limits *limits,
                                  uint64_t *random);

#endif

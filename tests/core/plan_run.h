/* SPDX-License-Identifier: MIT */
/* Runs a plan of a random graph with random_facts on real memory: one node after the other, in an order that the waits
 * allow and that streams might take, without threads. */
#ifndef TESTS_CORE_PLAN_RUN_H
#define TESTS_CORE_PLAN_RUN_H

#include "mm/core/plan/plan.h"

typedef enum plan_order {
    PLAN_ORDER_ISSUE,  /* as issued */
    PLAN_ORDER_EAGER,  /* side streams as early as possible */
    PLAN_ORDER_LAZY,   /* side streams as late as possible */
    PLAN_ORDER_RANDOM, /* any */
} plan_order;

/* Runs iterations, and returns the checksum of all persistent tensors, which random_graph_reference gives too. seed:
 * of the tensors' first values; order_seed: of PLAN_ORDER_RANDOM. *measured_out (may be NULL): the checksum of all that
 * measures found. Aborts when out of memory. */
uint64_t plan_run(const mm_plan *plan, const mm_graph_facts *facts, uint64_t seed, int iterations, plan_order order,
                  uint64_t order_seed, uint64_t *measured_out);

#endif

/* Runs graphs of mock steps (tests/core/random_graph.h) through managers, and beside it in plain memory to compare. */
#ifndef TESTS_MM_MANAGER_RIG_H
#define TESTS_MM_MANAGER_RIG_H

#include "mm/mm.h"
#include "tests/core/random_graph.h"
#include "tests/mm/rig_device.h"

/* Who computes a step. Where the CPU does not reach the device's memory, the compute stream all of them. */
typedef enum rig_mode {
    RIG_INLINE, /* the caller, between begin and end */
    RIG_STREAM, /* the compute stream */
    RIG_MIXED,  /* by turns */
    RIG_MODES
} rig_mode;

/* A graph with the user's memory for its external tensors. Several managers may run it, one after the other. */
typedef struct rig {
    const mm_graph *graph;                   /* borrowed */
    uint64_t seed;                           /* of what tensors hold before the first iteration */
    void **external;                         /* per tensor; NULL unless external */
    random_operand (*operands)[RANDOM_USES]; /* per step: a stream's tasks read them until the iteration has ended */
} rig;

void rig_init(rig *rig, const mm_graph *graph, uint64_t seed);
void rig_fini(rig *rig);

/* Prepares the graph, gives its external tensors their memory, fills the persistent ones. */
mm_status rig_bind(const rig *rig, mm_manager *manager);

/* Begins, runs and ends the next `count` steps from `first` on; the first failure. */
mm_status rig_steps(rig *rig, mm_manager *manager, rig_mode mode, int first, int count);

/* A whole iteration; aborted if anything fails. */
mm_status rig_iteration(rig *rig, mm_manager *manager, rig_mode mode);

/* The same, and does not wait for its end. */
mm_status rig_iteration_ahead(rig *rig, mm_manager *manager, rig_mode mode);

/* Of all persistent tensors of the graph, as random_graph_reference gives it. */
uint64_t rig_digest(const rig *rig, mm_manager *manager);

/* ---- what managers need */

/* What a plan takes, and does in each iteration. */
typedef struct rig_need {
    int64_t device_bytes, pinned_bytes;
    int operations;
    int64_t out_bytes, in_bytes;
} rig_need;

/* Of the policy's plan for the graph alone in an arena, made for that budget, which it may exceed. The plan is proved.
 */
rig_need rig_needs(const mm_graph *graph, const char *policy, int64_t device_bytes, int64_t pinned_bytes);

/* Peak of the policy's plan for the graph alone in an arena, when no budget forces it to do more than it wants. */
int64_t rig_minimum(const mm_graph *graph, const char *policy);

/* A random graph; fails the test if there is none. */
mm_graph *rig_random_graph(uint64_t seed, int layers, int max_channels);

/* A manager, on rig_device_used() unless another is named; fails the test, naming the policy, if there is none. */
mm_manager *rig_manager(const mm_options *options);

#endif

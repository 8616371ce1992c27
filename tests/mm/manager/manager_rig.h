/* SPDX-License-Identifier: MIT */
/* Runs graphs of mock steps (tests/core/random_graph.h) through managers, and, for comparison, in plain memory. */
#ifndef TESTS_MM_MANAGER_MANAGER_RIG_H
#define TESTS_MM_MANAGER_MANAGER_RIG_H

#include "mm/core/facts/facts.h"
#include "tests/core/random_graph.h"
#include "tests/mm/manager/rig_device.h"

/* How steps are computed. If the CPU cannot reach the device's memory, always RIG_STREAM. */
typedef enum rig_mode {
    RIG_INLINE, /* by the caller, between begin and end */
    RIG_STREAM, /* on the compute stream */
    RIG_MIXED,  /* alternately */
    RIG_MODES
} rig_mode;

enum { RIG_AGAIN_MOST = 8 };

/* A graph, and memory for its external tensors. Several managers may run it, one after the other. */
typedef struct rig {
    const mm_graph *graph; /* borrowed */
    uint64_t seed;         /* of the tensors' first values */
    void **external;       /* per tensor; NULL unless external */
    /* Per step: the operands of each time that it runs again in an iteration, and how often it has. A stream's tasks
     * read them until the iteration has ended. */
    random_operand (*again)[RIG_AGAIN_MOST][RANDOM_USES];
    int *times_again;
    random_operand (*operands)[RANDOM_USES]; /* per step; a stream's tasks read them until the iteration has ended */
} rig;

void rig_init(rig *rig, const mm_graph *graph, uint64_t seed);
void rig_fini(rig *rig);

/* Prepares the graph, sets the memory of its external tensors, and fills the persistent ones. */
mm_status rig_bind(const rig *rig, mm_manager *manager);

/* Begins, runs and ends `count` steps from `first` on; returns the first failure. */
mm_status rig_steps(rig *rig, mm_manager *manager, rig_mode mode, int first, int count);

/* A mm_recompute_fn. The rig (ctx) has room for one recomputation of each layer in an iteration. */
mm_status rig_again(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream);

/* Runs an iteration; aborts it if a call fails. */
mm_status rig_iteration(rig *rig, mm_manager *manager, rig_mode mode);

/* Like rig_iteration, but does not wait for the iteration's end. */
mm_status rig_iteration_ahead(rig *rig, mm_manager *manager, rig_mode mode);

/* Checksum of the graph's persistent tensors, to compare with random_graph_reference. */
uint64_t rig_digest(const rig *rig, mm_manager *manager);

/* ---- what managers need */

/* Memory and operations of a plan. */
typedef struct rig_need {
    int64_t device_bytes, pinned_bytes;
    int operations;
    int64_t out_bytes, in_bytes;
} rig_need;

/* What the policy's plan for the graph needs if it is alone in an arena. The plan is made for the given budget, may
 * exceed it, and is proved. */
rig_need rig_needs(const mm_graph *graph, const char *policy, int64_t device_bytes, int64_t pinned_bytes);

/* The device memory that the policy's plan for the graph needs if it is made without a budget. */
int64_t rig_minimum(const mm_graph *graph, const char *policy);

/* A failure fails the test. */
mm_graph *rig_random_graph(uint64_t seed, int layers, int max_channels);
/* The same, but some updates run on the host. */
mm_graph *rig_hosting_graph(uint64_t seed, int layers, int max_channels);

/* Facts as a manager takes them: written to a file, and read from it. The caller destroys them. A failure fails the
 * test. */
mm_facts *rig_facts(const mm_graph *graph, const mm_graph_facts *facts);

/* Runs on rig_device_used() unless the options name a device. A failure fails the test, and names the policy. */
mm_manager *rig_manager(const mm_options *options);

#endif

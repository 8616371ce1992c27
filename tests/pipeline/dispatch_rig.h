/* SPDX-License-Identifier: MIT */
/* Fixture: a dispatcher with all that it needs, and a codec that fails on demand. */
#ifndef TESTS_PIPELINE_DISPATCH_RIG_H
#define TESTS_PIPELINE_DISPATCH_RIG_H

#include <stdatomic.h>

#include "mm/planning/planning.h"
#include "pipeline/dispatch.h"
#include "tests/core/random_graph.h"

typedef enum fault_place {
    FAULT_NOWHERE,
    FAULT_ISSUE, /* the call of the codec fails */
    FAULT_RUN,   /* the enqueued task fails on the stream */
    FAULT_BIT,   /* decodes only: no failure, but one bit of the result is wrong */
    FAULT_COUNT, /* decodes only: no failure, but a damaged chunk is counted, as on a device that cannot fail a task */
} fault_place;

/* Wraps another codec. The `at`-th encode or decode (counted from 0, over all iterations) fails with MM_ERR_DEVICE,
 * "the codec broke". */
typedef struct fault_codec {
    mm_codec base;
    mm_codec *inner;
    fault_place encode, decode;
    int at;
    int64_t encode_ns; /* least time of each encode */
    atomic_int encodes, decodes;
} fault_codec;

typedef struct rig {
    mm_graph *graph;
    mm_device *device;
    mm_pool *pool, *pinned;
    mm_dispatch *dispatch;
    mm_planned planned;
    fault_codec codec;
    mm_codec *codecs[MM_MAX_CODECS];
    mm_execution *execution;
    void **memory; /* per tensor: address of an external or persistent one */
    random_operand (*operands)[RANDOM_USES];
    int64_t step_ns;
} rig;

typedef struct rig_options {
    uint64_t seed;
    int layers;
    const char *policy;  /* its first codec becomes the fault codec */
    int images;          /* of every map; 0: 1 or 2 */
    mm_dtype dtype;      /* of maps */
    int64_t piece_bytes; /* of codes on the link; 0: MM_PIECE_BYTES */
    mm_issue issue;
    bool self_check, measure_times;
    int64_t delay_max_ns;     /* random delay of each task; 0: none */
    int64_t link_bytes_per_s; /* each way; 0: no rate */
    int64_t step_ns;          /* time of each step */
    /* Makes, of the policy's plan, another one that runs instead, and which the check must accept; NULL: the policy's
     * plan runs. */
    mm_plan *(*change)(const mm_plan *plan, const mm_limits *limits);
} rig_options;

/* Creates the graph, an arena of the plan's size, and the program; fills the persistent tensors. */
void rig_init(rig *rig, const rig_options *options);
/* Frees all; fails the test if a thread or a reservation is left. */
void rig_fini(rig *rig);

/* Runs one iteration; returns its first failure, after which it is over. *failed_step (may be NULL): the step whose
 * begin returned the failure; the number of steps if the end of the iteration did. */
mm_status rig_iteration(rig *rig, bool on_stream, int *failed_step);

/* The same on the stream, without waiting for its end (mm_dispatch_end_async). */
mm_status rig_iteration_ahead(rig *rig);

/* Checksum of the persistent tensors, which random_graph_reference gives too. */
uint64_t rig_digest(const rig *rig);
/* The expected checksum after `iterations`. */
uint64_t rig_expected(const rig *rig, uint64_t seed, int iterations);
/* Fills the persistent tensors as at the beginning. */
void rig_refill(rig *rig, uint64_t seed);

#endif

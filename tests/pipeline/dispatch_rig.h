/* A dispatcher with everything around it, and codecs that fail when told to, for tests of failures. */
#ifndef TESTS_PIPELINE_DISPATCH_RIG_H
#define TESTS_PIPELINE_DISPATCH_RIG_H

#include <stdatomic.h>

#include "mm/planning.h"
#include "pipeline/dispatch.h"
#include "tests/core/random_graph.h"

typedef enum fault_place {
    FAULT_NOWHERE,
    FAULT_ISSUE, /* the call itself fails */
    FAULT_RUN,   /* what it enqueued fails on the stream */
    FAULT_BIT,   /* decodes only: all goes well, but a bit of the result is wrong */
} fault_place;

/* Does what another codec does, but for the `at`-th encode or decode (from 0, over all iterations). Its failures are
 * MM_ERR_DEVICE, "the codec broke". */
typedef struct fault_codec {
    mm_codec base;
    mm_codec *inner;
    fault_place encode, decode;
    int at;
    int64_t encode_ns; /* each encode takes this long */
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
    void **memory; /* per tensor: where external and persistent ones lie */
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
    int64_t delay_max_ns; /* of every task, at random; 0: none */
    int64_t step_ns;      /* each step takes this long */
    /* Makes another plan of the policy's, whose place it takes; NULL: that one is run. The test fails if it is wrong. */
    mm_plan *(*change)(const mm_plan *plan, const mm_limits *limits);
} rig_options;

/* Graph, arena of the plan's size, program; persistent tensors filled. */
void rig_init(rig *rig, const rig_options *options);
/* Checks that no thread and no reservation is left. */
void rig_fini(rig *rig);

/* Runs one iteration to its end; its first failure, after which it was aborted or had ended. `failed_step` (may be
 * NULL): the step whose begin told of it; the number of steps if it was the end of the iteration. */
mm_status rig_iteration(rig *rig, bool on_stream, int *failed_step);

/* The same on the stream, without waiting for its end (mm_dispatch_end_async). */
mm_status rig_iteration_ahead(rig *rig);

/* Of the persistent tensors, as random_graph_reference gives it. */
uint64_t rig_digest(const rig *rig);
/* What it must be after `iterations`. */
uint64_t rig_expected(const rig *rig, uint64_t seed, int iterations);
/* Puts the persistent tensors back to what they were in the beginning. */
void rig_refill(rig *rig, uint64_t seed);

#endif

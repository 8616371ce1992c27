/* SPDX-License-Identifier: MIT */
/* A dispatcher's state, which the files of the pipeline share. From the lowest layer up: issue_log.c, running.c,
 * execution_events.c and window.c; tracing.c, runtime_alloc.c and variable_codes.c; allreduce.c and self_check.c;
 * operation.c, execution.c and capture.c; dispatch.c; replay.c. */
#ifndef PIPELINE_DISPATCH_STATE_H
#define PIPELINE_DISPATCH_STATE_H

#include <pthread.h>

#include "pipeline/dispatch.h"
#include "pipeline/issue_log.h"
#include "pipeline/worker.h"

struct mm_dispatch {
    mm_dispatch_config config;
    uint8_t *base, *pinned;
    mm_stream *compute;
    mm_worker *worker[MM_STREAM_COUNT]; /* NULL for compute, and for streams that no operation has used yet */
    mm_codec_counters *counters;        /* in pinned memory, where the device counts */
    mm_execution *execution;            /* of the running iteration; NULL between iterations */
    bool inline_compute;                /* the last step ran without a stream */
    bool in_step;                       /* a step has begun and not ended: a range of the trace is open */
    bool ahead;                         /* iterations that mm_dispatch_end_async has ended may still run */
    int64_t damaged_chunks;             /* part of counters->damaged_chunks that was returned as failures */
    mm_event *behind;                   /* end of the iterations that are ahead; recorded when the next one begins */
    mm_failure ahead_failure;           /* failure of iterations that are ahead, until a call that waits returns it;
                                         * MM_OK: none */
    mm_event *join[MM_STREAM_COUNT];    /* per side stream: recorded when an iteration ends asynchronously */
    mm_stream *sums;                    /* for all-reduces in place; NULL: no plan has had any */
    mm_event *ready, *summed;           /* a group's tensors are ready; all groups so far are reduced */
    bool rehearsed;                     /* the iteration under way is a rehearsal: no all-reduce */
    mm_issue_log *log;                  /* NULL: issued work is not verified */
    bool recording;                     /* the iteration is recorded and does not run */
    mm_timeline *timeline;              /* receives the traced iterations; borrowed; NULL: no tracing */
    int64_t traces;                     /* number of tracings so far */
    int64_t orders;                     /* iterations that were traced or observed so far */
    int64_t ended_ns;                   /* when the latest observed iteration ended; 0: none has */
    mm_execution *traced;               /* list of executions that were traced */
    mm_dispatch_stats before;           /* statistics when the recording began; restored when it ends */
    int64_t waited_ns;                  /* how long the training thread has blocked in the step being begun */
    /* [waiter][waited]: seq of the last piece that the stream `waiter` was made to wait for in this iteration; -1:
     * none. Only the thread that issues on a stream uses its row */
    int32_t joined[MM_STREAM_COUNT][MM_STREAM_COUNT];
    pthread_mutex_t lock;
    pthread_cond_t progress;
    /* under the lock */
    int32_t issued[MM_STREAM_COUNT]; /* seq of the last piece issued */
    mm_failure failure;              /* the iteration's first failure */
    mm_dispatch_stats stats;         /* without the bytes of bodies (mm_variable_codes_add) */
    mm_execution *with_bodies;       /* list of executions whose plans have codes with bodies */
};

/* The stream that a node runs on. */
static inline mm_stream *mm_dispatch_stream(const mm_dispatch *d, const mm_node *node) {
    return node->stream == MM_STREAM_COMPUTE ? d->compute : mm_worker_stream(d->worker[node->stream]);
}

#endif

/* SPDX-License-Identifier: MIT */
/* Private to the pipeline: types and functions that its files share. From the bottom: running.c, execution_events.c and
 * window.c; tracing.c, unplanned.c and bodies.c; exchange.c and self_check.c; operation.c and execution.c; dispatch.c
 * and replay.c. */
#ifndef PIPELINE_INTERNAL_H
#define PIPELINE_INTERNAL_H

#include <pthread.h>

#include "mm/core/plan/program.h"
#include "pipeline/codec/code_block.h"
#include "pipeline/dispatch.h"
#include "pipeline/worker.h"

/* Segments by node: node n has segments[first[n]] to segments[first[n + 1] - 1]. */
typedef struct mm_node_list {
    int32_t *first, *segments;
} mm_node_list;

static inline bool mm_node_list_has(const mm_node_list *list, int node) {
    return list->first[node] < list->first[node + 1];
}

/* Segments that are placed at run time. Bytes include the heap's rounding (mm_heap_class_bytes). */
typedef struct mm_runtime_alloc {
    mm_heap *heap[2];          /* [0]: of codes, [1]: of all else; NULL if there are none */
    int64_t capacity[2];       /* the most bytes alive at once in issue order */
    mm_node_list takes, gives; /* dynamic segments by their first user, and by their last */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    void **address;         /* per segment */
    int64_t held[2];        /* bytes allocated, or promised to a node that is about to allocate */
    uint8_t *served;        /* per node: it was promised its memory */
    int32_t first_unserved; /* all earlier nodes that take memory are served */
    int32_t *late;          /* queue of segments whose last user is a step; freed when the step's event completes */
    int late_head, late_count;
    int64_t frees; /* number of frees so far */
    bool stopped;  /* the iteration has failed: no thread may wait for memory */
} mm_runtime_alloc;

/* State of the self-check: segments to overwrite after each node, and checksums. */
typedef struct mm_self_check {
    int32_t *first; /* per node, n + 1: its segments are dying[first[n]] to dying[first[n + 1] - 1] */
    int32_t *dying;
    uint64_t *before, *after; /* per tensor: checksum of the map as written, and as fetched; exact ways only */
    uint8_t *compared;        /* per tensor: both checksums are taken in this iteration */
} mm_self_check;

/* Codes of the plan that have a body, numbered in the order in which they are encoded. */
typedef struct mm_variable_codes {
    int n;                   /* 0: there are none, and all else is NULL */
    int32_t *of_segment;     /* per segment: number of the code that it is, or that it is the head of; -1: none */
    int32_t *before;         /* per code: the one before it in its pool; -1: it is the first there */
    int32_t *decodes;        /* per code: how often an iteration decodes it */
    mm_body_record *records; /* per code; in pinned memory */
    mm_execution *next;      /* list of the dispatcher's executions with bodies */
} mm_variable_codes;

/* What measures write, in pinned memory. They are all on one stream, so one scratch does. */
typedef struct mm_measured_sums {
    uint8_t scratch[MM_SUMS_SCRATCH_BYTES];
    mm_sums sums[]; /* per tensor */
} mm_measured_sums;

/* Events of one iteration of a program, and what the caller's own clock says. */
typedef struct mm_traced_set {
    mm_event **ends;         /* per piece; those of the first set are the execution's own */
    mm_event *begin;         /* before the first step */
    mm_period *inline_steps; /* per piece: of steps that the caller computed itself; end 0: of no other */
    mm_event **sums;         /* per sum in place: its end; NULL until it is traced */
    int n_sums;              /* that were begun */
    bool is_made;
    int64_t order;  /* number of the iteration that it has, of all that were traced; 0: none, or its times are taken */
    int64_t number; /* of that iteration in the timeline; 0: it is not for a timeline */
} mm_traced_set;

/* Times of a program's latest iterations (mm_execution_observe). */
typedef struct mm_window {
    int most;              /* iterations that it has room for */
    int kept;              /* iterations that it has */
    int fresh;             /* and those of them since it was restarted */
    int next;              /* where the next one goes */
    bool starts;           /* the next iteration is the first since it was restarted */
    int64_t *node_ns;      /* [iteration * nodes + node] */
    int64_t *iteration_ns; /* per iteration: since the end of the one before, of whatever program */
    int64_t *sorted;       /* scratch, per iteration */
} mm_window;

/* Tracing of a program. */
typedef struct mm_traced {
    int64_t run; /* number of the tracing that `plan` is of (mm_dispatch.traces) */
    int plan;    /* in the timeline */
    int now;     /* the set of the iteration under way, or of the last */
    mm_traced_set sets[MM_TRACED_AHEAD];
    mm_period *periods; /* per piece, then per sum in place; scratch */
    mm_execution *next; /* list of the dispatcher's executions that were traced */
} mm_traced;

typedef struct mm_allreduce_call mm_allreduce_call; /* exchange.c */

/* What becomes of tensors that processes share (mm_allreduce_set). */
typedef struct mm_allreduce {
    mm_allreduce_fns fns; /* all NULL: nothing */
    void *ctx;
    mm_allreduce_call *calls;   /* per piece; NULL: the plan copies nothing that is shared */
    mm_allreduce_groups groups; /* of what is shared in place */
    mm_allreduce_part *tensors; /* scratch: of a group */
} mm_allreduce;

struct mm_execution {
    mm_dispatch *dispatch;
    const mm_program *program;
    const mm_plan *plan; /* program->plan */
    const mm_facts *facts;
    mm_codec *const *codecs;
    const mm_code_block *block; /* what codecs read on the device; NULL: no codec reads any */
    int32_t *node_of_step;
    mm_event **events; /* per piece: its end; NULL if it is never waited for nor timed */
    mm_event *begin;   /* recorded before the first step; NULL unless config.measure_times */
    mm_traced *traced; /* NULL: it was never traced */
    mm_window *window; /* NULL: it is not observed */
    int64_t *ended_ns; /* per piece, of the iteration that ended last; NULL if events have no times */
    int64_t *total_ns; /* per node, sum over `timed` iterations; NULL unless config.measure_times */
    int64_t timed;
    bool has_unplanned;
    mm_runtime_alloc unplanned;
    mm_self_check check;
    mm_variable_codes bodies;
    mm_allreduce exchange;
    mm_codec_strips *strips; /* per segment: of the code that a step reads or writes by itself; NULL: there is none */
    mm_measured_sums *measured;     /* NULL: the plan measures nothing */
    mm_replay *recorded;            /* the recording; NULL: none */
    mm_dispatch_stats recorded_did; /* what one replay adds to the statistics */
};

struct mm_dispatch {
    mm_dispatch_config config;
    uint8_t *base, *pinned;
    mm_stream *compute;
    mm_worker *worker[MM_STREAM_COUNT]; /* NULL for compute, and for streams that no operation has used yet */
    mm_codec_counters *counters;        /* in pinned memory, where the device counts */
    mm_execution *execution;            /* of the running iteration; NULL between iterations */
    bool inline_compute;                /* the last step ran without a stream */
    bool in_step;                       /* a step has begun and not ended: a range of the trace is open */
    bool ahead;                         /* streams may still run iterations that have ended */
    int64_t damaged_chunks;             /* of the counters, as far as failures were returned for them */
    mm_event *behind;                   /* recorded when an iteration begins behind those: where they end */
    mm_failure ahead_failure;           /* of those, kept for a call that waits; MM_OK: none */
    mm_event *join[MM_STREAM_COUNT];    /* per side stream: recorded when an iteration ends asynchronously */
    mm_stream *sums;                    /* for sums in place; NULL: no plan has had any */
    mm_event *ready, *summed;           /* what is to be summed is complete; is summed */
    bool rehearsed;                     /* nothing is shared in the iteration under way */
    bool recording;                     /* the iteration is recorded and does not run */
    mm_timeline *timeline;              /* of the tracing under way; borrowed; NULL: none */
    int64_t traces;                     /* number of tracings so far */
    int64_t orders;                     /* iterations that were traced or observed so far */
    int64_t ended_ns;                   /* when the last of those that were observed ended; 0: none has */
    mm_execution *traced;               /* list of executions that were traced */
    mm_dispatch_stats before;           /* statistics when the recording began; it must not change them */
    int64_t waited_ns;                  /* how long the training thread has blocked in the step being begun */
    /* [waiter][waited]: last piece that the stream was made to wait for in this iteration; -1: none. Only the thread
     * that issues on a stream uses its row */
    int32_t joined[MM_STREAM_COUNT][MM_STREAM_COUNT];
    pthread_mutex_t lock;
    pthread_cond_t progress;
    /* under the lock */
    int32_t issued[MM_STREAM_COUNT]; /* seq of the last piece issued */
    mm_failure failure;              /* the iteration's first */
    mm_dispatch_stats stats;         /* without what the records of executions have (mm_variable_codes_add) */
    mm_execution *with_bodies;       /* executions whose plans have codes with bodies */
};

static inline bool mm_node_is_op(const mm_node *node) { return !mm_node_runs_step(node); }

/* The event of a node's end; NULL if it has none. */
static inline mm_event *mm_execution_event(const mm_execution *p, int node) {
    return p->events[p->program->at[p->plan->nodes[node].stream][p->program->last[node]]];
}

/* The stream that a node runs on. */
static inline mm_stream *mm_dispatch_stream(const mm_dispatch *d, const mm_node *node) {
    return node->stream == MM_STREAM_COMPUTE ? d->compute : mm_worker_stream(d->worker[node->stream]);
}

/* Ends the recording that is under way, if any, and drops it. */
void mm_record_abort(mm_dispatch *dispatch);

/* After a drain: adds up the nodes' times if config.measure_times. Returns how long the computation waited for codecs
 * (mm_dispatch_stats.codec_wait_ns); 0 if events have no times. */
int64_t mm_execution_measure(mm_execution *execution);

/* Returns the iteration's failure, and sets its message for the calling thread; MM_OK if there is none. */
mm_status mm_dispatch_failure(mm_dispatch *dispatch);

/* Whether events know when they completed. */
bool mm_dispatch_is_timed(const mm_dispatch *dispatch);
/* Creates the events of an iteration that are not there: of pieces that others wait for, that are timed or freed
 * after. */
MM_CHECKED mm_status mm_execution_events(mm_execution *execution, mm_event **events);

/* ---- window.c */
/* Takes the times of an iteration, per piece. */
void mm_window_add(mm_execution *execution, const mm_period *periods);

/* ---- tracing.c: no-ops unless iterations are traced or observed. */
void mm_traced_fini(mm_execution *execution);
/* An iteration begins: it gets events of its own. */
MM_CHECKED mm_status mm_traced_begin(mm_execution *execution);
/* A piece begins, when all waits of its stream are enqueued. stream NULL: the caller computes it. */
MM_CHECKED mm_status mm_traced_piece(mm_execution *execution, int piece, mm_stream *stream);
/* The caller has computed a step. */
void mm_traced_step_end(mm_execution *execution, int piece);
/* The next sum in place is enqueued. */
MM_CHECKED mm_status mm_traced_sum(mm_execution *execution, mm_stream *stream);
/* The iteration has ended well, or is left running. */
void mm_traced_end(mm_execution *execution);
/* All streams are idle: the times of what has ended are taken; what has not is lost. */
void mm_traced_collect(mm_dispatch *dispatch);

/* ---- operation.c: enqueues a piece of an operation. */
MM_CHECKED mm_status mm_operation_enqueue(mm_dispatch *dispatch, const mm_piece *piece, mm_stream *stream);

/* ---- bodies.c: codes of variable size. */
MM_CHECKED mm_status mm_variable_codes_init(mm_execution *execution);
/* Their sizes stay in the dispatcher's statistics. */
void mm_variable_codes_fini(mm_execution *execution);
/* Where the body of the code in a segment of the running program goes or lies; NULL: the code has none. */
const mm_code_body *mm_body_of(const mm_dispatch *dispatch, int code, mm_code_body *body_out);
/* Adds what bodies have taken so far. Under the lock. */
void mm_variable_codes_add(const mm_dispatch *dispatch, mm_dispatch_stats *stats);

/* ---- exchange.c: tensors that processes share. */
MM_CHECKED mm_status mm_allreduce_init(mm_execution *execution);
void mm_allreduce_fini(mm_execution *execution);
/* Whether functions of the caller's are called which cannot be recorded. */
bool mm_allreduce_is_called(const mm_execution *execution);
/* Behind a copy of a shared tensor to pinned memory, and before the one back: enqueues the caller's function, or waits
 * for the sum where functions of streams may not. */
MM_CHECKED mm_status mm_allreduce_call_async(mm_dispatch *dispatch, const mm_piece *piece, mm_stream *stream);
/* Before a step: what it updates with is summed in place. stream NULL: blocks until then. */
MM_CHECKED mm_status mm_allreduce_step_begin(mm_dispatch *dispatch, int node, mm_stream *stream);
/* Behind a step: lets the caller enqueue the sums that may begin. */
MM_CHECKED mm_status mm_allreduce_step_end(mm_dispatch *dispatch, int node);

/* ---- unplanned.c: segments placed at run time. No-ops unless execution->has_unplanned. */
MM_CHECKED mm_status mm_runtime_alloc_init(mm_execution *execution);
void mm_runtime_alloc_fini(mm_execution *execution);
/* Allocates the dynamic segments that the node is the first to use. Blocks until there is room for them beside the
 * segments that earlier nodes have still to take. */
MM_CHECKED mm_status mm_runtime_alloc_take(mm_execution *execution, int node);
/* Frees the dynamic segments that the node is the last to use: after an operation, which has ended, at once; after a
 * step, when its event completes. */
void mm_runtime_alloc_give(mm_execution *execution, int node);
/* Whether the node uses any dynamic segment. */
bool mm_runtime_alloc_uses(const mm_execution *execution, int node);
/* The iteration has failed: threads that wait for memory return its failure. */
void mm_runtime_alloc_stop(mm_execution *execution);
/* After a drain: frees all segments. */
void mm_runtime_alloc_reset(mm_execution *execution);

/* ---- self_check.c: no-ops unless config.self_check. */
MM_CHECKED mm_status mm_self_check_init(mm_execution *execution);
void mm_self_check_fini(mm_execution *execution);
/* Before an operation that evicts a map: enqueues the checksum of the map. */
MM_CHECKED mm_status mm_self_check_before(mm_execution *execution, int node);
/* After a node, before its event: enqueues the checksum of a fetched map, and fills over the segments that the node
 * used last. */
MM_CHECKED mm_status mm_self_check_after(mm_execution *execution, int node);
/* After a drain: compares the checksums. MM_ERR_DEVICE: a map came back different. */
MM_CHECKED mm_status mm_self_check_end(mm_execution *execution);

#endif

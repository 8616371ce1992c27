/* SPDX-License-Identifier: MIT */
/* Private to the pipeline: types and functions that its files share. From the lowest layer up: running.c,
 * execution_events.c and window.c; tracing.c, runtime_alloc.c and variable_codes.c; allreduce.c and self_check.c;
 * operation.c and execution.c; dispatch.c and replay.c. */
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
    mm_heap *heap[2];          /* [0]: for codes, [1]: for other segments; NULL: none */
    int64_t capacity[2];       /* the most bytes alive at once in issue order */
    mm_node_list takes, gives; /* dynamic segments by first user (takes) and by last user (gives) */
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
    uint64_t *before, *after; /* per tensor: checksum of the map before eviction, and as fetched; only of maps that come
                               * back exactly */
    uint8_t *compared;        /* per tensor: both checksums are taken in this iteration */
} mm_self_check;

/* Codes of the plan that have a body (code_body.h), numbered in the order in which they are encoded. */
typedef struct mm_variable_codes {
    int n;                   /* 0: there are none, and all else is NULL */
    int32_t *of_segment;     /* per segment: number of the code whose head lies in it; -1: none */
    int32_t *before;         /* per code: the previous code in its pool; -1: it is the first there */
    int32_t *decodes;        /* per code: how often an iteration decodes it */
    mm_body_record *records; /* per code; in pinned memory */
    mm_execution *next;      /* list of the dispatcher's executions with bodies */
} mm_variable_codes;

/* Results of the plan's measures, in pinned memory. All measures run on one stream, so they share one scratch. */
typedef struct mm_measured_sums {
    uint8_t scratch[MM_SUMS_SCRATCH_BYTES];
    mm_sums sums[]; /* per tensor */
} mm_measured_sums;

/* Events of one iteration of a program, and the times of steps that the caller computed without a stream. */
typedef struct mm_traced_set {
    mm_event **ends;         /* per piece: its end; the first set has the execution's own events */
    mm_event *begin;         /* before the first step */
    mm_period *inline_steps; /* per piece: time of a step without a stream; end 0: not such a step */
    mm_event **sums;         /* per all-reduce in place: its end; NULL until it is traced */
    int n_sums;              /* all-reduces in place that were begun */
    bool is_made;
    int64_t order;  /* its iteration's number among all that were traced; 0: no iteration, or its times are taken */
    int64_t number; /* its iteration's number in the timeline; 0: it is not for a timeline */
} mm_traced_set;

/* Times of a program's latest iterations (mm_execution_observe). */
typedef struct mm_window {
    int most;              /* capacity, in iterations */
    int kept;              /* iterations stored */
    int fresh;             /* those of them since the last restart */
    int next;              /* slot of the next iteration */
    bool starts;           /* the next iteration is the first since the last restart */
    int64_t *node_ns;      /* [iteration * nodes + node] */
    int64_t *iteration_ns; /* per iteration: time since the previous one ended, of any program */
    int64_t *sorted;       /* scratch, per iteration */
} mm_window;

/* Tracing of a program. */
typedef struct mm_traced {
    int64_t run; /* number of the tracing (mm_dispatch.traces) that `plan` belongs to */
    int plan;    /* index of the program in the timeline */
    int now;     /* index of the set of the iteration under way, or else of the latest */
    mm_traced_set sets[MM_TRACED_AHEAD];
    mm_period *periods; /* scratch: per piece, then per all-reduce in place */
    mm_execution *next; /* list of the dispatcher's executions that were traced */
} mm_traced;

typedef struct mm_allreduce_call mm_allreduce_call; /* allreduce.c */

/* All-reduce of the plan's shared tensors by the caller's functions (mm_allreduce_set). */
typedef struct mm_allreduce {
    mm_allreduce_fns fns; /* all NULL: no all-reduce */
    void *ctx;
    mm_allreduce_call *calls;   /* per piece; NULL: the plan copies no shared tensor */
    mm_allreduce_groups groups; /* tensors that are all-reduced in place, by group */
    mm_allreduce_part *tensors; /* scratch: the tensors of one group */
} mm_allreduce;

struct mm_execution {
    mm_dispatch *dispatch;
    const mm_program *program;
    const mm_plan *plan; /* program->plan */
    const mm_facts *facts;
    mm_codec *const *codecs;
    const mm_code_block *block; /* numbers that codecs read on the device; NULL: no codec reads any */
    int32_t *node_of_step;
    mm_event **events; /* per piece: its end; NULL if it is never waited for nor timed */
    mm_event *begin;   /* recorded before the first step; NULL unless config.measure_times */
    mm_traced *traced; /* NULL: it was never traced */
    mm_window *window; /* NULL: it is not observed */
    int64_t *ended_ns; /* per piece, of the iteration that ended last; NULL if events have no times */
    int64_t *total_ns; /* per node, sum over `timed` iterations; NULL unless config.measure_times */
    int64_t timed;
    bool has_unplanned;
    mm_runtime_alloc runtime_alloc;
    mm_self_check check;
    mm_variable_codes variable_codes;
    mm_allreduce allreduce;
    mm_codec_strips *strips;    /* per segment: strips of a code that a step reads or writes without its codec; NULL:
                              * none */
    mm_measured_sums *measured; /* NULL: the plan measures nothing */
    mm_replay *recorded;        /* the recording; NULL: none */
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
    bool ahead;                         /* iterations that mm_dispatch_end_async has ended may still run */
    int64_t damaged_chunks;             /* part of counters->damaged_chunks that was returned as failures */
    mm_event *behind;                   /* end of those iterations; recorded when the next one begins */
    mm_failure ahead_failure;           /* their failure, until a call that waits returns it; MM_OK: none */
    mm_event *join[MM_STREAM_COUNT];    /* per side stream: recorded when an iteration ends asynchronously */
    mm_stream *sums;                    /* for all-reduces in place; NULL: no plan has had any */
    mm_event *ready, *summed;           /* a group's tensors are ready; all groups so far are reduced */
    bool rehearsed;                     /* the iteration under way is a rehearsal: no all-reduce */
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
/* Creates the missing events of an iteration: of pieces that others wait for, that are timed, or after which memory is
 * freed. */
MM_CHECKED mm_status mm_execution_events(mm_execution *execution, mm_event **events);

/* ---- window.c */
/* Adds an iteration. periods: times of its pieces. */
void mm_window_add(mm_execution *execution, const mm_period *periods);

/* ---- tracing.c: no-ops unless iterations are traced or observed. */
void mm_traced_fini(mm_execution *execution);
/* An iteration begins: it gets events of its own. */
MM_CHECKED mm_status mm_traced_begin(mm_execution *execution);
/* Call it before a piece, when all waits of its stream are enqueued. stream NULL: the caller computes it. */
MM_CHECKED mm_status mm_traced_piece(mm_execution *execution, int piece, mm_stream *stream);
/* Call it after a step. */
void mm_traced_step_end(mm_execution *execution, int piece);
/* Call it when the next all-reduce in place is enqueued. */
MM_CHECKED mm_status mm_traced_sum(mm_execution *execution, mm_stream *stream);
/* Call it when the iteration has ended without failure, or is left running. */
void mm_traced_end(mm_execution *execution);
/* Call it when all streams are idle. Takes the times of iterations that have ended, and drops the others. */
void mm_traced_collect(mm_dispatch *dispatch);

/* ---- operation.c: enqueues a piece of an operation. */
MM_CHECKED mm_status mm_operation_enqueue(mm_dispatch *dispatch, const mm_piece *piece, mm_stream *stream);

/* ---- variable_codes.c: codes of variable size. */
MM_CHECKED mm_status mm_variable_codes_init(mm_execution *execution);
/* The dispatcher's statistics still count the bytes of these codes. */
void mm_variable_codes_fini(mm_execution *execution);
/* Where the body of a code lies, or will be written. code: a segment of the running program. NULL: the code has no
 * body. */
const mm_code_body *mm_body_of(const mm_dispatch *dispatch, int code, mm_code_body *body_out);
/* Adds the bytes of all bodies encoded so far. Call it under the lock. */
void mm_variable_codes_add(const mm_dispatch *dispatch, mm_dispatch_stats *stats);

/* ---- allreduce.c: all-reduce of shared tensors. */
MM_CHECKED mm_status mm_allreduce_init(mm_execution *execution);
void mm_allreduce_fini(mm_execution *execution);
/* Whether the plan calls functions of the caller's that cannot be recorded (fns.sent, fns.await). */
bool mm_allreduce_is_called(const mm_execution *execution);
/* Call it after a copy of a shared tensor to pinned memory (enqueues fns.sent), and before the copy back (enqueues
 * fns.await, or, if tasks of the device may not block, waits on the calling thread). */
MM_CHECKED mm_status mm_allreduce_call_async(mm_dispatch *dispatch, const mm_piece *piece, mm_stream *stream);
/* Call it before a step. If the step uses tensors that are all-reduced in place, makes the stream wait for them; stream
 * NULL: blocks until they are. */
MM_CHECKED mm_status mm_allreduce_step_begin(mm_dispatch *dispatch, int node, mm_stream *stream);
/* Call it after a step: lets the caller enqueue the all-reduces in place that may begin. */
MM_CHECKED mm_status mm_allreduce_step_end(mm_dispatch *dispatch, int node);

/* ---- runtime_alloc.c: segments placed at run time. No-ops unless execution->has_unplanned. */
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

/* What dispatch.c, operation.c, execution.c, replay.c, unplanned.c and self_check.c share. */
#ifndef PIPELINE_INTERNAL_H
#define PIPELINE_INTERNAL_H

#include <pthread.h>

#include "mm/core/program.h"
#include "pipeline/dispatch.h"
#include "pipeline/worker.h"

/* Segments by node: those of node n are segments[first[n]] to segments[first[n + 1] - 1]. */
typedef struct mm_node_list {
    int32_t *first, *segments;
} mm_node_list;

static inline bool mm_node_list_has(const mm_node_list *list, int node) {
    return list->first[node] < list->first[node + 1];
}

/* Segments that are placed at run time. Bytes are as the heaps count them. */
typedef struct mm_unplanned {
    mm_heap *heap[2];          /* of codes, of the rest; NULL if empty */
    int64_t capacity[2];       /* what the plan has alive at once at most */
    mm_node_list takes, gives; /* dynamic segments by their first and their last user */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    void **address;         /* per segment */
    int64_t held[2];        /* allocated, or promised to a node that is about to allocate */
    uint8_t *served;        /* per node: it was promised its memory */
    int32_t first_unserved; /* all takers before this node were */
    int32_t *late;          /* queue of segments whose last user is a step: freed once its event is complete */
    int late_head, late_count;
    int64_t frees;
    bool stopped; /* the iteration has failed: nobody may wait */
} mm_unplanned;

/* Segments to poison once a node has ended. */
typedef struct mm_self_check {
    int32_t *first; /* per node, n + 1: range of `dying` */
    int32_t *dying;
    uint64_t *before, *after; /* per tensor: checksum of what was encoded, and decoded; lossless codecs only */
    uint8_t *compared;        /* per tensor: both are wanted */
} mm_self_check;

struct mm_execution {
    mm_dispatch *dispatch;
    const mm_program *program; /* what is issued */
    const mm_plan *plan;       /* the program's */
    const mm_facts *facts;
    mm_codec *const *codecs;
    int32_t *node_of_step;
    mm_event **events; /* per piece; NULL where nobody asks for it */
    mm_event *begin;   /* before the first step; NULL unless config.measure_times */
    int64_t *ended_ns; /* per piece, of the iteration that has ended; NULL if events have no times */
    int64_t *total_ns; /* per node, of `timed` iterations; NULL unless config.measure_times, too */
    int64_t timed;
    bool has_unplanned;
    mm_unplanned unplanned;
    mm_self_check check;
    mm_replay *recorded;            /* an iteration's work; NULL: none */
    mm_dispatch_stats recorded_did; /* what it adds to the operations' figures */
};

struct mm_dispatch {
    mm_dispatch_config config;
    uint8_t *base, *staging;
    mm_stream *compute;
    mm_worker *worker[MM_STREAM_COUNT]; /* NULL for compute, and for streams that no operation uses yet */
    mm_codec_counters *counters;        /* pinned: devices count in it */
    mm_execution *execution;            /* of the running iteration */
    bool inline_compute;                /* the last step ran without a stream */
    bool in_step;                       /* one was begun and not ended: a range of the trace is open */
    bool ahead;                         /* streams may still run iterations that have ended */
    mm_event *join[MM_STREAM_COUNT];    /* of each side stream: recorded where an iteration ends without a drain */
    bool recording;                     /* the iteration does not run */
    mm_dispatch_stats before;           /* with recording: figures that it must not change */
    int64_t waited_ns;                  /* the training thread, in the step being begun */
    /* the piece that the stream already waited for in this iteration: [waiter][waited]; each row is its issuer's own */
    int32_t joined[MM_STREAM_COUNT][MM_STREAM_COUNT];
    pthread_mutex_t lock;
    pthread_cond_t progress;
    /* under the lock */
    int32_t issued[MM_STREAM_COUNT]; /* seq of the last piece issued */
    mm_failure failure;              /* the iteration's first */
    mm_dispatch_stats stats;
};

static inline bool mm_node_is_op(const mm_node *node) { return !mm_node_runs_step(node); }

/* The event of a node's end; NULL if nobody asks for it. */
static inline mm_event *mm_execution_event(const mm_execution *p, int node) {
    return p->events[p->program->at[p->plan->nodes[node].stream][p->program->last[node]]];
}

/* The stream that a node runs on. */
static inline mm_stream *mm_dispatch_stream(const mm_dispatch *d, const mm_node *node) {
    return node->stream == MM_STREAM_COMPUTE ? d->compute : mm_worker_stream(d->worker[node->stream]);
}

/* Ends a recording, if one is under way, and drops it. */
void mm_record_abort(mm_dispatch *dispatch);

/* Drained: adds what the iteration's nodes took, if it is to be measured. Returns how long the computation waited for a
 * codec that was at work; 0 where events have no times. */
int64_t mm_execution_measure(mm_execution *execution);

/* The iteration's failure, told to this thread; MM_OK if there is none. */
mm_status mm_dispatch_failure(mm_dispatch *dispatch);

/* ---- operation.c: enqueues a piece's work. */
MM_CHECKED mm_status mm_operation_enqueue(mm_dispatch *dispatch, const mm_piece *piece, mm_stream *stream);

/* ---- unplanned.c: nothing unless execution->has_unplanned */
MM_CHECKED mm_status mm_unplanned_init(mm_execution *execution);
void mm_unplanned_fini(mm_execution *execution);
/* Memory for the dynamic segments whose first user the node is. Waits for frees that are under way, and for earlier
 * nodes to take theirs. */
MM_CHECKED mm_status mm_unplanned_take(mm_execution *execution, int node);
/* A node has been issued; an operation that uses dynamic segments has been waited for too. Frees what it used last. */
void mm_unplanned_give(mm_execution *execution, int node);
/* Whether the node uses any dynamic segment. */
bool mm_unplanned_uses(const mm_execution *execution, int node);
/* The iteration has failed: whoever waits for memory is told. */
void mm_unplanned_stop(mm_execution *execution);
/* Everything is drained: frees all. */
void mm_unplanned_reset(mm_execution *execution);

/* ---- self_check.c: nothing unless config.self_check */
MM_CHECKED mm_status mm_self_check_init(mm_execution *execution);
void mm_self_check_fini(mm_execution *execution);
/* Enqueues, after a node's work and before its event: checksums, and poison over what it used last. */
MM_CHECKED mm_status mm_self_check_after(mm_execution *execution, int node);
/* Enqueues, before an encode's work: the checksum of what goes in. */
MM_CHECKED mm_status mm_self_check_before(mm_execution *execution, int node);
/* Drained: compares. */
MM_CHECKED mm_status mm_self_check_end(mm_execution *execution);

#endif

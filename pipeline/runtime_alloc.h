/* SPDX-License-Identifier: MIT */
/* Segments placed at run time. The functions do nothing unless execution->has_unplanned. */
#ifndef PIPELINE_RUNTIME_ALLOC_H
#define PIPELINE_RUNTIME_ALLOC_H

#include <pthread.h>

#include "pipeline/dispatch.h"

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

static inline bool mm_node_is_op(const mm_node *node) { return !mm_node_runs_step(node); }

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

#endif

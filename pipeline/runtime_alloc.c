/* SPDX-License-Identifier: MIT */
/* Segments that are placed at run time: the unoptimised workflow, which allocates and frees for each tensor.
 *
 * Threads do not deadlock, because memory is promised to nodes, and the plan has room for all if it is promised in
 * issue order. A node may get its promise before an earlier node only if the earlier node's segments still fit. So the
 * earliest node without a promise waits only for nodes that have all their memory, in whatever order threads run. */
#include "pipeline/runtime_alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buffers/layout/heap_size.h"
#include "mm/core/plan/plan_touch.h"
#include "mm/core/size.h"
#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"
#include "pipeline/running.h"

/* How long to wait for a free before a fragmented heap counts as full. Chosen: far above the time of a step. */
enum { PATIENCE_S = 20 };

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for a plan's run-time allocation"); }

/* ---------------------------------------------------------------- life */

static mm_status open_heaps(mm_execution *p) {
    const mm_plan *plan = p->plan;
    mm_pool *pool = p->dispatch->config.pool;
    int64_t codes = plan->heap_code_bytes, rest = plan->heap_bytes - codes;
    if (codes > 0) MM_TRY(mm_heap_open(pool, plan->heap_offset, codes, &p->runtime_alloc.heap[0]));
    return rest > 0 ? mm_heap_open(pool, plan->heap_offset + codes, rest, &p->runtime_alloc.heap[1]) : MM_OK;
}

static int part_of(const mm_execution *p, int segment) {
    return p->plan->segments[segment].content == MM_CONTENT_CODED ? 0 : 1;
}

static int64_t class_bytes(const mm_execution *p, int segment) {
    return mm_heap_class_bytes(p->plan->segments[segment].bytes);
}

/* Lists the dynamic segments by the node that uses them first, or last. */
static mm_status list_segments(const mm_plan *plan, bool last, mm_node_list *list) {
    list->first = calloc((size_t)plan->n_nodes + 2, sizeof *list->first);
    list->segments = malloc(((size_t)plan->n_segments + 1) * sizeof *list->segments);
    if (!list->first || !list->segments) return no_memory();
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < plan->n_segments; i++) {
            const mm_segment *s = &plan->segments[i];
            int node = last ? s->last_node : s->first_node;
            if (!s->dynamic || node < 0) continue;
            if (pass == 0)
                list->first[node + 2]++;
            else
                list->segments[list->first[node + 1]++] = i;
        }
        for (int i = 0; pass == 0 && i < plan->n_nodes; i++) list->first[i + 2] += list->first[i + 1];
    }
    return MM_OK;
}

/* The most bytes alive at once in issue order. */
static void find_capacity(mm_execution *p) {
    mm_runtime_alloc *u = &p->runtime_alloc;
    int64_t live[2] = {0, 0};
    for (int n = 0; n < p->plan->n_nodes; n++) {
        for (int i = u->takes.first[n]; i < u->takes.first[n + 1]; i++) {
            int part = part_of(p, u->takes.segments[i]);
            live[part] += class_bytes(p, u->takes.segments[i]);
            if (live[part] > u->capacity[part]) u->capacity[part] = live[part];
        }
        for (int i = u->gives.first[n]; i < u->gives.first[n + 1]; i++)
            live[part_of(p, u->gives.segments[i])] -= class_bytes(p, u->gives.segments[i]);
    }
}

mm_status mm_runtime_alloc_init(mm_execution *p) {
    mm_runtime_alloc *u = &p->runtime_alloc;
    if (!p->has_unplanned) return MM_OK;
    u->address = calloc((size_t)p->plan->n_segments + 1, sizeof *u->address);
    if (!u->address) return no_memory();
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->changed, NULL);
    u->late = malloc(((size_t)p->plan->n_segments + 1) * sizeof *u->late);
    u->served = calloc((size_t)p->plan->n_nodes + 1, sizeof *u->served);
    if (!u->late || !u->served) return no_memory();
    MM_TRY(list_segments(p->plan, false, &u->takes));
    MM_TRY(list_segments(p->plan, true, &u->gives));
    find_capacity(p);
    return open_heaps(p);
}

void mm_runtime_alloc_fini(mm_execution *p) {
    mm_runtime_alloc *u = &p->runtime_alloc;
    if (!u->address) return;
    if (u->served) mm_runtime_alloc_reset(p);
    for (int i = 0; i < 2; i++) mm_heap_close(u->heap[i]);
    pthread_cond_destroy(&u->changed);
    pthread_mutex_destroy(&u->lock);
    free(u->takes.first);
    free(u->takes.segments);
    free(u->gives.first);
    free(u->gives.segments);
    free(u->address);
    free(u->late);
    free(u->served);
}

bool mm_runtime_alloc_uses(const mm_execution *p, int node) {
    if (!p->has_unplanned) return false;
    mm_touch touch;
    for (int t = 0; mm_node_next_touch(p->plan, &p->plan->nodes[node], &t, &touch);)
        if (p->plan->segments[touch.segment].dynamic) return true;
    return false;
}

/* ---------------------------------------------------------------- give */

/* Called without the lock, because it takes as long as a free on the device (mm_device_charge_alloc). */
static void free_segment(mm_execution *p, int segment) {
    mm_runtime_alloc *u = &p->runtime_alloc;
    pthread_mutex_lock(&u->lock);
    void *memory = u->address[segment];
    u->address[segment] = NULL;
    pthread_mutex_unlock(&u->lock);
    mm_heap_free(u->heap[part_of(p, segment)], memory);
    pthread_mutex_lock(&u->lock);
    u->held[part_of(p, segment)] -= class_bytes(p, segment);
    u->frees++;
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
}

/* Frees the oldest segment of `late`, once its step has ended. Returns false if there is none, or if the step still
 * runs and `wait` is false. Waits without the lock. */
static bool free_late(mm_execution *p, bool wait) {
    mm_runtime_alloc *u = &p->runtime_alloc;
    pthread_mutex_lock(&u->lock);
    int segment = u->late_head < u->late_count ? u->late[u->late_head] : -1;
    mm_event *event = segment < 0 ? NULL : mm_execution_event(p, p->plan->segments[segment].last_node);
    bool mine = segment >= 0 && (wait || mm_event_done(event));
    u->late_head += mine;
    pthread_mutex_unlock(&u->lock);
    if (!mine) return false;
    /* A step that failed has ended too; those that wait for its result return the failure. */
    mm_status ended = mm_event_sync(event);
    (void)ended;
    free_segment(p, segment);
    return true;
}

void mm_runtime_alloc_give(mm_execution *p, int node) {
    if (!p->has_unplanned) return;
    mm_runtime_alloc *u = &p->runtime_alloc;
    for (int i = u->gives.first[node]; i < u->gives.first[node + 1]; i++) {
        if (mm_node_is_op(&p->plan->nodes[node])) {
            free_segment(p, u->gives.segments[i]);
            continue;
        }
        pthread_mutex_lock(&u->lock);
        u->late[u->late_count++] = u->gives.segments[i];
        pthread_cond_broadcast(&u->changed);
        pthread_mutex_unlock(&u->lock);
    }
}

void mm_runtime_alloc_stop(mm_execution *p) {
    if (!p->has_unplanned) return;
    mm_runtime_alloc *u = &p->runtime_alloc;
    pthread_mutex_lock(&u->lock);
    u->stopped = true;
    pthread_cond_broadcast(&u->changed);
    pthread_mutex_unlock(&u->lock);
}

void mm_runtime_alloc_reset(mm_execution *p) {
    if (!p->has_unplanned) return;
    mm_runtime_alloc *u = &p->runtime_alloc;
    for (int i = 0; i < p->plan->n_segments; i++)
        if (u->address[i]) free_segment(p, i);
    memset(u->served, 0, (size_t)p->plan->n_nodes);
    u->held[0] = u->held[1] = 0; /* free_segment has not subtracted what was promised but never allocated */
    u->first_unserved = u->late_head = u->late_count = 0;
    u->stopped = false;
}

/* ---------------------------------------------------------------- take */

static void add_takes(const mm_execution *p, int node, int64_t bytes[2]) {
    const mm_node_list *takes = &p->runtime_alloc.takes;
    for (int i = takes->first[node]; i < takes->first[node + 1]; i++)
        bytes[part_of(p, takes->segments[i])] += class_bytes(p, takes->segments[i]);
}

/* Promises the node its memory, if the segments that earlier nodes have still to take fit beside it. Call it under the
 * lock. */
static bool promise(mm_execution *p, int node) {
    mm_runtime_alloc *u = &p->runtime_alloc;
    int64_t own[2] = {0, 0}, earlier[2] = {0, 0};
    add_takes(p, node, own);
    for (int i = u->first_unserved; i < node; i++)
        if (!u->served[i]) add_takes(p, i, earlier);
    for (int part = 0; part < 2; part++)
        if (own[part] > 0 && u->held[part] + earlier[part] + own[part] > u->capacity[part]) return false;
    for (int part = 0; part < 2; part++) u->held[part] += own[part];
    u->served[node] = 1;
    while (u->first_unserved < p->plan->n_nodes &&
           (u->served[u->first_unserved] || !mm_node_list_has(&u->takes, u->first_unserved)))
        u->first_unserved++;
    return true;
}

static mm_status wait_for_promise(mm_execution *p, int node) {
    mm_runtime_alloc *u = &p->runtime_alloc;
    for (;;) {
        pthread_mutex_lock(&u->lock);
        bool promised = promise(p, node);
        while (!promised && !u->stopped && u->late_head == u->late_count) {
            pthread_cond_wait(&u->changed, &u->lock);
            promised = promise(p, node);
        }
        bool stopped = u->stopped;
        pthread_mutex_unlock(&u->lock);
        if (stopped) return mm_dispatch_failure(p->dispatch);
        if (promised) return MM_OK;
        free_late(p, true);
    }
}

/* Called when a segment does not fit though its memory is promised: free memory may be fragmented. Blocks until a
 * segment has been freed since u->frees was `frees`, or can be freed. */
static mm_status wait_for_free(mm_execution *p, int segment, int64_t frees) {
    mm_runtime_alloc *u = &p->runtime_alloc;
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += PATIENCE_S;
    int error = 0;
    pthread_mutex_lock(&u->lock);
    while (u->frees == frees && u->late_head == u->late_count && !u->stopped && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&u->changed, &u->lock, &deadline);
    bool stopped = u->stopped;
    pthread_mutex_unlock(&u->lock);
    if (stopped) return mm_dispatch_failure(p->dispatch);
    if (error != ETIMEDOUT) return MM_OK;
    return mm_fail(MM_ERR_NOMEM, "no room for %s in a heap with %s in use, and nothing was freed for %d s",
                   MM_SIZE_TEXT(p->plan->segments[segment].bytes),
                   MM_SIZE_TEXT(mm_heap_used(u->heap[part_of(p, segment)])), PATIENCE_S);
}

static void count_alloc(mm_dispatch *d) {
    pthread_mutex_lock(&d->lock);
    d->stats.unplanned_allocs++;
    pthread_mutex_unlock(&d->lock);
}

static mm_status take_segment(mm_execution *p, int segment) {
    mm_runtime_alloc *u = &p->runtime_alloc;
    for (;;) {
        pthread_mutex_lock(&u->lock);
        int64_t frees = u->frees;
        pthread_mutex_unlock(&u->lock);
        void *memory;
        mm_status status = mm_heap_alloc(u->heap[part_of(p, segment)], p->plan->segments[segment].bytes, &memory);
        if (status == MM_OK) {
            pthread_mutex_lock(&u->lock);
            u->address[segment] = memory;
            pthread_mutex_unlock(&u->lock);
            count_alloc(p->dispatch);
            return MM_OK;
        }
        /* If the heap is empty, waiting for a free is of no use. */
        if (status != MM_ERR_NOMEM || mm_heap_used(u->heap[part_of(p, segment)]) == 0) return status;
        if (!free_late(p, true)) MM_TRY(wait_for_free(p, segment, frees));
    }
}

mm_status mm_runtime_alloc_take(mm_execution *p, int node) {
    if (!p->has_unplanned) return MM_OK;
    mm_runtime_alloc *u = &p->runtime_alloc;
    if (!mm_node_list_has(&u->takes, node)) return MM_OK;
    while (free_late(p, false)) continue;
    MM_TRY(wait_for_promise(p, node));
    for (int i = u->takes.first[node]; i < u->takes.first[node + 1]; i++) MM_TRY(take_segment(p, u->takes.segments[i]));
    return MM_OK;
}

/* Segments that are placed at run time: the unoptimised workflow, which allocates and frees for each tensor. Capacity
 * is planned for the most that is alive at once in issue order, so an allocation that finds no room waits for frees
 * that are under way; it fails only if nothing is freed for long. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipeline/internal.h"

enum { PATIENCE_S = 20 };

static mm_status open_heaps(mm_program *p) {
    const mm_plan *plan = p->plan;
    mm_pool *pool = p->dispatch->config.pool;
    int64_t codes = plan->heap_code_bytes, rest = plan->heap_bytes - codes;
    if (codes > 0) MM_TRY(mm_heap_open(pool, plan->heap_offset, codes, &p->unplanned.heap[0]));
    return rest > 0 ? mm_heap_open(pool, plan->heap_offset + codes, rest, &p->unplanned.heap[1]) : MM_OK;
}

static mm_heap *heap_of(const mm_program *p, int segment) {
    return p->unplanned.heap[p->plan->segments[segment].content != MM_CONTENT_CODED];
}

mm_status mm_unplanned_init(mm_program *p) {
    mm_unplanned *u = &p->unplanned;
    if (!p->has_unplanned) return MM_OK;
    size_t n = (size_t)p->plan->n_segments + 1;
    void **address = calloc(n, sizeof *address);
    int32_t *late = malloc(n * sizeof *late);
    mm_status status = address && late ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a program");
    if (status == MM_OK) status = open_heaps(p);
    if (status != MM_OK) {
        for (int i = 0; i < 2; i++) mm_heap_close(u->heap[i]);
        u->heap[0] = u->heap[1] = NULL;
        free(address);
        free(late);
        return status;
    }
    u->address = address;
    u->late = late;
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->freed, NULL);
    return MM_OK;
}

void mm_unplanned_fini(mm_program *p) {
    mm_unplanned *u = &p->unplanned;
    if (!u->address) return;
    mm_unplanned_reset(p);
    for (int i = 0; i < 2; i++) mm_heap_close(u->heap[i]);
    pthread_cond_destroy(&u->freed);
    pthread_mutex_destroy(&u->lock);
    free(u->address);
    free(u->late);
}

/* Called without the lock: frees charge the device's price. */
static void free_segment(mm_program *p, int segment) {
    mm_unplanned *u = &p->unplanned;
    pthread_mutex_lock(&u->lock);
    void *memory = u->address[segment];
    u->address[segment] = NULL;
    pthread_mutex_unlock(&u->lock);
    mm_heap_free(heap_of(p, segment), memory);
    pthread_mutex_lock(&u->lock);
    u->frees++;
    pthread_cond_broadcast(&u->freed);
    pthread_mutex_unlock(&u->lock);
}

/* Takes the oldest segment off the queue of late frees; -1 if there is none, or (unless `wait`) if its user still runs.
 * The event of its last user is waited for without the lock. */
static int next_late(mm_program *p, bool wait) {
    mm_unplanned *u = &p->unplanned;
    pthread_mutex_lock(&u->lock);
    int segment = u->late_head < u->late_count ? u->late[u->late_head] : -1;
    mm_event *event = segment < 0 ? NULL : p->events[p->plan->segments[segment].last_node];
    if (segment >= 0 && (wait || mm_event_done(event)))
        u->late_head++;
    else
        segment = -1;
    pthread_mutex_unlock(&u->lock);
    /* A failed user has ended too; whoever waits for its result is told. */
    mm_status ended = segment >= 0 ? mm_event_sync(event) : MM_OK;
    (void)ended;
    return segment;
}

/* Blocks until something has been freed since `frees`. */
static mm_status wait_for_free(mm_program *p, int segment, int64_t frees) {
    mm_unplanned *u = &p->unplanned;
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += PATIENCE_S;
    int error = 0;
    pthread_mutex_lock(&u->lock);
    while (u->frees == frees && u->late_head == u->late_count && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&u->freed, &u->lock, &deadline);
    pthread_mutex_unlock(&u->lock);
    if (error != ETIMEDOUT) return MM_OK;
    return mm_fail(MM_ERR_NOMEM, "no room for %lld bytes in a heap with %lld in use, and nothing was freed for %d s",
                   (long long)p->plan->segments[segment].bytes, (long long)mm_heap_used(heap_of(p, segment)),
                   PATIENCE_S);
}

static void count_alloc(mm_dispatch *d) {
    pthread_mutex_lock(&d->lock);
    d->stats.unplanned_allocs++;
    pthread_mutex_unlock(&d->lock);
}

static mm_status take_segment(mm_program *p, int segment) {
    mm_unplanned *u = &p->unplanned;
    int late;
    while ((late = next_late(p, false)) >= 0) free_segment(p, late);
    for (;;) {
        pthread_mutex_lock(&u->lock);
        int64_t frees = u->frees;
        pthread_mutex_unlock(&u->lock);
        void *memory;
        mm_status status = mm_heap_alloc(heap_of(p, segment), p->plan->segments[segment].bytes, &memory);
        if (status == MM_OK) {
            pthread_mutex_lock(&u->lock);
            u->address[segment] = memory;
            pthread_mutex_unlock(&u->lock);
            count_alloc(p->dispatch);
            return MM_OK;
        }
        if (status != MM_ERR_NOMEM) return status;
        if ((late = next_late(p, true)) >= 0)
            free_segment(p, late);
        else
            MM_TRY(wait_for_free(p, segment, frees));
    }
}

typedef struct visit {
    mm_program *program;
    int node;
    bool uses;
    mm_status status;
} visit;

static void take_if_first(void *ctx, int segment) {
    visit *v = ctx;
    const mm_segment *s = &v->program->plan->segments[segment];
    if (v->status == MM_OK && s->dynamic && s->first_node == v->node && !v->program->unplanned.address[segment])
        v->status = take_segment(v->program, segment);
}

mm_status mm_unplanned_take(mm_program *p, int node) {
    if (!p->has_unplanned) return MM_OK;
    visit v = {.program = p, .node = node};
    mm_node_segments(p->plan, node, take_if_first, &v);
    return v.status;
}

static void note_use(void *ctx, int segment) {
    visit *v = ctx;
    v->uses |= v->program->plan->segments[segment].dynamic;
}

bool mm_unplanned_uses(const mm_program *p, int node) {
    if (!p->has_unplanned) return false;
    visit v = {.program = (mm_program *)p, .node = node};
    mm_node_segments(p->plan, node, note_use, &v);
    return v.uses;
}

static void give_if_last(void *ctx, int segment) {
    visit *v = ctx;
    mm_program *p = v->program;
    mm_unplanned *u = &p->unplanned;
    const mm_segment *s = &p->plan->segments[segment];
    if (!s->dynamic || s->last_node != v->node) return;
    if (mm_node_is_op(&p->plan->nodes[v->node])) {
        free_segment(p, segment);
        return;
    }
    pthread_mutex_lock(&u->lock);
    u->late[u->late_count++] = segment;
    pthread_cond_broadcast(&u->freed);
    pthread_mutex_unlock(&u->lock);
}

mm_status mm_unplanned_give(mm_program *p, int node) {
    if (!p->has_unplanned) return MM_OK;
    visit v = {.program = p, .node = node};
    mm_node_segments(p->plan, node, give_if_last, &v);
    return MM_OK;
}

void mm_unplanned_reset(mm_program *p) {
    if (!p->has_unplanned) return;
    mm_unplanned *u = &p->unplanned;
    for (int i = 0; i < p->plan->n_segments; i++)
        if (u->address[i]) free_segment(p, i);
    u->late_head = u->late_count = 0;
}

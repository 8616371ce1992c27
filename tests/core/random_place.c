/* SPDX-License-Identifier: MIT */
/* Where the segments of a random plan lie: as low as the waits allow. */
#include <stdlib.h>

#include "mm/core/plan/plan_codes.h"
#include "mm/core/status.h"
#include "tests/core/plan_oracle.h"
#include "tests/core/random_graph.h"
#include "tests/core/random_plan.h"

typedef struct placer {
    mm_plan *plan;
    const random_plan_options *options;
    uint64_t *random;
    closure closure;
    access *list;    /* sorted by segment; those of one segment in issue order */
    int *first_user; /* per segment: index of its first access in the list */
    bool *placed;
} placer;

/* Sorts accesses by segment, and finds where those of each segment begin. */
static void sort_by_segment(placer *q) {
    int n;
    access *list = plan_accesses(q->plan, &n);
    const int segments = q->plan->n_segments;
    q->list = calloc((size_t)n + 1, sizeof *q->list);
    q->first_user = calloc((size_t)segments + 1, sizeof *q->first_user);
    if (!q->list || !q->first_user) abort();
    int sorted = 0;
    for (int s = 0; s <= segments; s++) {
        q->first_user[s] = sorted;
        for (int i = 0; i < n; i++)
            if (list[i].segment == s) q->list[sorted++] = list[i];
    }
    free(list);
}

/* Whether all users of `a` end before the first user of `b` starts; that one may itself use `a`, if it writes `b` over
 * it in place. Both segments have users. */
static bool comes_before(const placer *q, int a, int b, bool same_offset) {
    const access *writer = &q->list[q->first_user[b]];
    const int first = writer->node;
    for (int i = q->first_user[a]; i < q->first_user[a + 1]; i++) {
        const access *user = &q->list[i];
        if (closure_before(&q->closure, user->node, first)) continue;
        if (!same_offset || user->node != first || user->write) return false;
        if (!plan_inplace(q->plan, first, user->use, writer->use)) return false;
    }
    return true;
}

static bool may_lie(const placer *q, int segment) {
    const mm_segment *s = &q->plan->segments[segment];
    for (int i = 0; i < q->plan->n_segments; i++) {
        const mm_segment *other = &q->plan->segments[i];
        if (!q->placed[i] || other->memory != s->memory || s->offset >= other->offset + other->bytes ||
            other->offset >= s->offset + s->bytes)
            continue;
        bool same = s->offset == other->offset;
        if (!comes_before(q, i, segment, same) && !comes_before(q, segment, i, same)) return false;
    }
    return true;
}

static int64_t aligned(int64_t bytes, mm_memory memory) {
    const int64_t to = mm_memory_align(memory);
    return (bytes + to - 1) / to * to;
}

/* Places a segment as low as may be; by chance, higher. */
static void place(placer *q, int segment, const mm_limits *limits) {
    mm_plan *plan = q->plan;
    mm_segment *s = &plan->segments[segment];
    int64_t lowest = mm_limits_base(limits, s->memory), best = INT64_MAX;
    for (int i = -1; i < plan->n_segments; i++) {
        if (i >= 0 && (!q->placed[i] || plan->segments[i].memory != s->memory)) continue;
        for (int end = 0; end < 2; end++) {
            s->offset =
                i < 0 ? lowest : plan->segments[i].offset + (end ? aligned(plan->segments[i].bytes, s->memory) : 0);
            if (s->offset < best && (best == INT64_MAX || !random_chance(q->random, 5)) && may_lie(q, segment))
                best = s->offset;
        }
    }
    s->offset = best;
    q->placed[segment] = true;
}

/* The most bytes alive at once in the heap's part for codes, or in its part for all else. */
static int64_t heap_peak(const mm_plan *plan, bool codes) {
    int64_t peak = 0;
    for (int node = 0; node < plan->n_nodes; node++) {
        int64_t live = 0;
        for (int i = 0; i < plan->n_segments; i++) {
            const mm_segment *s = &plan->segments[i];
            if (s->dynamic && (s->content == MM_CONTENT_CODED) == codes && s->first_node <= node &&
                node <= s->last_node)
                live += mm_align(s->bytes);
        }
        if (live > peak) peak = live;
    }
    return peak;
}

static void place_heap(mm_plan *plan) {
    plan->heap_code_bytes = heap_peak(plan, true);
    plan->heap_bytes = plan->heap_code_bytes + heap_peak(plan, false);
    plan->heap_offset = plan->heap_bytes > 0 ? mm_align(plan->extent_bytes) : 0;
}

/* Marks the segments that the step reads or writes. */
static void find_used_by_steps(const mm_plan *plan, const mm_node *n, bool *found) {
    const mm_step_info *step = mm_graph_step(plan->graph, n->step);
    for (int u = 0; u < step->n_uses; u++) {
        const int read = plan->bindings[n->first_binding + u], written = mm_node_code(plan, n, u);
        if (read >= 0) found[read] = true;
        if (written >= 0) found[written] = true;
    }
}

static bool node_is_copy(const mm_node *n) {
    return n->kind == MM_NODE_OUT || n->kind == MM_NODE_IN || n->kind == MM_NODE_STORE || n->kind == MM_NODE_LOAD;
}

/* Puts some codes in pinned memory, where codecs write and read them; not those that are copied or that steps use. */
static void choose_memory(placer *q) {
    mm_plan *plan = q->plan;
    bool *settled = calloc((size_t)plan->n_segments + 1, sizeof *settled);
    if (!settled) abort();
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (node_is_copy(n)) settled[n->src] = settled[n->dst] = true;
        if (mm_node_runs_step(n)) find_used_by_steps(plan, n, settled);
    }
    for (int i = mm_graph_persistents(plan->graph); i < plan->n_segments; i++) {
        mm_segment *s = &plan->segments[i];
        if (s->content == MM_CONTENT_POOL) continue;
        if (!settled[i] && s->content == MM_CONTENT_CODED && random_chance(q->random, 20)) s->memory = MM_MEM_PINNED;
        s->dynamic = q->options->dynamic && s->memory == MM_MEM_DEVICE && random_chance(q->random, 20);
    }
    free(settled);
}

/* Makes the last user of each dynamic segment, after which the segment is freed, wait for its other users. */
static void wait_before_free(mm_plan *plan) {
    int n;
    access *list = plan_accesses(plan, &n);
    for (int i = 0; i < n; i++) {
        int last = list[i].node;
        for (int j = 0; j < n; j++)
            if (list[j].segment == list[i].segment && list[j].node > last) last = list[j].node;
        if (plan->segments[list[i].segment].dynamic && last > list[i].node) mm_plan_wait(plan, last, list[i].node);
    }
    free(list);
}

mm_status random_place(mm_plan *plan, const random_plan_options *options, const mm_limits *limits, uint64_t *random) {
    placer q = {.plan = plan, .options = options, .random = random};
    choose_memory(&q);
    wait_before_free(plan);
    q.closure = closure_create(plan);
    sort_by_segment(&q);
    q.placed = calloc((size_t)plan->n_segments + 1, sizeof *q.placed);
    if (!q.placed) abort();
    for (int i = mm_graph_persistents(plan->graph); i < plan->n_segments; i++)
        if (!plan->segments[i].dynamic) place(&q, i, limits);
    closure_destroy(&q.closure);
    free(q.list);
    free(q.first_user);
    free(q.placed);
    MM_TRY(mm_plan_finish(plan));
    place_heap(plan);
    return mm_plan_finish(plan);
}

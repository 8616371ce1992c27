/* SPDX-License-Identifier: MIT */
#include "mm/core/time/cache_miss.h"

#include <stdlib.h>

#include "mm/core/plan/interval_map.h"
#include "mm/core/plan/plan_touch.h"
#include "mm/core/status.h"

typedef struct walk {
    const mm_plan *plan;
    int64_t cache_bytes;
    mm_interval_map last; /* byte range → value of `used` after its last use */
    int64_t used;         /* sum of the bytes that nodes have used so far */
} walk;

/* Segments placed at run time have no known place; neither have bodies in a pool. Persistent tensors are far
 * (cache_miss.h) under every plan, so measured step times include the cost already. */
static bool has_place(const mm_segment *s) {
    return s->memory == MM_MEM_DEVICE && !s->dynamic && s->content != MM_CONTENT_POOL && s->bytes > 0 &&
           s->category != MM_CAT_PERSISTENT;
}

static int64_t far_of(const walk *w, const mm_segment *s) {
    int64_t begin = s->offset, end = begin + s->bytes, near = 0;
    for (size_t i = mm_interval_map_find(&w->last, begin); i < w->last.n && w->last.runs[i].begin < end; i++) {
        const mm_run *run = &w->last.runs[i];
        if (w->used - run->tag > w->cache_bytes) continue;
        near += (run->end < end ? run->end : end) - (run->begin > begin ? run->begin : begin);
    }
    return s->bytes - near;
}

static bool visit(walk *w, const mm_node *n, int64_t *far_out) {
    mm_touch touch;
    int64_t used = w->used;
    *far_out = 0;
    for (int i = 0; mm_node_next_touch(w->plan, n, &i, &touch);)
        if (has_place(&w->plan->segments[touch.segment])) used += w->plan->segments[touch.segment].bytes;
    for (int i = 0; mm_node_next_touch(w->plan, n, &i, &touch);) {
        const mm_segment *s = &w->plan->segments[touch.segment];
        if (!has_place(s)) continue;
        *far_out += far_of(w, s);
        if (!mm_interval_map_tag(&w->last, s->offset, s->offset + s->bytes, used)) return false;
    }
    w->used = used;
    return true;
}

mm_status mm_cache_miss_bytes(const mm_plan *plan, int64_t cache_bytes, int64_t *far_out) {
    enum { ITERATIONS = 2 }; /* the first begins with cold caches, the second is like all others */
    walk w = {.plan = plan, .cache_bytes = cache_bytes};
    bool enough = true;
    for (int iteration = 0; iteration < ITERATIONS; iteration++)
        for (int i = 0; enough && i < plan->n_nodes; i++) enough = visit(&w, &plan->nodes[i], &far_out[i]);
    free(w.last.runs);
    return enough ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the cache misses of a plan");
}

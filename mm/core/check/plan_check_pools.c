/* SPDX-License-Identifier: MIT */
/* Pass 2, pools: each pool has room for all bodies of its codes. Also the rules of form for pools (pass 1). */
#include <stdlib.h>

#include "mm/core/check/plan_check.h"
#include "mm/core/status.h"

static bool is_pool(const mm_check *c, int32_t segment) {
    return segment >= 0 && segment < c->plan->n_segments && c->plan->segments[segment].content == MM_CONTENT_POOL;
}

static int64_t bound_of(const mm_check *c, const mm_segment *code) {
    return mm_facts_code(c->facts, code->codec, code->tensor)->body_bound_bytes;
}

mm_status mm_check_pool_form(const mm_check *c, int segment) {
    const mm_segment *s = &c->plan->segments[segment];
    if (s->pool != -1 && (s->content != MM_CONTENT_CODED || !is_pool(c, s->pool)))
        return mm_check_refuse_segment(c, MM_RULE_POOL, segment,
                                       "names a pool, but it is not a code, or that is not a pool");
    if (s->spill != -1 && (s->content != MM_CONTENT_POOL || s->memory != MM_MEM_DEVICE || !is_pool(c, s->spill) ||
                           c->plan->segments[s->spill].memory != MM_MEM_PINNED))
        return mm_check_refuse_segment(c, MM_RULE_POOL, segment,
                                       "names a spill, but it is not a pool on the device, or that is not a pool in "
                                       "pinned memory");
    if (s->content == MM_CONTENT_POOL && (s->dynamic || s->memory == MM_MEM_DISK))
        return mm_check_refuse_segment(c, MM_RULE_POOL, segment, "is a pool in the heap, or on the disk");
    if (s->content == MM_CONTENT_CODED && (s->pool != -1) != (bound_of(c, s) > 0))
        return mm_check_refuse_segment(c, MM_RULE_POOL, segment,
                                       "its codec's codes have bodies but it names no pool, or the reverse");
    return MM_OK;
}

/* What a pool must have room for. */
typedef struct demand {
    int64_t bound_bytes; /* sum of its bodies' bounds, each aligned */
    int32_t owner;       /* pool whose spill it is; -1: none */
} demand;

static mm_status check_pool(const mm_check *c, int segment, const demand *demands) {
    const mm_segment *s = &c->plan->segments[segment];
    const demand *d = &demands[segment];
    if (d->owner >= 0) {
        if (d->bound_bytes == 0) return MM_OK;
        return mm_check_refuse_segment(c, MM_RULE_POOL, segment, "is the spill of a pool, and has codes of its own");
    }
    int64_t room = s->bytes, needed = d->bound_bytes;
    if (s->spill >= 0) {
        room = mm_check_add_saturated(room, c->plan->segments[s->spill].bytes);
        needed = mm_check_add_saturated(needed, MM_CHUNK_BYTES);
    }
    if (room >= needed && needed < INT64_MAX) return MM_OK;
    return mm_check_refuse(c, MM_RULE_POOL_ROOM, -1, -1,
                           "segment %d, a pool, has room for %lld bytes with its spill, but needs %lld", segment,
                           (long long)room, (long long)needed);
}

static mm_status add_demands(const mm_check *c, demand *demands) {
    const mm_plan *plan = c->plan;
    for (int i = 0; i < plan->n_segments; i++) demands[i].owner = -1;
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        if (s->pool >= 0) {
            int64_t *sum = &demands[s->pool].bound_bytes;
            *sum = mm_check_add_saturated(*sum, mm_align(bound_of(c, s)));
        }
        if (s->spill < 0) continue;
        if (demands[s->spill].owner >= 0)
            return mm_check_refuse_segment(c, MM_RULE_POOL, s->spill, "is the spill of two pools");
        demands[s->spill].owner = i;
    }
    return MM_OK;
}

mm_status mm_check_pools(const mm_check *c) {
    const int n = c->plan->n_segments;
    int first = 0;
    while (first < n && c->plan->segments[first].content != MM_CONTENT_POOL) first++;
    if (first == n) return MM_OK; /* no pool, so no code has a body (the pass `form` has checked that) */
    demand *demands = calloc((size_t)n, sizeof *demands);
    if (!demands) return mm_fail(MM_ERR_NOMEM, "out of memory for the proof of a plan");
    mm_status status = add_demands(c, demands);
    for (int i = first; status == MM_OK && i < n; i++)
        if (is_pool(c, i)) status = check_pool(c, i, demands);
    free(demands);
    return status;
}

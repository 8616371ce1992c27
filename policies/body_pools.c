#include "policies/body_pools.h"

#include "mm/core/status.h"

/* Adds a pool in a new group, of which it has the bytes; returns its segment, or -1 (out of memory). */
static int add_pool(mm_schedule *s, bool pinned, int64_t bytes, int *group_out) {
    *group_out = mm_schedule_group(s, pinned ? MM_REGION_PINNED : MM_REGION_GENERAL, bytes);
    return *group_out < 0 ? -1 : mm_schedule_segment(s, MM_CONTENT_POOL, MM_CAT_CODE, -1, bytes, *group_out);
}

bool mm_body_pools_add(mm_body_pools *pools, mm_schedule *s, int code, bool pinned) {
    const mm_segment head = s->plan->segments[code];
    const mm_code_facts *facts = mm_facts_code(s->facts, head.codec, head.tensor);
    int *pool = &pools->pool[pinned].segment;
    if (*pool < 0) *pool = add_pool(s, pinned, 0, &pools->pool[pinned].group);
    if (*pool < 0) return false;
    s->plan->segments[code].pool = *pool;
    pools->pool[pinned].reserve_bytes += mm_align(facts->body_reserve_bytes);
    pools->pool[pinned].bound_bytes += mm_align(facts->body_bound_bytes);
    return true;
}

mm_status mm_body_pools_size(mm_body_pools *pools, mm_schedule *s, int64_t pinned_bytes) {
    for (int pinned = 0; pinned < 2; pinned++) {
        const int pool = pools->pool[pinned].segment;
        const int64_t reserve = pools->pool[pinned].reserve_bytes, bound = pools->pool[pinned].bound_bytes;
        if (pool < 0) continue;
        const bool spills = !pinned && pinned_bytes > 0 && reserve < bound;
        const int64_t bytes = spills ? reserve : bound;
        s->plan->segments[pool].bytes = s->groups[pools->pool[pinned].group].bytes = bytes;
        if (!spills) continue;
        int group;
        const int spill = add_pool(s, true, bound + MM_CHUNK_BYTES - bytes, &group);
        if (spill < 0) return MM_ERR_NOMEM;
        s->plan->segments[pool].spill = spill;
    }
    return MM_OK;
}

/* SPDX-License-Identifier: MIT */
#include "policies/engine/body_pools.h"

#include "mm/core/status.h"

/* Adds a pool of these bytes, in a new group; returns its segment, or -1 (out of memory). */
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

static void set_size(const mm_body_pools *pools, mm_schedule *s, int pinned, int64_t bytes) {
    s->plan->segments[pools->pool[pinned].segment].bytes = bytes;
    s->groups[pools->pool[pinned].group].bytes = bytes;
}

/* Bytes of the spill: at most the pinned memory that is left beside all other segments there, counted as if no two of
 * them shared bytes. 0: no spill is needed, or not even a chunk fits. */
static int64_t spill_bytes(const mm_schedule *s, int64_t reserve, int64_t bound, int64_t pinned_bytes) {
    int64_t room = pinned_bytes;
    for (int g = 0; g < s->n_groups; g++)
        if (s->groups[g].region == MM_REGION_PINNED) room -= mm_align(s->groups[g].bytes);
    const int64_t wanted = bound - reserve + MM_CHUNK_BYTES;
    const int64_t bytes = wanted < room ? wanted : room / MM_ALIGN * MM_ALIGN;
    return bytes > MM_CHUNK_BYTES ? bytes : 0;
}

mm_status mm_body_pools_size(mm_body_pools *pools, mm_schedule *s, int64_t pinned_bytes) {
    const int pool = pools->pool[false].segment;
    if (pools->pool[true].segment >= 0) set_size(pools, s, true, pools->pool[true].bound_bytes);
    if (pool < 0) return MM_OK;
    const int64_t bound = pools->pool[false].bound_bytes;
    const int64_t spilled = spill_bytes(s, pools->pool[false].reserve_bytes, bound, pinned_bytes);
    set_size(pools, s, false, spilled > 0 ? bound + MM_CHUNK_BYTES - spilled : bound);
    if (spilled == 0) return MM_OK;
    int group;
    const int spill = add_pool(s, true, spilled, &group);
    if (spill < 0) return MM_ERR_NOMEM;
    s->plan->segments[pool].spill = spill;
    return MM_OK;
}

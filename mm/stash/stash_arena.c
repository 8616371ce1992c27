/* SPDX-License-Identifier: MIT */
/* The arena's memory: how much of it is usable, and how much was touched. */
#include "mm/stash/stash_arena.h"

#include <stdlib.h>

#include "mm/stash/stash.h"
#include "mm/stash/stash_sync.h"

void mm_stash_note_peak(mm_stash *s) {
    const int64_t now = s->extent_bytes + s->stats.kept_bytes;
    if (now > s->stats.peak_bytes) s->stats.peak_bytes = now;
}

/* ---------------------------------------------------------------- what was touched */

static mm_status count(mm_stash *s, int64_t *total_out, int64_t *stray_out) {
    int64_t total, inside = 0;
    MM_TRY(mm_pool_pattern_count(s->pool, 0, s->limit_bytes, &total));
    for (size_t i = 0; i < s->coverage.n; i++) {
        int64_t one;
        const mm_range *r = &s->coverage.ranges[i];
        MM_TRY(mm_pool_pattern_count(s->pool, r->begin, r->end - r->begin, &one));
        inside += one;
    }
    *total_out = total;
    *stray_out = total - inside;
    return MM_OK;
}

/* Updates the highest counts of what plans have touched. */
static mm_status keep_counts(mm_stash *s) {
    int64_t total, stray;
    MM_TRY(mm_dispatch_sync(s->dispatch));
    MM_TRY(count(s, &total, &stray));
    if (total > s->touched_bytes) s->touched_bytes = total;
    if (stray > s->stray_bytes) s->stray_bytes = stray;
    return MM_OK;
}

static mm_status add_plan(mm_stash *s, const mm_stash_plan *p) {
    const mm_plan *plan = p->planned.plan;
    mm_range *ranges = malloc(((size_t)plan->n_segments + 1) * sizeof *ranges);
    if (!ranges) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan's ranges");
    size_t n = 0;
    ranges[n++] = (mm_range){p->planned.block_offset, p->planned.block_offset + mm_align(p->planned.block_bytes)};
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *segment = &plan->segments[i];
        if (segment->memory == MM_MEM_DEVICE)
            ranges[n++] = (mm_range){segment->offset, segment->offset + mm_align(segment->bytes)};
    }
    mm_status status = mm_coverage_add(&s->coverage, ranges, n);
    free(ranges);
    return status;
}

mm_status mm_stash_cover(mm_stash *s, const mm_stash_plan *plan) {
    if (!s->options.measure_touched) return MM_OK;
    if (!plan) {
        if (s->is_patterned) MM_TRY(keep_counts(s));
        s->is_patterned = false;
        return MM_OK;
    }
    if (!plan->planned.plan) return MM_OK;
    if (!s->is_patterned) { /* clears what was written without a plan */
        MM_TRY(mm_stash_sync_drain(s));
        mm_pool_trim(s->pool, 0);
        MM_TRY(mm_pool_restore(s->pool, s->limit_bytes));
        mm_coverage_fini(&s->coverage);
        s->coverage = (mm_coverage){0};
        s->is_patterned = true;
    }
    MM_TRY(mm_pool_pattern_extend(s->pool, mm_stash_plan_extent(plan)));
    return add_plan(s, plan);
}

mm_status mm_stash_touched(mm_stash *s, mm_touched *touched_out) {
    if (!s->options.measure_touched)
        return mm_fail(MM_ERR_ORDER, "mm_stash_touched_get: the stash was created without measure_touched");
    if (s->is_patterned) MM_TRY(keep_counts(s));
    *touched_out = (mm_touched){.total_bytes = s->touched_bytes, .stray_bytes = s->stray_bytes};
    return MM_OK;
}

/* ---------------------------------------------------------------- how much is usable */

static mm_status grow(mm_stash *s, int64_t bytes) {
    mm_status status = mm_pool_restore(s->pool, bytes);
    if (status == MM_ERR_NOMEM && s->options.reclaim) {
        s->options.reclaim(s->options.reclaim_ctx);
        status = mm_pool_restore(s->pool, bytes);
    }
    if (status != MM_OK) mm_pool_trim(s->pool, s->limit_bytes);
    return status;
}

mm_status mm_stash_arena_limit(mm_stash *s, int64_t bytes) {
    bytes = bytes / MM_ALIGN * MM_ALIGN;
    if (bytes == s->limit_bytes) return MM_OK;
    MM_TRY(mm_dispatch_sync(s->dispatch)); /* earlier iterations may still be using the memory that is given back */
    MM_TRY(mm_stash_sync_drain(s));
    if (s->is_patterned) MM_TRY(keep_counts(s));
    s->is_patterned = false;
    if (bytes > s->limit_bytes) {
        MM_TRY(grow(s, bytes));
    } else {
        mm_pool_trim(s->pool, bytes);
    }
    s->limit_bytes = bytes;
    if (s->extent_bytes > bytes) s->extent_bytes = bytes;
    s->arena.n = 0;
    if (bytes > 0) s->arena.free[s->arena.n++] = (mm_span){0, bytes};
    return MM_OK;
}

mm_status mm_stash_arena_give_back(mm_stash *s, int64_t bytes) {
    if (!s->is_inline || s->unplanned_bytes <= bytes) return MM_OK;
    MM_TRY(mm_dispatch_sync(s->dispatch));
    mm_pool_trim(s->pool, bytes);
    s->unplanned_bytes = 0;
    if (s->extent_bytes > bytes) s->extent_bytes = bytes;
    return MM_OK;
}

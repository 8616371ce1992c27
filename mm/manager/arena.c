/* SPDX-License-Identifier: MIT */
#include "mm/manager/arena.h"

#include "mm/core/log.h"
#include "mm/core/size.h"

/* ---------------------------------------------------------------- touched bytes */

/* Adds the touched bytes of the arena's [begin, end) to *touched. */
static mm_status add_touched(const mm_manager *m, int64_t begin, int64_t end, int64_t *touched) {
    int64_t bytes;
    if (begin >= end) return MM_OK;
    MM_TRY(mm_pool_pattern_count(m->pool, begin, end - begin, &bytes));
    *touched += bytes;
    return MM_OK;
}

/* Counts touched bytes of the arena's [begin, end): in all, and stray ones. persistent_bytes stays 0. */
static mm_status count_touched(const mm_manager *m, int64_t begin, int64_t end, mm_touched *touched_out) {
    mm_touched touched = {0};
    int64_t covered = 0, at = begin;
    for (size_t i = 0; i < m->coverage.n; i++) { /* ranges are sorted: counts each, and the bytes before it */
        const mm_range *r = &m->coverage.ranges[i];
        int64_t from = r->begin > begin ? r->begin : begin, to = r->end < end ? r->end : end;
        if (from >= to) continue;
        MM_TRY(add_touched(m, at, from, &touched.stray_bytes));
        MM_TRY(add_touched(m, from, to, &covered));
        at = to;
    }
    MM_TRY(add_touched(m, at, end, &touched.stray_bytes));
    touched.total_bytes = covered + touched.stray_bytes;
    *touched_out = touched;
    return MM_OK;
}

mm_status mm_arena_touched(mm_manager *m, mm_touched *touched_out) {
    mm_touched touched;
    mm_page_guard_open(m);
    /* Persistent tensors are covered too, because they are zeroed before a plan runs. Those that are being added may
     * have no memory yet. */
    MM_TRY(mm_coverage_add(&m->coverage, &(mm_range){0, m->persistent_bytes}, 1));
    MM_TRY(count_touched(m, 0, m->there_bytes, &touched));
    MM_TRY(add_touched(m, 0, m->persistent_bytes, &touched.persistent_bytes));
    touched.total_bytes += m->given_back.total_bytes;
    touched.stray_bytes += m->given_back.stray_bytes;
    if (touched.total_bytes < m->most_touched) touched.total_bytes = m->most_touched;
    *touched_out = touched;
    return MM_OK;
}

/* ---------------------------------------------------------------- trim and extend */

/* Counts the touched bytes of memory that is about to be given back: afterwards the pattern, by which they are counted,
 * is lost. */
static mm_status count_given_back(mm_manager *m, int64_t from) {
    mm_touched touched;
    if (!m->options.measure_touched) return MM_OK;
    MM_TRY(count_touched(m, from, m->there_bytes, &touched));
    m->given_back.total_bytes += touched.total_bytes;
    m->given_back.stray_bytes += touched.stray_bytes;
    return MM_OK;
}

void mm_arena_trim(mm_manager *m) {
    int64_t limit = mm_manager_limit_bytes(m);
    /* Persistent tensors may lie above the limit, because they stay when their graphs are forgotten. */
    int64_t from = mm_align(limit > m->persistents.bytes ? limit : m->persistents.bytes);
    if (from >= m->there_bytes) return;
    mm_page_guard_open(m);
    if (count_given_back(m, from) != MM_OK) {
        mm_log_send(&m->options.log, MM_LOG_WARNING,
                    "memory is not given back, because touched bytes cannot be counted: %s", mm_last_error());
        return;
    }
    mm_pool_trim(m->pool, from);
    m->there_bytes = from;
}

/* Called before memory is taken back. That memory counts as untouched from then on, so the present count is saved in
 * most_touched. */
static mm_status forget_given_back(mm_manager *m) {
    mm_touched touched;
    if (!m->options.measure_touched) return MM_OK;
    MM_TRY(mm_arena_touched(m, &touched));
    m->most_touched = touched.total_bytes;
    m->given_back.total_bytes = 0;
    return MM_OK;
}

mm_status mm_arena_extend(mm_manager *m, int64_t bytes) {
    int64_t there = m->there_bytes;
    if (bytes <= there) return MM_OK;
    mm_page_guard_open(m);
    MM_TRY(forget_given_back(m));
    mm_status status = mm_pool_restore(m->pool, bytes);
    if (status == MM_OK)
        m->there_bytes = bytes;
    else
        mm_pool_trim(m->pool, there);
    char budget[32];
    return status == MM_OK
               ? MM_OK
               : mm_fail_in(status, "cannot raise the budget to %s", mm_size_format(bytes, budget, sizeof budget));
}

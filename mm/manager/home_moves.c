/* SPDX-License-Identifier: MIT */
#include "mm/manager/home_moves.h"

#include <stdlib.h>
#include <string.h>

typedef struct move {
    mm_manager *m;
    mm_place *before; /* per entry */
    uint8_t *saved;   /* values of the tensors that move, one after the other */
} move;

static bool moves(const move *v, int i) {
    const mm_place *now = &v->m->persistents.entries[i].place;
    return i < v->m->persistents_there && (now->offset != v->before[i].offset || now->pinned != v->before[i].pinned);
}

static int64_t moved_bytes(const move *v) {
    int64_t bytes = 0;
    for (int i = 0; i < v->m->persistents.n; i++)
        if (moves(v, i)) bytes += v->m->persistents.entries[i].bytes;
    return bytes;
}

static mm_status copy(mm_manager *m, uint8_t *to, const uint8_t *from, int64_t bytes, bool pinned, mm_copy_kind kind) {
    if (!pinned) return mm_copy_async(mm_dispatch_compute(m->dispatch), to, from, bytes, kind);
    memcpy(to, from, (size_t)bytes);
    return MM_OK;
}

static mm_status sync(mm_manager *m, mm_status status) {
    mm_stream *stream = mm_dispatch_compute(m->dispatch);
    const mm_status synced = mm_stream_sync(stream);
    if (synced != MM_OK) mm_stream_reset(stream);
    return status == MM_OK ? synced : status;
}

static mm_status save(const move *v) {
    const mm_persistent_table *table = &v->m->persistents;
    int64_t at = 0;
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < table->n; i++) {
        if (!moves(v, i)) continue;
        mm_persistent from = table->entries[i];
        from.place = v->before[i];
        status = copy(v->m, v->saved + at, mm_home_address(v->m, &from), from.bytes, from.place.pinned, MM_COPY_OUT);
        at += from.bytes;
    }
    return sync(v->m, status);
}

static mm_status zero(mm_manager *m, const mm_persistent *entry) {
    if (!entry->place.pinned)
        return mm_fill_async(mm_dispatch_compute(m->dispatch), mm_home_address(m, entry), 0, mm_align(entry->bytes));
    memset(mm_home_address(m, entry), 0, (size_t)entry->bytes);
    return MM_OK;
}

static mm_status settle(const move *v) {
    const mm_persistent_table *table = &v->m->persistents;
    int64_t at = 0;
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < table->n; i++) {
        const mm_persistent *to = &table->entries[i];
        if (i >= v->m->persistents_there) status = zero(v->m, to);
        if (!moves(v, i)) continue;
        status = copy(v->m, mm_home_address(v->m, to), v->saved + at, to->bytes, to->place.pinned, MM_COPY_IN);
        at += to->bytes;
    }
    return sync(v->m, status);
}

/* Bytes at the low end of the arena count as touched by persistent tensors, also once these have left. The pattern,
 * which a trim may have cut, is extended over the new homes before these are written: a plan would do it afterwards. */
static mm_status keep_count(mm_manager *m) {
    if (!m->options.measure_touched) return MM_OK;
    MM_TRY(mm_pool_pattern_extend(m->pool, m->persistents.bytes));
    return mm_coverage_add(&m->coverage, &(mm_range){0, m->persistent_bytes}, 1);
}

static mm_status move_all(move *v) {
    const int64_t bytes = moved_bytes(v);
    if (bytes == 0 && v->m->persistents.n == v->m->persistents_there) return MM_OK;
    v->saved = malloc((size_t)bytes + 1);
    if (!v->saved)
        return mm_fail(MM_ERR_NOMEM, "out of memory to move %lld bytes of persistent tensors", (long long)bytes);
    mm_status status = keep_count(v->m);
    if (status == MM_OK) status = save(v);
    if (status == MM_OK) status = settle(v);
    free(v->saved);
    return status;
}

mm_status mm_homes_move(mm_manager *m, const mm_homes *homes) {
    mm_persistent_table *table = &m->persistents;
    const int64_t bytes = table->bytes, pinned_bytes = table->pinned_bytes;
    move v = {.m = m, .before = malloc(((size_t)table->n + 1) * sizeof *v.before)};
    if (!v.before) return mm_fail(MM_ERR_NOMEM, "out of memory to move %d persistent tensors", table->n);
    for (int i = 0; i < table->n; i++) v.before[i] = table->entries[i].place;
    mm_persistent_table_settle(table, homes);
    const mm_status status = move_all(&v);
    for (int i = 0; status != MM_OK && i < table->n; i++) table->entries[i].place = v.before[i];
    if (status != MM_OK) {
        table->bytes = bytes;
        table->pinned_bytes = pinned_bytes;
    }
    free(v.before);
    return status;
}

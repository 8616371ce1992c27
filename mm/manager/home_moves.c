/* SPDX-License-Identifier: MIT */
#include "mm/manager/home_moves.h"

#include <stdlib.h>
#include <string.h>

#include "mm/planning/home_route.h"

/* ---------------------------------------------------------------- bytes */

static mm_status enqueue(mm_manager *m, void *to, const void *from, int64_t bytes, mm_copy_kind kind) {
    return bytes > 0 ? mm_copy_async(mm_dispatch_compute(m->dispatch), to, from, bytes, kind) : MM_OK;
}

static mm_status refuse_lost(const mm_persistent *entry) {
    return mm_fail(MM_ERR_IO,
                   "persistent tensor %s: the disk lost it while homes moved: set its value, or load the last save",
                   entry->name);
}

mm_status mm_home_read(mm_manager *m, const mm_persistent *entry, int64_t offset, void *data, int64_t bytes) {
    if (entry->lost) return refuse_lost(entry);
    const uint8_t *from = mm_home_address(m, entry);
    if (!from) return mm_disk_read_part(m->disk, entry->place.offset + offset, data, bytes);
    if (entry->place.memory == MM_MEM_DEVICE) return enqueue(m, data, from + offset, bytes, MM_COPY_OUT);
    if (bytes > 0) memcpy(data, from + offset, (size_t)bytes);
    return MM_OK;
}

mm_status mm_home_write(mm_manager *m, const mm_persistent *entry, int64_t offset, const void *data, int64_t bytes) {
    uint8_t *to = mm_home_address(m, entry);
    if (!to && offset % MM_DISK_BLOCK == 0 && offset + bytes == entry->bytes) /* no block of it stays: no reads */
        return mm_disk_write(m->disk, entry->place.offset + offset, data, bytes);
    if (!to) return mm_disk_write_part(m->disk, entry->place.offset + offset, data, bytes);
    if (entry->place.memory == MM_MEM_DEVICE) return enqueue(m, to + offset, data, bytes, MM_COPY_IN);
    if (bytes > 0) memcpy(to + offset, data, (size_t)bytes);
    return MM_OK;
}

mm_status mm_home_sync(mm_manager *m, mm_status status) {
    mm_stream *stream = mm_dispatch_compute(m->dispatch);
    const mm_status synced = mm_stream_sync(stream);
    if (synced != MM_OK) mm_stream_reset(stream);
    return status == MM_OK ? synced : status;
}

/* ---------------------------------------------------------------- moves */

typedef struct move {
    mm_manager *m;
    mm_place *before; /* per entry */
    mm_route route;   /* its items are the entries that are there */
    uint8_t *buffer;
} move;

/* Copies a piece from its home, before or after the move, to the buffer; or puts it there. */
static mm_status copy_piece(const move *v, const mm_route_piece *piece, bool after, bool puts) {
    mm_persistent home = v->m->persistents.entries[piece->item];
    uint8_t *slot = v->buffer + piece->slot;
    if (!after) home.place = v->before[piece->item];
    return mm_home_sync(v->m, puts ? mm_home_write(v->m, &home, piece->offset, slot, piece->bytes)
                                   : mm_home_read(v->m, &home, piece->offset, slot, piece->bytes));
}

/* Makes undone the first n steps of the pieces over whose homes something was put by the step `over`. All that can be
 * put back is, whatever fails. Returns the first failure. */
static mm_status go_back(const move *v, int n, int32_t over) {
    mm_status first = MM_OK;
    for (int i = n - 1; i >= 0; i--) {
        const mm_route_step *step = &v->route.steps[i];
        const mm_route_piece *piece = &v->route.pieces[step->piece];
        mm_persistent *entry = &v->m->persistents.entries[piece->item];
        if (piece->over > over || entry->lost) continue;
        const mm_status status = copy_piece(v, piece, step->puts, !step->puts);
        if (status != MM_OK) {
            entry->lost = true;
            entry->set_bytes = 0;
        }
        if (first == MM_OK) first = status;
    }
    return first;
}

static mm_status zero_on_disk(mm_manager *m, const mm_persistent *entry) {
    static const uint8_t zeros[1 << 16];
    const int64_t most = sizeof zeros;
    for (int64_t done = 0; done < entry->bytes; done += most) {
        const int64_t left = entry->bytes - done;
        MM_TRY(mm_disk_write(m->disk, entry->place.offset + done, zeros, left < most ? left : most));
    }
    return MM_OK;
}

static mm_status zero(mm_manager *m, const mm_persistent *entry) {
    uint8_t *home = mm_home_address(m, entry);
    if (!home) return zero_on_disk(m, entry);
    if (entry->place.memory == MM_MEM_DEVICE)
        return mm_fill_async(mm_dispatch_compute(m->dispatch), home, 0, mm_align(entry->bytes));
    memset(home, 0, (size_t)entry->bytes);
    return MM_OK;
}

static mm_status zero_added(mm_manager *m) {
    mm_status status = MM_OK;
    for (int i = m->persistents_there; status == MM_OK && i < m->persistents.n; i++)
        status = zero(m, &m->persistents.entries[i]);
    return mm_home_sync(m, status);
}

/* Goes the route, and back if a step fails. */
static mm_status go(const move *v) {
    mm_status status = MM_OK;
    int i = 0;
    for (; status == MM_OK && i < v->route.n_steps; i++) {
        const mm_route_step *step = &v->route.steps[i];
        status = copy_piece(v, &v->route.pieces[step->piece], step->puts, step->puts);
    }
    const bool arrived = status == MM_OK;
    if (arrived) status = zero_added(v->m);
    if (status == MM_OK) return MM_OK;
    mm_failure failure;
    mm_failure_save(&failure, status);
    /* Zeros may be over any home of before. */
    if ((arrived ? go_back(v, i, INT32_MAX) : go_back(v, i - 1, i - 1)) == MM_OK) return mm_failure_restore(&failure);
    return mm_fail(status,
                   "%s; it could not be moved back, either: some of what the disk had may be lost, and is not read "
                   "again; load the last save",
                   failure.message);
}

/* Bytes at the low end of the arena count as touched by persistent tensors, also once these have left. The pattern,
 * which a trim may have cut, is extended over the new homes before these are written: a plan would do it afterwards. */
static mm_status keep_count(mm_manager *m) {
    if (!m->options.measure_touched) return MM_OK;
    MM_TRY(mm_pool_pattern_extend(m->pool, m->persistents.bytes));
    return mm_coverage_add(&m->coverage, &(mm_range){0, m->persistent_bytes}, 1);
}

static mm_status find_route(move *v) {
    const mm_persistent_table *table = &v->m->persistents;
    const int n = table->n < v->m->persistents_there ? table->n : v->m->persistents_there;
    mm_route_item *items = malloc(((size_t)n + 1) * sizeof *items);
    if (!items) return mm_fail(MM_ERR_NOMEM, "out of memory to move %d persistent tensors", n);
    for (int i = 0; i < n; i++) {
        const mm_persistent *entry = &table->entries[i];
        items[i] = (mm_route_item){v->before[i], entry->place, entry->lost ? 0 : entry->bytes};
    }
    const mm_status status = mm_route_init(items, n, v->m->home_piece_bytes, MM_ROUTE_BUFFER_BYTES, &v->route);
    free(items);
    return status;
}

static mm_status move_all(move *v) {
    MM_TRY(find_route(v));
    if (v->route.n_steps == 0 && v->m->persistents.n <= v->m->persistents_there) return MM_OK;
    v->buffer = aligned_alloc(MM_ROUTE_SLOT, (size_t)v->route.buffer_bytes + MM_ROUTE_SLOT);
    if (!v->buffer)
        return mm_fail(MM_ERR_NOMEM, "out of memory to move persistent tensors: a buffer takes %lld bytes",
                       (long long)v->route.buffer_bytes);
    MM_TRY(keep_count(v->m));
    if (v->m->persistents.disk_bytes > 0) MM_TRY(mm_disk_reserve(v->m->disk, v->m->persistents.disk_bytes));
    return go(v);
}

/* A lost tensor's home moves without its bytes: none of those that were set since is there. */
static void forget_set(const move *v) {
    for (int i = 0; i < v->m->persistents.n; i++) {
        mm_persistent *entry = &v->m->persistents.entries[i];
        if (entry->lost && mm_place_differs(&v->before[i], &entry->place)) entry->set_bytes = 0;
    }
}

mm_status mm_homes_move(mm_manager *m, const mm_homes *homes) {
    mm_persistent_table *table = &m->persistents;
    const int64_t bytes = table->bytes, pinned_bytes = table->pinned_bytes, disk_bytes = table->disk_bytes;
    move v = {.m = m, .before = malloc(((size_t)table->n + 1) * sizeof *v.before)};
    if (!v.before) return mm_fail(MM_ERR_NOMEM, "out of memory to move %d persistent tensors", table->n);
    for (int i = 0; i < table->n; i++) v.before[i] = table->entries[i].place;
    mm_persistent_table_settle(table, homes);
    const mm_status status = move_all(&v);
    forget_set(&v);
    for (int i = 0; status != MM_OK && i < table->n; i++) table->entries[i].place = v.before[i];
    if (status != MM_OK) {
        table->bytes = bytes;
        table->pinned_bytes = pinned_bytes;
        table->disk_bytes = disk_bytes;
    }
    mm_route_fini(&v.route);
    free(v.buffer);
    free(v.before);
    return status;
}

/* ---------------------------------------------------------------- lost values */

/* Whether the graph uses the entry; *writes_out: it writes it first. The manager writes MM_VALUES. */
static bool uses(const mm_graph *graph, const mm_persistent *entry, bool *writes_out) {
    const int t = mm_graph_index(graph, entry->name);
    if (t < 0 || mm_graph_tensor(graph, t)->persistent < 0) return false;
    const mm_step_info *first = mm_graph_step(graph, mm_graph_tensor(graph, t)->first_use);
    bool writes = true;
    for (int u = 0; u < first->n_uses; u++) writes &= first->uses[u].tensor != t || first->uses[u].access == MM_WRITE;
    *writes_out = writes || strcmp(entry->name, MM_VALUES) == 0;
    return true;
}

mm_status mm_homes_check_whole(mm_manager *m, const mm_graph *graph) {
    for (int i = 0; i < m->persistents.n; i++) {
        const mm_persistent *entry = &m->persistents.entries[i];
        bool writes;
        if (entry->lost && !entry->written && uses(graph, entry, &writes) && !writes) return refuse_lost(entry);
    }
    return MM_OK;
}

void mm_homes_note_written(mm_manager *m, const mm_graph *graph) {
    for (int i = 0; i < m->persistents.n; i++) {
        mm_persistent *entry = &m->persistents.entries[i];
        bool writes;
        if (entry->lost && uses(graph, entry, &writes)) entry->written |= writes;
    }
}

void mm_homes_judge_written(mm_manager *m, mm_status status) {
    for (int i = 0; i < m->persistents.n; i++) {
        mm_persistent *entry = &m->persistents.entries[i];
        if (entry->written && status == MM_OK) entry->lost = false;
        entry->written = false;
    }
}

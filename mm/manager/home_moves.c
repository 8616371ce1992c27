/* SPDX-License-Identifier: MIT */
#include "mm/manager/home_moves.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- bytes */

static mm_status enqueue(mm_manager *m, void *to, const void *from, int64_t bytes, mm_copy_kind kind) {
    return bytes > 0 ? mm_copy_async(mm_dispatch_compute(m->dispatch), to, from, bytes, kind) : MM_OK;
}

mm_status mm_home_read(mm_manager *m, const mm_persistent *entry, int64_t offset, void *data, int64_t bytes) {
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
    uint8_t *saved;   /* values of the tensors that move, one after the other */
} move;

static bool moves(const move *v, int i) {
    const mm_place *now = &v->m->persistents.entries[i].place;
    return i < v->m->persistents_there && (now->offset != v->before[i].offset || now->memory != v->before[i].memory);
}

static int64_t moved_bytes(const move *v) {
    int64_t bytes = 0;
    for (int i = 0; i < v->m->persistents.n; i++)
        if (moves(v, i)) bytes += v->m->persistents.entries[i].bytes;
    return bytes;
}

static mm_status save(const move *v) {
    const mm_persistent_table *table = &v->m->persistents;
    int64_t at = 0;
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < table->n; i++) {
        if (!moves(v, i)) continue;
        mm_persistent from = table->entries[i];
        from.place = v->before[i];
        status = mm_home_read(v->m, &from, 0, v->saved + at, from.bytes);
        at += from.bytes;
    }
    return mm_home_sync(v->m, status);
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

/* Writes the saved values to where the tensors are now. */
static mm_status put(const move *v) {
    const mm_persistent_table *table = &v->m->persistents;
    int64_t at = 0;
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < table->n; i++) {
        const mm_persistent *to = &table->entries[i];
        if (i >= v->m->persistents_there) status = zero(v->m, to);
        if (status != MM_OK || !moves(v, i)) continue;
        status = mm_home_write(v->m, to, 0, v->saved + at, to->bytes);
        at += to->bytes;
    }
    return mm_home_sync(v->m, status);
}

/* Writes them to where the tensors were before: all that can be written, whatever fails. The disk does not read what it
 * failed to write. Returns the first failure. */
static mm_status put_back(const move *v) {
    const mm_persistent_table *table = &v->m->persistents;
    int64_t at = 0;
    mm_status first = MM_OK;
    for (int i = 0; i < table->n; i++) {
        if (!moves(v, i)) continue;
        mm_persistent to = table->entries[i];
        to.place = v->before[i];
        const mm_status status = mm_home_write(v->m, &to, 0, v->saved + at, to.bytes);
        if (first == MM_OK) first = status;
        at += to.bytes;
    }
    return mm_home_sync(v->m, first);
}

/* What had moved goes back: the values are still saved. */
static mm_status settle(const move *v) {
    const mm_status status = put(v);
    if (status == MM_OK) return MM_OK;
    mm_failure failure;
    mm_failure_save(&failure, status);
    if (put_back(v) == MM_OK) return mm_failure_restore(&failure);
    return mm_fail(status,
                   "%s; it could not be moved back, either: what had its home on the disk may be lost, and is not read "
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

static mm_status move_all(move *v) {
    const int64_t bytes = moved_bytes(v);
    if (bytes == 0 && v->m->persistents.n == v->m->persistents_there) return MM_OK;
    mm_host_memory memory;
    mm_host_memory_get(&memory); /* malloc grants more than there is, and who touches it is killed */
    v->saved = bytes <= memory.free_bytes ? malloc((size_t)bytes + 1) : NULL;
    if (!v->saved)
        return mm_fail(MM_ERR_NOMEM, "out of memory to move %lld bytes of persistent tensors: %lld are free",
                       (long long)bytes, (long long)memory.free_bytes);
    mm_status status = keep_count(v->m);
    if (status == MM_OK && v->m->persistents.disk_bytes > 0)
        status = mm_disk_reserve(v->m->disk, v->m->persistents.disk_bytes);
    if (status == MM_OK) status = save(v);
    if (status == MM_OK) status = settle(v);
    free(v->saved);
    return status;
}

mm_status mm_homes_move(mm_manager *m, const mm_homes *homes) {
    mm_persistent_table *table = &m->persistents;
    const int64_t bytes = table->bytes, pinned_bytes = table->pinned_bytes, disk_bytes = table->disk_bytes;
    move v = {.m = m, .before = malloc(((size_t)table->n + 1) * sizeof *v.before)};
    if (!v.before) return mm_fail(MM_ERR_NOMEM, "out of memory to move %d persistent tensors", table->n);
    for (int i = 0; i < table->n; i++) v.before[i] = table->entries[i].place;
    mm_persistent_table_settle(table, homes);
    const mm_status status = move_all(&v);
    for (int i = 0; status != MM_OK && i < table->n; i++) table->entries[i].place = v.before[i];
    if (status != MM_OK) {
        table->bytes = bytes;
        table->pinned_bytes = pinned_bytes;
        table->disk_bytes = disk_bytes;
    }
    free(v.before);
    return status;
}

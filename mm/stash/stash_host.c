/* SPDX-License-Identifier: MIT */
/* Copies of entries outside the arena. To the disk, bytes go through a piece of pinned memory ("staging"), unless the
 * CPU reaches the arena:
 *
 *      arena --copy--> staging --write--> disk --read--> staging --copy--> arena */
#include "mm/stash/stash_host.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/size.h"
#include "mm/stash/stash.h"
#include "mm/stash/stash_desc.h"
#include "mm/stash/stash_sync.h"

enum { STAGING = 1024 * MM_DISK_BLOCK }; /* chosen: 4 MiB take a drive of 2 GB/s 2 ms */

static int64_t piece(const mm_stash_slot *e) { return mm_stash_piece(&e->kind); }

/* Bytes that an entry takes of the disk: whole blocks, so that accesses are direct (buffers/disk.h). */
static int64_t blocks(const mm_stash_slot *e) {
    return (e->kind.bytes + MM_DISK_BLOCK - 1) / MM_DISK_BLOCK * MM_DISK_BLOCK;
}

/* ---------------------------------------------------------------- places */

mm_status mm_stash_take(mm_stash *s, mm_ranges *ranges, int64_t bytes, int64_t *offset_out) {
    MM_TRY(mm_ranges_reserve(ranges, s->taken + 2));
    *offset_out = mm_ranges_take(ranges, bytes, MM_ALIGN, MM_FIT_LOWEST);
    s->taken += *offset_out >= 0;
    return MM_OK;
}

void mm_stash_give(mm_stash *s, mm_ranges *ranges, int64_t offset, int64_t bytes) {
    mm_ranges_give(ranges, offset, bytes);
    s->taken--;
}

mm_status mm_stash_host_ordinary(mm_stash *s, const mm_stash_slot *e, mm_stash_host *host_out) {
    void *memory = aligned_alloc(MM_ALIGN, (size_t)piece(e));
    if (!memory)
        return mm_fail(MM_ERR_NOMEM, "no host memory for %s of %s", MM_SIZE_TEXT(e->kind.bytes),
                       mm_stash_producer(&e->kind));
    *host_out = (mm_stash_host){MM_STASH_IN_ORDINARY, memory, 0};
    s->ordinary_bytes += piece(e);
    if (s->ordinary_bytes > s->stats.host_bytes) s->stats.host_bytes = s->ordinary_bytes;
    return MM_OK;
}

mm_status mm_stash_host_take(mm_stash *s, const mm_stash_slot *e, mm_stash_host *host_out) {
    int64_t offset;
    MM_TRY(mm_stash_take(s, &s->host, piece(e), &offset));
    if (offset >= 0) {
        *host_out = (mm_stash_host){MM_STASH_IN_PINNED, (uint8_t *)mm_pool_base(s->pinned) + offset, offset};
        return MM_OK;
    }
    if (s->disk) MM_TRY(mm_stash_take(s, &s->file, blocks(e), &offset));
    if (offset < 0) return mm_stash_host_ordinary(s, e, host_out);
    *host_out = (mm_stash_host){MM_STASH_ON_DISK, NULL, offset};
    return MM_OK;
}

void mm_stash_host_take_over(mm_stash *s, const mm_stash_slot *e) {
    const mm_stash_host *host = &e->host;
    if (host->where == MM_STASH_IN_PINNED) mm_ranges_take_at(&s->host, host->offset, piece(e));
    if (host->where == MM_STASH_ON_DISK) mm_ranges_take_at(&s->file, host->offset, blocks(e));
    s->taken += host->where == MM_STASH_IN_PINNED || host->where == MM_STASH_ON_DISK;
}

void mm_stash_host_give(mm_stash *s, const mm_stash_slot *e, mm_stash_host *host) {
    if (host->where == MM_STASH_IN_PINNED) mm_stash_give(s, &s->host, host->offset, piece(e));
    if (host->where == MM_STASH_ON_DISK) mm_stash_give(s, &s->file, host->offset, blocks(e));
    if (host->where == MM_STASH_IN_ORDINARY) {
        mm_status drained = mm_stash_sync_drain(s);
        if (drained != MM_OK) mm_failure_save(&s->owed, drained);
        free(host->memory);
        s->ordinary_bytes -= piece(e);
    }
    *host = (mm_stash_host){.where = MM_STASH_NOWHERE};
}

/* ---------------------------------------------------------------- copies */

/* Copies from device memory to the disk, a piece at a time. */
static mm_status store(mm_stash *s, int64_t offset, const uint8_t *from, int64_t bytes) {
    s->stats.store_bytes += bytes;
    if (!s->staging) return mm_disk_write(s->disk, offset, from, bytes);
    for (int64_t done = 0; done < bytes; done += STAGING) {
        const int64_t now = bytes - done < STAGING ? bytes - done : STAGING;
        MM_TRY(mm_stash_sync_copy(s, s->staging, from + done, now, MM_COPY_OUT));
        MM_TRY(mm_stash_sync_drain(s));
        MM_TRY(mm_disk_write(s->disk, offset + done, s->staging, now));
    }
    return MM_OK;
}

static mm_status load(mm_stash *s, int64_t offset, uint8_t *to, int64_t bytes) {
    s->stats.load_bytes += bytes;
    if (!s->staging) return mm_disk_read(s->disk, offset, to, bytes);
    for (int64_t done = 0; done < bytes; done += STAGING) {
        const int64_t now = bytes - done < STAGING ? bytes - done : STAGING;
        MM_TRY(mm_disk_read(s->disk, offset + done, s->staging, now));
        MM_TRY(mm_stash_sync_copy(s, to + done, s->staging, now, MM_COPY_IN));
        MM_TRY(mm_stash_sync_drain(s));
    }
    return MM_OK;
}

mm_status mm_stash_host_write(mm_stash *s, const mm_stash_slot *e, const mm_stash_host *host, const void *from) {
    if (host->where == MM_STASH_ON_DISK) return store(s, host->offset, from, e->kind.bytes);
    return mm_stash_sync_copy(s, host->memory, from, e->kind.bytes, MM_COPY_OUT);
}

mm_status mm_stash_host_read(mm_stash *s, const mm_stash_slot *e, void *to) {
    if (e->host.where == MM_STASH_ON_DISK) return load(s, e->host.offset, to, e->kind.bytes);
    return mm_stash_sync_copy(s, to, e->host.memory, e->kind.bytes, MM_COPY_IN);
}

mm_status mm_stash_host_fetch(mm_stash *s, const mm_stash_slot *e, void *to) {
    if (e->host.where == MM_STASH_ON_DISK) {
        s->stats.load_bytes += e->kind.bytes;
        return mm_disk_read(s->disk, e->host.offset, to, e->kind.bytes);
    }
    memcpy(to, e->host.memory, (size_t)e->kind.bytes);
    return MM_OK;
}

/* ---------------------------------------------------------------- the disk */

mm_status mm_stash_disk_open(mm_stash *s) {
    const mm_stash_options *o = &s->options;
    if (!o->disk) return MM_OK;
    MM_TRY(mm_disk_create(o->disk, o->disk_bytes, &s->disk));
    if (!s->is_inline) MM_TRY(mm_device_reserve(s->device, MM_MEMORY_PINNED, STAGING, &s->staging));
    return mm_ranges_init(&s->file, 0, o->disk_bytes / MM_DISK_BLOCK * MM_DISK_BLOCK);
}

void mm_stash_disk_close(mm_stash *s) {
    mm_ranges_fini(&s->file);
    if (s->staging) mm_device_release(s->device, MM_MEMORY_PINNED, s->staging, STAGING);
    mm_disk_destroy(s->disk);
}

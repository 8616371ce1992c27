/* SPDX-License-Identifier: MIT */
/* Entries of an iteration without a plan. A new entry is copied to the lowest free piece of the arena. If no free piece
 * is large enough, entries are copied to host memory, the oldest first, until one is. An entry that is read is copied
 * back in the same way. Its copy in host memory stays, so it can leave the arena again without a further copy.
 *
 *      the caller's memory --put--> arena --evict--> host memory --bring--> arena
 *
 * A held entry stays where it is. Host memory is pinned memory; once that is used up, the disk, if there is one, and
 * then ordinary memory (stash_host.c). Copies are enqueued on the stash's stream in the order of the calls, so a piece
 * can be used for the next entry at once; those to and from the disk block. */
#include "mm/stash/stash_unplanned.h"

#include "mm/core/plan/plan.h"
#include "mm/core/size.h"
#include "mm/stash/stash.h"
#include "mm/stash/stash_arena.h"
#include "mm/stash/stash_desc.h"
#include "mm/stash/stash_host.h"
#include "mm/stash/stash_report.h"
#include "mm/stash/stash_sync.h"

static uint8_t *arena_at(const mm_stash *s, int64_t offset) { return (uint8_t *)mm_pool_base(s->pool) + offset; }

/* Bytes that a piece of the arena or of pinned memory takes. */
static int64_t piece(const mm_stash_slot *e) { return mm_stash_piece(&e->kind); }

/* ---------------------------------------------------------------- the arena */

static void arena_enter(mm_stash *s, mm_stash_slot *e, int64_t offset) {
    e->offset = offset;
    e->newer = NULL;
    e->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = e;
    s->newest = e;
    if (offset + piece(e) > s->extent_bytes) s->extent_bytes = offset + piece(e);
    if (offset + piece(e) > s->unplanned_bytes) s->unplanned_bytes = offset + piece(e);
    mm_stash_note_peak(s);
}

static void arena_leave(mm_stash *s, mm_stash_slot *e) {
    if (e->offset < 0) return;
    *(e->older ? &e->older->newer : &s->oldest) = e->newer;
    *(e->newer ? &e->newer->older : &s->newest) = e->older;
    mm_stash_give(s, &s->arena, e->offset, piece(e));
    e->offset = -1;
}

/* Copies an entry to host memory, unless it has a copy there, and takes it out of the arena. */
static mm_status evict(mm_stash *s, mm_stash_slot *e) {
    if (e->host.where == MM_STASH_NOWHERE) {
        mm_stash_host host;
        MM_TRY(mm_stash_host_take(s, e, &host));
        mm_status status = mm_stash_host_write(s, e, &host, arena_at(s, e->offset));
        if (status != MM_OK) {
            mm_stash_host_give(s, e, &host);
            return status;
        }
        e->host = host;
        s->stats.out_bytes += e->kind.bytes;
    }
    arena_leave(s, e);
    return MM_OK;
}

static mm_stash_slot *next_to_leave(const mm_stash *s) {
    mm_stash_slot *e = s->oldest;
    while (e && e->held > 0) e = e->newer;
    return e;
}

/* Returns MM_ERR_INFEASIBLE: held and kept entries leave no room. The least budget that it names has room for the entry
 * above the highest end of a held one, and for the kept entries. */
static mm_status refuse(mm_stash *s, const mm_stash_slot *e) {
    int64_t held = 0, end = 0;
    for (const mm_stash_slot *h = s->oldest; h; h = h->newer) {
        if (h->held == 0) continue;
        held += piece(h);
        if (h->offset + piece(h) > end) end = h->offset + piece(h);
    }
    const int64_t needed = end + piece(e) + s->stats.kept_bytes;
    mm_stash_note_refusal(s, &e->kind, e->number, needed);
    return mm_fail(MM_ERR_INFEASIBLE,
                   "no room for %s of %s: %s are held, %s kept, and the budget is %s; %s would be enough",
                   MM_SIZE_TEXT(piece(e)), mm_stash_producer(&e->kind), MM_SIZE_TEXT(held),
                   MM_SIZE_TEXT(s->stats.kept_bytes), MM_SIZE_TEXT(s->options.device_bytes), MM_SIZE_TEXT(needed));
}

/* Finds room in the arena; evicts entries that are not held, until there is room. */
static mm_status make_room(mm_stash *s, const mm_stash_slot *e, int64_t *offset_out) {
    for (;;) {
        MM_TRY(mm_stash_take(s, &s->arena, piece(e), offset_out));
        if (*offset_out >= 0) return MM_OK;
        mm_stash_slot *leaves = next_to_leave(s);
        if (!leaves) return refuse(s, e);
        MM_TRY(evict(s, leaves));
    }
}

/* Copies an entry's bytes into the arena: the caller's, or (data NULL) those in host memory. On failure the entry has
 * no place there. */
static mm_status copy_in(mm_stash *s, mm_stash_slot *e, const void *data, int64_t *bytes) {
    int64_t offset;
    MM_TRY(make_room(s, e, &offset));
    mm_status status = data ? mm_stash_sync_copy(s, arena_at(s, offset), data, e->kind.bytes, MM_COPY_DEVICE)
                            : mm_stash_host_read(s, e, arena_at(s, offset));
    if (status != MM_OK) {
        mm_stash_give(s, &s->arena, offset, piece(e));
        return status;
    }
    arena_enter(s, e, offset);
    *bytes += e->kind.bytes;
    return MM_OK;
}

mm_status mm_stash_unplanned_put(mm_stash *s, mm_stash_slot *e, const void *data) {
    return copy_in(s, e, data, &s->stats.moved_bytes);
}

mm_status mm_stash_unplanned_bring(mm_stash *s, mm_stash_slot *e) {
    return e->offset >= 0 ? MM_OK : copy_in(s, e, NULL, &s->stats.in_bytes);
}

void mm_stash_unplanned_free(mm_stash *s, mm_stash_slot *e) {
    arena_leave(s, e);
    mm_stash_host_give(s, e, &e->host);
}

/* ---------------------------------------------------------------- from and to plans */

mm_status mm_stash_unplanned_reserve(mm_stash *s, int n) {
    MM_TRY(mm_ranges_reserve(&s->arena, (size_t)n + 2));
    MM_TRY(mm_ranges_reserve(&s->host, (size_t)n + 2));
    return s->disk ? mm_ranges_reserve(&s->file, (size_t)n + 2) : MM_OK;
}

void mm_stash_unplanned_take_over(mm_stash *s, mm_stash_slot *const *slots, int n) {
    for (int i = 0; i < n; i++) {
        mm_stash_slot *e = slots[i];
        if (!e) continue;
        if (e->offset >= 0) {
            mm_ranges_take_at(&s->arena, e->offset, piece(e));
            s->taken++;
            arena_enter(s, e, e->offset);
        }
        mm_stash_host_take_over(s, e);
    }
}

/* Moves an entry to ordinary host memory, out of the arena, of pinned memory and of the disk. */
static mm_status clear(mm_stash *s, mm_stash_slot *e) {
    mm_stash_host host;
    if (e->host.where == MM_STASH_IN_ORDINARY) {
        arena_leave(s, e);
        return MM_OK;
    }
    MM_TRY(mm_stash_host_ordinary(s, e, &host));
    mm_status status = e->host.where != MM_STASH_NOWHERE ? mm_stash_host_fetch(s, e, host.memory)
                                                         : mm_stash_host_write(s, e, &host, arena_at(s, e->offset));
    if (status != MM_OK) {
        mm_stash_host_give(s, e, &host);
        return status;
    }
    mm_stash_host_give(s, e, &e->host);
    arena_leave(s, e);
    e->host = host;
    return MM_OK;
}

bool mm_stash_unplanned_clear(mm_stash *s) {
    if (s->taken == 0) return true;
    mm_status drained = mm_stash_sync_drain(s); /* so that copies to pinned memory have arrived */
    bool clears = drained == MM_OK;
    for (size_t c = 0; clears && c < s->table.n_chunks; c++)
        for (int i = 0; clears && i < MM_STASH_CHUNK; i++) {
            mm_stash_slot *e = &s->table.chunks[c][i];
            if (!e->id || e->kept || e->lost) continue;
            clears = e->held == 0 && clear(s, e) == MM_OK;
        }
    return clears;
}

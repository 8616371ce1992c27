/* SPDX-License-Identifier: MIT */
/* Places the entries of an order as stash_unplanned.c does, without their bytes. */
#include "mm/stash/stash_need.h"

#include <stdlib.h>

#include "buffers/layout/ranges.h"
#include "mm/core/plan/plan.h"
#include "mm/stash/stash_plan.h"

/* An entry: where it lies, and its neighbours among those in the arena, in the order in which they came there. */
typedef struct place {
    int64_t offset; /* -1: not in the arena */
    bool held;
    int older, newer; /* -1: none */
} place;

typedef struct arena {
    const mm_order *order;
    mm_ranges free;
    place *places;
    int oldest, newest;
    int rounds; /* number of arenas that were too small */
} arena;

/* The first STEPS arenas that are tried are near each other (chosen): where entries lie depends on the arena, so a
 * smaller one than the next refusal names is often enough. */
enum { STEPS = 32 };

static int64_t piece(const arena *a, int entry) { return mm_stash_piece(&a->order->entries[entry]); }

static void leave(arena *a, int entry) {
    place *p = &a->places[entry];
    if (p->offset < 0) return;
    *(p->older >= 0 ? &a->places[p->older].newer : &a->oldest) = p->newer;
    *(p->newer >= 0 ? &a->places[p->newer].older : &a->newest) = p->older;
    mm_ranges_give(&a->free, p->offset, piece(a, entry));
    p->offset = -1;
}

static int next_to_leave(const arena *a) {
    int entry = a->oldest;
    while (entry >= 0 && a->places[entry].held) entry = a->places[entry].newer;
    return entry;
}

/* An entry finds no room in an arena of `bytes`. Returns a larger one to try: at least what is held and the entry, and
 * a step towards the one that has room for the entry above the highest end of a held one. */
static int64_t larger(const arena *a, int entry, int64_t bytes) {
    int64_t end = 0, held = 0;
    for (int h = a->oldest; h >= 0; h = a->places[h].newer) {
        if (!a->places[h].held) continue;
        held += piece(a, h);
        if (a->places[h].offset + piece(a, h) > end) end = a->places[h].offset + piece(a, h);
    }
    const int64_t step = (end + piece(a, entry) - bytes) / (a->rounds < STEPS ? STEPS : 1);
    return mm_align(held + piece(a, entry) > bytes + step ? held + piece(a, entry) : bytes + step);
}

/* Returns 0; or, if the entry finds no room, a larger arena to try. */
static int64_t enter(arena *a, int entry, int64_t bytes) {
    place *p = &a->places[entry];
    if (p->offset >= 0) return 0;
    while ((p->offset = mm_ranges_take(&a->free, piece(a, entry), MM_ALIGN, MM_FIT_LOWEST)) < 0) {
        const int leaves = next_to_leave(a);
        if (leaves < 0) return larger(a, entry, bytes);
        leave(a, leaves);
    }
    p->newer = -1;
    p->older = a->newest;
    *(a->newest >= 0 ? &a->places[a->newest].newer : &a->oldest) = entry;
    a->newest = entry;
    return 0;
}

/* Runs the order in an arena of `bytes`. Returns 0; or, if an entry finds no room, a larger arena to try. */
static int64_t run(arena *a, int64_t bytes) {
    int64_t next = 0;
    a->oldest = a->newest = -1;
    a->free.n = 0;
    a->free.free[a->free.n++] = (mm_span){0, bytes};
    for (int i = 0; i < a->order->n_entries; i++) a->places[i] = (place){.offset = -1, .older = -1, .newer = -1};
    for (int i = 0; i < a->order->n_events && next == 0; i++) {
        const mm_order_event *e = &a->order->events[i];
        if (e->kind == MM_ORDER_PUT || e->kind == MM_ORDER_GET) next = enter(a, e->entry, bytes);
        a->places[e->entry].held = e->kind == MM_ORDER_GET;
        if (e->kind == MM_ORDER_END) leave(a, e->entry);
    }
    return next;
}

mm_status mm_stash_need(const mm_order *o, int64_t least, int64_t *bytes_out) {
    arena a = {.order = o, .places = malloc(((size_t)o->n_entries + 1) * sizeof *a.places)};
    int64_t bytes = mm_align(least);
    mm_status status = a.places ? mm_ranges_init(&a.free, 0, bytes) : MM_ERR_NOMEM;
    if (status == MM_OK) status = mm_ranges_reserve(&a.free, (size_t)o->n_entries + 2);
    for (int64_t next; status == MM_OK && (next = run(&a, bytes)) > 0; a.rounds++) bytes = next;
    mm_ranges_fini(&a.free);
    free(a.places);
    if (status != MM_OK) return mm_fail(MM_ERR_NOMEM, "out of memory for an order of %d entries", o->n_entries);
    *bytes_out = bytes;
    return MM_OK;
}

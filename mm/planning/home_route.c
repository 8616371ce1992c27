/* SPDX-License-Identifier: MIT */
#include "mm/planning/home_route.h"

#include <stdlib.h>
#include <string.h>

/* Where a piece is. */
typedef enum spot { AT_HOME, IN_BUFFER, ARRIVED } spot;

typedef struct finder {
    mm_route *route;
    uint8_t *spot;            /* per piece */
    int32_t *waits;           /* per piece: how many others are still at home in the bytes that it goes to, */
    int64_t *blocked;         /* and what these take */
    int32_t *taken;           /* per piece: the step that took it */
    int32_t *by_from, *by_to; /* pieces by where they were, and by where they go */
    int32_t *ready;           /* queue of pieces that wait for nothing */
    int n_ready, next_ready;
    int32_t *held; /* pieces in the buffer, by their slots */
    int n_held, next_home;
} finder;

/* ---------------------------------------------------------------- which bytes pieces share */

static int64_t end_of(const mm_place *place, int64_t bytes) {
    return place->offset + mm_memory_round(place->memory, bytes);
}

static const mm_place *place_of(const mm_route_piece *p, bool after) { return after ? &p->to : &p->from; }

/* The first in an order of pieces that ends beyond the beginning of a range. */
static int find_first(const finder *f, const int32_t *order, bool after, const mm_place *range) {
    int low = 0, high = f->route->n_pieces;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const mm_route_piece *p = &f->route->pieces[order[middle]];
        const mm_place *place = place_of(p, after);
        const bool before =
            place->memory != range->memory ? place->memory < range->memory : end_of(place, p->bytes) <= range->offset;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The piece at *at of an order, if it has bytes in common with a range; moves *at on. -1: there is none any more. */
static int next_sharing(const finder *f, const int32_t *order, bool after, const mm_place *range, int64_t bytes,
                        int *at) {
    if (*at >= f->route->n_pieces) return -1;
    const mm_place *place = place_of(&f->route->pieces[order[*at]], after);
    if (place->memory != range->memory || place->offset >= end_of(range, bytes)) return -1;
    return order[(*at)++];
}

/* ---------------------------------------------------------------- the buffer */

static int64_t slot_end(const finder *f, int32_t piece) {
    const mm_route_piece *p = &f->route->pieces[piece];
    return p->slot + (p->bytes + MM_ROUTE_SLOT - 1) / MM_ROUTE_SLOT * MM_ROUTE_SLOT;
}

/* Gives a piece the first slot that has room for it. */
static void hold(finder *f, int32_t piece) {
    mm_route_piece *p = &f->route->pieces[piece];
    int at = 0;
    p->slot = 0;
    while (at < f->n_held && f->route->pieces[f->held[at]].slot < slot_end(f, piece))
        p->slot = slot_end(f, f->held[at++]);
    memmove(&f->held[at + 1], &f->held[at], (size_t)(f->n_held - at) * sizeof *f->held);
    f->held[at] = piece;
    f->n_held++;
    if (slot_end(f, piece) > f->route->buffer_bytes) f->route->buffer_bytes = slot_end(f, piece);
}

static void let_go(finder *f, int32_t piece) {
    int at = 0;
    while (f->held[at] != piece) at++;
    memmove(&f->held[at], &f->held[at + 1], (size_t)(f->n_held - at - 1) * sizeof *f->held);
    f->n_held--;
}

/* ---------------------------------------------------------------- steps */

static void add(finder *f, int32_t piece, bool puts) {
    f->route->steps[f->route->n_steps++] = (mm_route_step){piece, puts};
}

static void put(finder *f, int32_t piece) {
    const mm_route_piece *p = &f->route->pieces[piece];
    int at = find_first(f, f->by_from, false, &p->to);
    for (int q; (q = next_sharing(f, f->by_from, false, &p->to, p->bytes, &at)) >= 0;)
        if (f->route->pieces[q].over > f->route->n_steps) f->route->pieces[q].over = f->route->n_steps;
    add(f, piece, true);
    let_go(f, piece);
    f->spot[piece] = ARRIVED;
}

/* Takes a piece; who waited for it alone becomes ready. */
static void take(finder *f, int32_t piece) {
    const mm_route_piece *p = &f->route->pieces[piece];
    hold(f, piece);
    f->taken[piece] = f->route->n_steps;
    add(f, piece, false);
    f->spot[piece] = IN_BUFFER;
    int at = find_first(f, f->by_to, true, &p->from);
    for (int q; (q = next_sharing(f, f->by_to, true, &p->from, p->bytes, &at)) >= 0;)
        if (q != piece) {
            f->blocked[q] -= p->bytes;
            if (--f->waits[q] == 0) f->ready[f->n_ready++] = q;
        }
}

/* The pieces that are in the way of one go to the buffer, so that it becomes ready. */
static void clear_for(finder *f, int32_t piece) {
    const mm_route_piece *p = &f->route->pieces[piece];
    int at = find_first(f, f->by_from, false, &p->to);
    for (int q; (q = next_sharing(f, f->by_from, false, &p->to, p->bytes, &at)) >= 0;)
        if (q != piece && f->spot[q] == AT_HOME) take(f, q);
}

/* Of the pieces in the buffer, the one for which it grows least if it is put where it goes, and of equal ones the first
 * that was taken: then the buffer takes a third less than with the last (measured). If there are none, the first piece
 * that is at home. */
static int32_t choose(finder *f) {
    int32_t best = -1;
    int64_t least = INT64_MAX;
    for (int i = 0; i < f->n_held; i++) {
        const int64_t growth = f->blocked[f->held[i]] - f->route->pieces[f->held[i]].bytes;
        if (growth > least || (growth == least && f->taken[f->held[i]] > f->taken[best])) continue;
        least = growth;
        best = f->held[i];
    }
    while (best < 0 && f->spot[f->next_home] != AT_HOME) f->next_home++;
    return best >= 0 ? best : f->next_home;
}

static void find_steps(finder *f) {
    const int n = f->route->n_pieces;
    for (int arrived = 0; arrived < n;) {
        if (f->next_ready < f->n_ready) {
            const int32_t piece = f->ready[f->next_ready++];
            if (f->spot[piece] == AT_HOME) take(f, piece);
            put(f, piece);
            arrived++;
        } else
            clear_for(f, choose(f));
    }
}

/* ---------------------------------------------------------------- pieces */

static void add_pieces(mm_route *r, const mm_route_item *items, int n, int64_t piece_bytes) {
    for (int i = 0; i < n; i++)
        for (int64_t done = 0; mm_place_differs(&items[i].from, &items[i].to) && done < items[i].bytes;
             done += piece_bytes) {
            const int64_t left = items[i].bytes - done;
            r->pieces[r->n_pieces++] = (mm_route_piece){.item = i,
                                                        .offset = done,
                                                        .bytes = left < piece_bytes ? left : piece_bytes,
                                                        .from = {items[i].from.offset + done, items[i].from.memory},
                                                        .to = {items[i].to.offset + done, items[i].to.memory},
                                                        .over = INT32_MAX};
        }
}

typedef struct key {
    mm_place place;
    int32_t piece;
} key;

static int by_place(const void *a, const void *b) {
    const mm_place *x = &((const key *)a)->place, *y = &((const key *)b)->place;
    if (x->memory != y->memory) return x->memory < y->memory ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void sort(const mm_route *r, bool after, key *keys, int32_t *order) {
    for (int i = 0; i < r->n_pieces; i++) keys[i] = (key){*place_of(&r->pieces[i], after), i};
    qsort(keys, (size_t)r->n_pieces, sizeof *keys, by_place);
    for (int i = 0; i < r->n_pieces; i++) order[i] = keys[i].piece;
}

/* Counts for whom each piece waits. */
static void count_waits(finder *f) {
    for (int i = 0; i < f->route->n_pieces; i++) {
        const mm_route_piece *p = &f->route->pieces[i];
        int at = find_first(f, f->by_from, false, &p->to);
        for (int q; (q = next_sharing(f, f->by_from, false, &p->to, p->bytes, &at)) >= 0;) {
            if (q == i) continue;
            f->waits[i]++;
            f->blocked[i] += f->route->pieces[q].bytes;
        }
        if (f->waits[i] == 0) f->ready[f->n_ready++] = i;
    }
}

static mm_status find_route(mm_route *r, int most) {
    const size_t n = (size_t)most + 1;
    finder f = {.route = r,
                .spot = calloc(n, 1),
                .waits = calloc(n, sizeof *f.waits),
                .blocked = calloc(n, sizeof *f.blocked),
                .taken = malloc(n * sizeof *f.taken),
                .by_from = malloc(n * sizeof *f.by_from),
                .by_to = malloc(n * sizeof *f.by_to),
                .ready = malloc(n * sizeof *f.ready),
                .held = malloc(n * sizeof *f.held)};
    key *keys = malloc(n * sizeof *keys);
    mm_status status = MM_OK;
    if (f.spot && f.waits && f.blocked && f.taken && f.by_from && f.by_to && f.ready && f.held && keys) {
        sort(r, false, keys, f.by_from);
        sort(r, true, keys, f.by_to);
        count_waits(&f);
        find_steps(&f);
    } else
        status = mm_fail(MM_ERR_NOMEM, "out of memory to move %d pieces of persistent tensors", most);
    free(f.spot);
    free(f.waits);
    free(f.blocked);
    free(f.taken);
    free(f.by_from);
    free(f.by_to);
    free(f.ready);
    free(f.held);
    free(keys);
    return status;
}

static mm_status init(const mm_route_item *items, int n, int64_t piece_bytes, mm_route *route_out) {
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        if (mm_place_differs(&items[i].from, &items[i].to)) most += (items[i].bytes + piece_bytes - 1) / piece_bytes;
    mm_route r = {.pieces = malloc(((size_t)most + 1) * sizeof *r.pieces),
                  .steps = malloc((2 * (size_t)most + 1) * sizeof *r.steps)};
    mm_status status = MM_OK;
    if (!r.pieces || !r.steps || most > INT32_MAX / 4)
        status = mm_fail(MM_ERR_NOMEM, "out of memory to move %d persistent tensors", n);
    if (status == MM_OK) {
        add_pieces(&r, items, n, piece_bytes);
        status = find_route(&r, (int)most);
    }
    if (status == MM_OK)
        *route_out = r;
    else
        mm_route_fini(&r);
    return status;
}

mm_status mm_route_init(const mm_route_item *items, int n, int64_t piece_bytes, int64_t most_bytes,
                        mm_route *route_out) {
    const int64_t less = piece_bytes / MM_ROUTE_LESS / MM_ROUTE_SLOT * MM_ROUTE_SLOT;
    MM_TRY(init(items, n, piece_bytes, route_out));
    if (route_out->buffer_bytes <= most_bytes || less == 0) return MM_OK;
    mm_route_fini(route_out);
    return init(items, n, less, route_out);
}

void mm_route_fini(mm_route *r) {
    free(r->pieces);
    free(r->steps);
    *r = (mm_route){0};
}

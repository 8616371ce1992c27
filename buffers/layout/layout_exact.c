/* SPDX-License-Identifier: MIT */
/* Exact placement within a given height: branch and bound, for items that a heuristic does not fit in. What is known
 * of the problem is after MiniMalloc (Moffitt, ASPLOS 2023) and its sources: canonical placements, the room that the
 * boxes of a time need, dominated places, and parts that are solved apart. The bound of boxes that were passed over,
 * the witnesses and the restarts are our own.
 *
 * Any placement can be pushed down until each box stands on another one or on the ground. So it is enough to place
 * boxes by offset (ties by rank), each on what is placed already: its support. A branch either places a box there, or
 * passes over it. A box that is passed over has to stand on one of those that are still open, so it is no lower than
 * the lowest top of those that it lives together with. A branch ends where at some time
 *
 *      the lowest open box's offset + sizes of all open boxes > height
 *
 * A search that goes wrong early takes forever, so it is begun again with another order of boxes when it has taken some
 * nodes. Then the number of nodes grows. If one search ends, there is no placement. */
#include <stdlib.h>
#include <string.h>

#include "buffers/layout/layout_problem.h"

typedef struct piece {
    int64_t size;
    int32_t first, last; /* times; see merge_times */
    int32_t box;         /* of the problem */
    int32_t kind;        /* the first box of the same life and size */
    int32_t twin;        /* a piece of the same kind that is placed before; -1: none */
    int64_t load;        /* the most bytes alive at one of its times */
} piece;

/* What pieces are ranked by. */
typedef enum order { BY_LIFE, BY_LOAD, BY_AREA, ORDERS } order;

typedef struct order_key {
    double value, area;
    piece piece;
} order_key;

/* A change of a piece, to be undone. */
typedef struct change {
    int32_t piece;
    int64_t low, support;
} change;

typedef struct exact {
    int64_t height;
    int32_t n;     /* of the present section */
    piece *pieces; /* by rank */
    /* per piece */
    int64_t *support; /* the highest end of placed pieces that it lives together with */
    int64_t *low;     /* no placement of the present branch has it lower; above `support` if it was passed over */
    int64_t *offset;
    bool *is_placed;
    order_key *keys;
    int32_t *twin_of; /* per kind: its last piece so far */
    int32_t *open;    /* a part's pieces lie one after the other, those not placed yet first */
    /* per time */
    int64_t *sizes;    /* of open pieces */
    int32_t *crossing; /* number of open pieces that live at this time and the next */
    int32_t *witness;  /* a piece of this time; probably the one that begins low enough */
    change *changes;
    size_t n_changes, changes_capacity;
    bool is_full;  /* there is no room for more changes */
    int64_t nodes; /* left for the present search */
    uint64_t random;
} exact;

/* Open pieces open[begin] to open[end - 1], which are all those that live between the times `from` and `to`. */
typedef struct part {
    int32_t begin, end;
    int32_t from, to;
} part;

/* A place in the order in which pieces are placed. */
typedef struct place {
    int64_t offset;
    int32_t piece;
} place;

typedef enum outcome { FOUND, NONE, STOPPED } outcome;

/* ---------------------------------------------------------------- pieces */

static bool live_together(const piece *a, const piece *b) { return a->first <= b->last && b->first <= a->last; }

static void set_low(exact *e, int32_t p, int64_t low, int64_t support) {
    e->changes[e->n_changes++] = (change){p, e->low[p], e->support[p]};
    e->low[p] = low;
    e->support[p] = support;
}

static void undo_changes(exact *e, size_t mark) {
    while (e->n_changes > mark) {
        const change *c = &e->changes[--e->n_changes];
        e->low[c->piece] = c->low;
        e->support[c->piece] = c->support;
    }
}

/* sign -1: the piece is not open any more. True: a part falls apart. */
static bool count_open(exact *e, const piece *p, int sign) {
    bool apart = false;
    for (int32_t t = p->first; t <= p->last; t++) e->sizes[t] += sign * p->size;
    for (int32_t t = p->first; t < p->last; t++) apart |= (e->crossing[t] += sign) == 0;
    return apart;
}

/* ---------------------------------------------------------------- bounds */

static int32_t find_witness(const exact *e, const part *p, int32_t time, int64_t latest) {
    for (int32_t i = p->begin; i < p->end; i++) {
        const int32_t open = e->open[i];
        if (e->low[open] <= latest && e->pieces[open].first <= time && time <= e->pieces[open].last) return open;
    }
    return -1;
}

/* Whether the open pieces of each time from `from` to `to` may fit on each other. None is below `floor`. */
static bool may_fit(exact *e, const part *p, int32_t from, int32_t to, int64_t floor) {
    for (int32_t t = from; t <= to; t++) {
        if (e->sizes[t] == 0) continue;
        const int64_t latest = e->height - e->sizes[t];
        if (floor > latest) return false;
        if (!e->is_placed[e->witness[t]] && e->low[e->witness[t]] <= latest) continue;
        const int32_t witness = find_witness(e, p, t, latest);
        if (witness < 0) return false;
        e->witness[t] = witness;
    }
    return true;
}

/* A piece at this offset or above would waste room: all of what another open piece takes on its support, or what the
 * pieces of a time need. */
static int64_t ceiling_of(const exact *e, const part *p) {
    int64_t ceiling = INT64_MAX;
    for (int32_t i = p->begin; i < p->end; i++) {
        const int32_t open = e->open[i];
        const int64_t top = e->support[open] + e->pieces[open].size;
        if (top < ceiling) ceiling = top;
    }
    for (int32_t t = p->from; t <= p->to; t++)
        if (e->sizes[t] > 0 && e->height - e->sizes[t] < ceiling) ceiling = e->height - e->sizes[t] + 1;
    return ceiling;
}

/* ---------------------------------------------------------------- the search */

/* Moves the next piece to be placed behind `since`, and below `ceiling`, to the part's end. False: there is none. */
static bool next_place(exact *e, const part *p, int64_t ceiling, place *since) {
    place next = {ceiling, -1};
    int32_t at = -1;
    for (int32_t i = p->begin; i < p->end; i++) {
        const int32_t open = e->open[i], twin = e->pieces[open].twin;
        const int64_t offset = e->support[open];
        if (offset > next.offset || (offset == next.offset && open > next.piece)) continue;
        if (offset < since->offset || (offset == since->offset && open <= since->piece)) continue;
        if (e->low[open] > offset || (twin >= 0 && !e->is_placed[twin])) continue;
        next = (place){offset, open};
        at = i;
    }
    if (at < 0) return false;
    e->open[at] = e->open[p->end - 1];
    e->open[p->end - 1] = next.piece;
    *since = next;
    return true;
}

static outcome search(exact *e, const part *p, place since);

/* Solves the parts between times that no open piece crosses, one after the other. All such times lie from `first` to
 * `last` - 1, or are ends of the part. */
static outcome search_parts(exact *e, const part *p, int32_t first, int32_t last, place since) {
    part next = {p->begin, p->begin, p->from, 0};
    for (int32_t t = first; t <= last; t++) {
        if (t < last && e->crossing[t] > 0) continue;
        next.to = t < last ? t : p->to;
        for (int32_t i = next.end; i < p->end; i++) {
            const int32_t open = e->open[i];
            if (e->pieces[open].last > next.to) continue;
            e->open[i] = e->open[next.end];
            e->open[next.end++] = open;
        }
        const outcome result = search(e, &next, since);
        if (result != FOUND) return result;
        next = (part){next.end, next.end, next.to + 1, 0};
    }
    return FOUND;
}

/* Places `at`, the last piece of the part, and searches on with the others. */
static outcome search_with(exact *e, const part *p, place at) {
    const piece *placed = &e->pieces[at.piece];
    const int64_t top = at.offset + placed->size;
    const size_t mark = e->n_changes;
    const part rest = {p->begin, p->end - 1, p->from, p->to};
    e->is_placed[at.piece] = true;
    e->offset[at.piece] = at.offset;
    for (int32_t i = rest.begin; i < rest.end; i++) {
        const int32_t open = e->open[i];
        if (e->support[open] < top && live_together(&e->pieces[open], placed))
            set_low(e, open, e->low[open] > top ? e->low[open] : top, top);
    }
    const bool apart = count_open(e, placed, -1);
    outcome result = NONE;
    if (may_fit(e, &rest, rest.from, rest.to, at.offset))
        result = apart ? search_parts(e, &rest, placed->first, placed->last, at) : search(e, &rest, at);
    (void)count_open(e, placed, 1);
    undo_changes(e, mark);
    e->is_placed[at.piece] = false;
    return result;
}

/* Passes over `at`, the last piece of the part. False: no placement does. */
static bool pass_over(exact *e, const part *p, place at) {
    const piece *passed = &e->pieces[at.piece];
    int64_t low = INT64_MAX;
    for (int32_t i = p->begin; i < p->end - 1; i++) {
        const int32_t open = e->open[i];
        if (!live_together(&e->pieces[open], passed)) continue;
        const int64_t top = (e->low[open] > at.offset ? e->low[open] : at.offset) + e->pieces[open].size;
        if (top < low) low = top;
    }
    if (low == INT64_MAX) return false;
    set_low(e, at.piece, low, at.offset);
    return may_fit(e, p, passed->first, passed->last, at.offset);
}

/* Whether all pieces of the part can be placed behind `since`. Leaves everything as it was, but for the offsets found
 * (and the order within the part); stopped, it leaves what it was at. */
static outcome search(exact *e, const part *p, place since) {
    const size_t mark = e->n_changes;
    const int64_t ceiling = ceiling_of(e, p);
    outcome result = p->begin == p->end ? FOUND : NONE;
    while (result == NONE && next_place(e, p, ceiling, &since)) {
        e->is_full |= e->n_changes + (size_t)(p->end - p->begin) > e->changes_capacity;
        if (e->nodes <= 0 || e->is_full) return STOPPED;
        e->nodes--;
        result = search_with(e, p, since);
        if (result == NONE && !pass_over(e, p, since)) break;
    }
    if (result != STOPPED) undo_changes(e, mark);
    return result;
}

/* ---------------------------------------------------------------- orders */

static int compare_keys(const void *a, const void *b) {
    const order_key *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    if (x->area != y->area) return x->area > y->area ? -1 : 1;
    return x->piece.box < y->piece.box ? -1 : 1;
}

static uint64_t next_random(exact *e) {
    uint64_t z = e->random += 0x9e3779b97f4a7c15; /* splitmix64 from a fixed seed: the same everywhere */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* Ranks the pieces, the most important first; by up to half more or less than their value, if `shuffled`. */
static void rank_pieces(exact *e, order by, bool shuffled) {
    for (int32_t i = 0; i < e->n; i++) {
        const piece *p = &e->pieces[i];
        const double life = (double)(p->last - p->first) + 1, area = life * (double)p->size;
        const double value = by == BY_LIFE ? life : by == BY_LOAD ? (double)p->load : area;
        e->keys[i] = (order_key){value * (shuffled ? (double)(512 + next_random(e) % 1024) : 1), area, *p};
    }
    qsort(e->keys, (size_t)e->n, sizeof *e->keys, compare_keys);
    for (int32_t i = 0; i < e->n; i++) e->twin_of[e->keys[i].piece.kind] = -1;
    for (int32_t i = 0; i < e->n; i++) {
        e->pieces[i] = e->keys[i].piece;
        e->pieces[i].twin = e->twin_of[e->pieces[i].kind];
        e->twin_of[e->pieces[i].kind] = i;
    }
}

/* ---------------------------------------------------------------- sections */

/* Opens all pieces of a section, which lives in the times of `all`. */
static void open_all(exact *e, const part *all) {
    for (int32_t t = all->from; t <= all->to; t++) e->sizes[t] = e->crossing[t] = 0;
    for (int32_t i = 0; i < e->n; i++) {
        e->open[i] = i;
        e->support[i] = e->low[i] = 0;
        e->is_placed[i] = false;
        e->witness[e->pieces[i].first] = i;
        (void)count_open(e, &e->pieces[i], 1);
    }
    for (int32_t i = 0; i < e->n; i++)
        for (int32_t t = e->pieces[i].first; t <= e->pieces[i].last; t++) e->witness[t] = i;
    e->n_changes = 0;
}

/* Searches with each order in turn. Limits of nodes grow as 1, 2, 1, 4, 1, 2, 1, 8, ..., after Luby et al. (1993).
 * FIRST is chosen: a search that succeeds at once takes little more than a node a piece. */
static outcome solve_section(exact *e, const part *all, int64_t *nodes) {
    enum { FIRST = 5 };
    for (int64_t round = 1;; round++) {
        for (order by = BY_LIFE; by < ORDERS; by++) {
            const int64_t limit = FIRST * e->n * (round & -round), given = limit < *nodes ? limit : *nodes;
            rank_pieces(e, by, round > 1);
            open_all(e, all);
            e->nodes = given;
            const outcome result = may_fit(e, all, all->from, all->to, 0) ? search(e, all, (place){0, -1}) : NONE;
            *nodes = e->is_full ? 0 : *nodes - given + e->nodes;
            if (result != STOPPED || *nodes <= 0) return result;
        }
    }
}

/* Numbers times anew: two that follow each other become one if no box ends between them, since all boxes of the first
 * live at the second, too. time_out: per time of the problem. Returns the number of times. */
static int32_t merge_times(const mm_layout_problem *problem, int32_t *time_out) {
    for (int32_t t = 0; t < problem->times; t++) time_out[t] = 0;
    for (int32_t i = 0; i < problem->n; i++) time_out[problem->boxes[i].last] = 1;
    int32_t times = 0;
    for (int32_t t = 0; t < problem->times; t++) {
        const int32_t ends = time_out[t];
        time_out[t] = times;
        times += ends;
    }
    return times;
}

/* Takes the section that begins with box `begin` of the problem. Returns the box behind it. */
static int32_t take_section(exact *e, const mm_layout_problem *problem, const int32_t *time, int32_t begin,
                            part *all_out) {
    int32_t i = begin, last = time[problem->boxes[begin].last];
    e->n = 0;
    for (; i < problem->n && time[problem->boxes[i].first] <= last; i++, e->n++) {
        const mm_box *box = &problem->boxes[i];
        piece *p = &e->pieces[e->n];
        *p = (piece){box->size, time[box->first], time[box->last], i, e->n, -1, 0};
        for (int32_t k = e->n - 1; k >= 0 && e->pieces[k].first == p->first && p->kind == e->n; k--)
            if (e->pieces[k].last == p->last && e->pieces[k].size == p->size) p->kind = e->pieces[k].kind;
        if (p->last > last) last = p->last;
    }
    *all_out = (part){0, e->n, e->pieces[0].first, last};
    open_all(e, all_out);
    for (int32_t k = 0; k < e->n; k++)
        for (int32_t t = e->pieces[k].first; t <= e->pieces[k].last; t++)
            if (e->sizes[t] > e->pieces[k].load) e->pieces[k].load = e->sizes[t];
    return i;
}

/* ---------------------------------------------------------------- the whole */

static mm_status exact_init(exact *e, const mm_layout_problem *problem, int64_t height) {
    enum { MOST_CHANGES = 1 << 20 }; /* on one path: up to n * n. This is enough for any 1024 pieces, and is 24 MiB */
    const size_t n = (size_t)problem->n, times = (size_t)problem->times;
    *e = (exact){.height = height, .changes_capacity = n * n < MOST_CHANGES ? n * n : MOST_CHANGES};
    e->pieces = malloc(n * sizeof *e->pieces);
    e->keys = malloc(n * sizeof *e->keys);
    e->twin_of = malloc(n * sizeof *e->twin_of);
    e->support = malloc(n * sizeof *e->support);
    e->low = malloc(n * sizeof *e->low);
    e->offset = malloc(n * sizeof *e->offset);
    e->is_placed = malloc(n * sizeof *e->is_placed);
    e->open = malloc(n * sizeof *e->open);
    e->sizes = malloc(times * sizeof *e->sizes);
    e->crossing = malloc(times * sizeof *e->crossing);
    e->witness = malloc(times * sizeof *e->witness);
    e->changes = malloc(e->changes_capacity * sizeof *e->changes);
    return e->pieces && e->keys && e->twin_of && e->support && e->low && e->offset && e->is_placed && e->open &&
                   e->sizes && e->crossing && e->witness && e->changes
               ? MM_OK
               : mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
}

static void exact_fini(exact *e) {
    free(e->pieces);
    free(e->keys);
    free(e->twin_of);
    free(e->support);
    free(e->low);
    free(e->offset);
    free(e->is_placed);
    free(e->open);
    free(e->sizes);
    free(e->crossing);
    free(e->witness);
    free(e->changes);
}

static outcome solve(exact *e, const mm_layout_problem *problem, const int32_t *time, int64_t *nodes,
                     mm_placement *found) {
    for (int32_t begin = 0; begin < problem->n;) {
        part all;
        begin = take_section(e, problem, time, begin, &all);
        const outcome result = solve_section(e, &all, nodes);
        if (result != FOUND) return result;
        for (int32_t i = 0; i < e->n; i++) {
            const int64_t end = e->offset[i] + e->pieces[i].size;
            found->offset[e->pieces[i].box] = e->offset[i];
            if (end > found->height) found->height = end;
        }
    }
    return FOUND;
}

mm_status mm_layout_exact(const mm_layout_problem *problem, int64_t height, int64_t *nodes, mm_placement *best) {
    if (problem->n > MM_LAYOUT_EXACT_ITEMS) *nodes = 0;
    if (problem->n == 0 || problem->n > MM_LAYOUT_EXACT_ITEMS || height < problem->lower_bound ||
        best->height <= height)
        return MM_OK;
    exact e;
    mm_placement found = {.offset = malloc((size_t)problem->n * sizeof *found.offset)};
    int32_t *time = malloc((size_t)problem->times * sizeof *time);
    mm_status status = exact_init(&e, problem, height);
    if (status == MM_OK && (!found.offset || !time))
        status = mm_fail(MM_ERR_NOMEM, "no memory to place %d items", problem->n);
    if (status == MM_OK) {
        (void)merge_times(problem, time);
        if (solve(&e, problem, time, nodes, &found) == FOUND) {
            memcpy(best->offset, found.offset, (size_t)problem->n * sizeof *found.offset);
            best->height = found.height;
        }
    }
    exact_fini(&e);
    free(time);
    free(found.offset);
    return status;
}

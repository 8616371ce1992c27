/* SPDX-License-Identifier: MIT */
/* Exact placement within a given height: branch and bound, for items that a heuristic does not fit into it. MiniMalloc
 * (Moffitt, ASPLOS 2023) and its sources have canonical placements, the bound by the sizes of the boxes alive at one
 * time, dominated places, and independent parts solved separately. Added here are the bound for boxes that were passed
 * over, the witnesses (may_fit) and the restarts.
 *
 * Any placement can be pushed down until each box stands on another one or on the ground. So it is enough to place
 * boxes in order of offset (ties by rank), each on its support: the highest end of the placed boxes that are alive
 * together with it. A branch either places the next box there, or passes over it. A box that was passed over must stand
 * on a box that is still open (not placed), so it is no lower than the lowest possible end of an open box that is alive
 * together with it. A branch ends when at some time
 *
 *      the lowest open box's offset + sizes of all open boxes > height
 *
 * A search that decides wrongly at the beginning may take forever. So after a number of nodes, which grows, it is
 * restarted with another order of boxes. If a search ends without a placement, there is none. */
#include <stdlib.h>
#include <string.h>

#include "buffers/layout/layout_problem.h"

/* A box of the present section (take_section). */
typedef struct piece {
    int64_t size;
    int32_t first, last; /* times; see merge_times */
    int32_t box;         /* index in problem->boxes */
    int32_t kind;        /* index, before ranking, of the first piece that has the same times and size */
    int32_t twin;        /* the piece of the same kind that must be placed before it; -1: none */
    int64_t load;        /* the most bytes alive at one of its times */
} piece;

/* Value by which pieces are ranked. */
typedef enum order { BY_LIFE, BY_LOAD, BY_AREA, ORDERS } order;

typedef struct order_key {
    double value, area;
    piece piece;
} order_key;

/* A piece's values before a change, to undo it. */
typedef struct change {
    int32_t piece;
    int64_t low, support;
} change;

typedef struct exact {
    int64_t height;
    int32_t n;     /* pieces of the present section */
    piece *pieces; /* in order of rank */
    /* per piece */
    int64_t *support; /* the highest end of placed pieces that it lives together with */
    int64_t *low;     /* lower bound of its offset in the present branch; above `support` if it was passed over */
    int64_t *offset;
    bool *is_placed;
    order_key *keys;
    int32_t *twin_of; /* per kind: its last piece so far */
    int32_t *open;    /* all pieces; those of a part lie next to each other, the unplaced ones first */
    /* per time */
    int64_t *sizes;    /* sum of the open pieces' sizes */
    int32_t *crossing; /* number of open pieces that live at this time and the next */
    int32_t *witness;  /* a piece alive at this time: the one to which may_fit looks first */
    change *changes;
    size_t n_changes, changes_capacity;
    bool is_full;  /* there is no room for more changes */
    int64_t nodes; /* left for the present search */
    uint64_t random;
} exact;

/* Pieces open[begin] to open[end - 1]: all open pieces that live between the times `from` and `to`. */
typedef struct part {
    int32_t begin, end;
    int32_t from, to;
} part;

/* Pieces are placed in ascending order of (offset, piece). */
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

/* Counts the piece as open (sign 1), or as open no longer (sign -1). Returns true if no open piece crosses one of its
 * times any more, so that the part can be split there. */
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

/* Checks the bound at the top of this file at the times `from` to `to`. No open piece can lie below `floor`. A time may
 * fit if one open piece alive then, its witness, can lie low enough. */
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

/* The next piece must be placed below this offset. If it were placed higher, another open piece would fit wholly
 * underneath, or the open pieces of some time would not fit below the height any more. */
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

/* Finds the first place after `since` and below `ceiling`, and moves its piece to the part's end. Returns false if
 * there is none. */
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

/* Splits the part at the times that no open piece crosses, and solves the pieces in between one after the other. All
 * times that no open piece crosses lie from `first` to `last` - 1, or are ends of the part. */
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

/* Passes over `at`, the last piece of the part. Raises the lower bound of its offset. Returns false if no placement is
 * left. */
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

/* Tries to place all pieces of the part after `since`. Restores everything but the offsets found and the order within
 * the part. If it is STOPPED, the bounds that pass_over raised remain. */
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

/* Ranks the pieces, those of the largest value first. If `shuffled`, a random factor changes each value by up to
 * half. */
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

/* Opens all pieces of the section `all`. */
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

/* Searches with each order in turn. Limits of nodes follow 1, 2, 1, 4, 1, 2, 1, 8, ... (Luby et al., 1993), times FIRST
 * for each piece. FIRST is chosen: a search that succeeds at once takes little more than one node for each piece. */
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

/* Renumbers times: successive times become one if no box ends between them, because all boxes alive at the first are
 * alive at the second, too. time_out: the new time of each time of the problem. Returns the number of new times. */
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

/* Copies the section that begins with box `begin` to e->pieces. No box of a section is alive together with one of
 * another section. Returns the box after the section. */
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
    enum {
        MOST_CHANGES = 1 << 20
    }; /* one path makes up to n * n changes; this is enough for 1024 pieces, and takes 24
                                      * MiB */
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

/* SPDX-License-Identifier: MIT */
/* The exact search for a placement within a given height: sections, orders and restarts around layout_branch.c.
 *
 * A search that decides wrongly at the beginning may take forever. So after a number of nodes, which grows, it is
 * restarted with another order of boxes. If a search ends without a placement, there is none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "buffers/layout/layout_branch.h"
#include "mm/core/splitmix.h"

typedef struct order_key {
    double value, area;
    int32_t piece;
} order_key;

typedef struct exact {
    mm_branch branch;
    const mm_layout_problem *problem;
    int32_t *time; /* per time of the problem: see merge_times */
    order_key *keys;
    int32_t *twin_of; /* per kind: its last piece so far */
    mm_placement found;
    uint64_t random;
} exact;

/* ---------------------------------------------------------------- orders */

static int compare_keys(const void *a, const void *b) {
    const order_key *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    if (x->area != y->area) return x->area > y->area ? -1 : 1;
    return x->piece < y->piece ? -1 : 1;
}

/* size ^ (quarters / 4). Square roots are the same on every machine, powers are not. */
static double size_power(int64_t size, int quarters) {
    const double half = sqrt((double)size);
    return (quarters & 4 ? (double)size : 1) * (quarters & 2 ? half : 1) * (quarters & 1 ? sqrt(half) : 1);
}

/* How much the times of a piece are to blame for failures, from 0 to BLAME. */
static double blame_of(const mm_branch *b, const mm_piece *p, int64_t most) {
    enum { BLAME = 8 }; /* chosen: 4 and 16 are as good */
    int64_t blame = 0;
    for (int32_t t = p->first; t <= p->last; t++)
        if (b->blame[t] > blame) blame = b->blame[t];
    return BLAME * (double)blame / (double)(most > 0 ? most : 1);
}

/* Ranks the pieces by lifetime * size ^ (quarters / 4), the largest first. If `shuffled`, a random factor changes each
 * value by up to half, and pieces alive where searches have failed come earlier. */
static void rank_pieces(exact *e, int quarters, bool shuffled) {
    mm_branch *b = &e->branch;
    int64_t most = 0;
    for (int32_t t = 0; t < b->times; t++)
        if (b->blame[t] > most) most = b->blame[t];
    for (int32_t i = 0; i < b->n; i++) {
        const mm_piece *p = &b->pieces[i];
        const double life = (double)(p->last - p->first) + 1;
        double value = life * size_power(p->size, quarters);
        if (shuffled) value *= (double)(512 + mm_random_next(&e->random) % 1024) * (1 + blame_of(b, p, most));
        e->keys[i] = (order_key){value, life * (double)p->size, i};
    }
    qsort(e->keys, (size_t)b->n, sizeof *e->keys, compare_keys);
    for (int32_t i = 0; i < b->n; i++) e->twin_of[i] = -1;
    for (int32_t i = 0; i < b->n; i++) {
        const int32_t piece = e->keys[i].piece;
        b->rank[piece] = i;
        b->pieces[piece].twin = e->twin_of[b->pieces[piece].kind];
        e->twin_of[b->pieces[piece].kind] = piece;
    }
}

/* The limit of a round's searches. Most searches that succeed do so soon, so most rounds are short. Each SHORT-th one
 * is longer, by 1, 2, 1, 4, 1, 2, 1, 8, ... (Luby et al., 1993): so the search ends in time, if there is no placement.
 * FIRST and SHORT are chosen: a search that succeeds at once takes little more than one node for each piece. */
static int64_t limit_of(int64_t round, int32_t n) {
    enum { FIRST = 5, SHORT = 16 };
    const int64_t longer = round / SHORT;
    return FIRST * n * (round % SHORT == 0 ? 2 * (longer & -longer) : 1);
}

/* Searches with each of these orders in turn. */
static mm_branch_result solve_section(exact *e, int64_t *nodes) {
    static const int quarters[] = {0, 2, 4};
    enum { ORDERS = sizeof quarters / sizeof *quarters };
    mm_branch *b = &e->branch;
    memset(b->blame, 0, (size_t)b->times * sizeof *b->blame);
    for (int64_t round = 1;; round++) {
        for (int i = 0; i < ORDERS; i++) {
            const int64_t limit = limit_of(round, b->n), given = limit < *nodes ? limit : *nodes;
            rank_pieces(e, quarters[i], round > 1);
            mm_branch_open(b);
            b->nodes = given;
            const mm_branch_result result = mm_branch_search(b);
            *nodes = b->is_full ? 0 : *nodes - given + b->nodes;
            if (result != MM_BRANCH_STOPPED || *nodes <= 0) return result;
        }
    }
}

/* ---------------------------------------------------------------- sections */

/* Renumbers times: successive times become one if no box ends between them, because all boxes alive at the first are
 * alive at the second, too. time_out: the new time of each time of the problem. */
static void merge_times(const mm_layout_problem *problem, int32_t *time_out) {
    for (int32_t t = 0; t < problem->times; t++) time_out[t] = 0;
    for (int32_t i = 0; i < problem->n; i++) time_out[problem->boxes[i].last] = 1;
    int32_t times = 0;
    for (int32_t t = 0; t < problem->times; t++) {
        const int32_t ends = time_out[t];
        time_out[t] = times;
        times += ends;
    }
}

static bool live_together(const mm_piece *a, const mm_piece *b) { return a->first <= b->last && b->first <= a->last; }

/* Fills the lists of the section: who lives together, and who is alive when. Pieces are in order of first. */
static void list_pieces(mm_branch *b) {
    int32_t n = 0;
    for (int32_t i = 0; i < b->n; i++) {
        b->near.begin[i] = n;
        for (int32_t k = 0; k < b->n && b->pieces[k].first <= b->pieces[i].last; k++)
            if (k != i && live_together(&b->pieces[i], &b->pieces[k])) b->near.at[n++] = k;
    }
    b->near.begin[b->n] = n;
    n = 0;
    for (int32_t t = 0; t < b->times; t++) {
        b->alive.begin[t] = n;
        for (int32_t i = 0; i < b->n && b->pieces[i].first <= t; i++)
            if (b->pieces[i].last >= t) b->alive.at[n++] = i;
    }
    b->alive.begin[b->times] = n;
}

/* Copies the section that begins with box `begin` to the pieces. Returns the box after the section. */
static int32_t take_section(exact *e, int32_t begin) {
    mm_branch *b = &e->branch;
    const mm_box *boxes = e->problem->boxes;
    const int32_t start = e->time[boxes[begin].first];
    int32_t i = begin, last = 0;
    b->n = 0;
    for (; i < e->problem->n && (i == begin || e->time[boxes[i].first] - start <= last); i++) {
        mm_piece *p = &b->pieces[b->n];
        *p = (mm_piece){.size = boxes[i].size,
                        .given = boxes[i].given,
                        .first = e->time[boxes[i].first] - start,
                        .last = e->time[boxes[i].last] - start,
                        .box = i,
                        .kind = b->n,
                        .twin = -1};
        for (int32_t k = b->n - 1; k >= 0 && p->given < 0 && b->pieces[k].first == p->first && p->kind == b->n; k--)
            if (b->pieces[k].given < 0 && b->pieces[k].last == p->last && b->pieces[k].size == p->size)
                p->kind = b->pieces[k].kind;
        if (p->last > last) last = p->last;
        b->n++;
    }
    b->times = last + 1;
    list_pieces(b);
    mm_branch_open(b);
    for (int32_t k = 0; k < b->n; k++)
        for (int32_t t = b->pieces[k].first; t <= b->pieces[k].last; t++)
            if (b->sizes[t] > b->pieces[k].load) b->pieces[k].load = b->sizes[t];
    return i;
}

/* ---------------------------------------------------------------- the whole */

static mm_status branch_init(mm_branch *b, const mm_layout_problem *problem, int64_t height) {
    /* One path makes up to n * n changes; this is enough for 1024 pieces, and takes 24 MiB. */
    enum { MOST_CHANGES = 1 << 20 };
    const size_t n = (size_t)problem->n, times = (size_t)problem->times;
    size_t together = 0;
    for (int32_t i = 0; i < problem->n; i++)
        for (int32_t k = i + 1; k < problem->n && problem->boxes[k].first <= problem->boxes[i].last; k++) together += 2;
    size_t lives = 0;
    for (int32_t i = 0; i < problem->n; i++) lives += (size_t)(problem->boxes[i].last - problem->boxes[i].first) + 1;
    *b = (mm_branch){.height = height, .changes_capacity = n * n < MOST_CHANGES ? n * n : MOST_CHANGES};
    b->pieces = malloc(n * sizeof *b->pieces);
    b->rank = malloc(n * sizeof *b->rank);
    b->near = (mm_piece_lists){malloc((n + 1) * sizeof *b->near.begin), malloc((together + 1) * sizeof *b->near.at)};
    b->alive = (mm_piece_lists){malloc((times + 1) * sizeof *b->alive.begin), malloc(lives * sizeof *b->alive.at)};
    b->support = malloc(n * sizeof *b->support);
    b->low = malloc(n * sizeof *b->low);
    b->offset = malloc(n * sizeof *b->offset);
    b->is_placed = malloc(n * sizeof *b->is_placed);
    b->open = malloc(n * sizeof *b->open);
    b->sizes = malloc(times * sizeof *b->sizes);
    b->crossing = malloc(times * sizeof *b->crossing);
    b->witness = malloc(times * sizeof *b->witness);
    b->blame = calloc(times, sizeof *b->blame);
    b->changes = malloc(b->changes_capacity * sizeof *b->changes);
    return b->pieces && b->rank && b->near.begin && b->near.at && b->alive.begin && b->alive.at && b->support &&
                   b->low && b->offset && b->is_placed && b->open && b->sizes && b->crossing && b->witness &&
                   b->blame && b->changes
               ? MM_OK
               : mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
}

static void branch_fini(mm_branch *b) {
    free(b->pieces);
    free(b->rank);
    free(b->near.begin);
    free(b->near.at);
    free(b->alive.begin);
    free(b->alive.at);
    free(b->support);
    free(b->low);
    free(b->offset);
    free(b->is_placed);
    free(b->open);
    free(b->sizes);
    free(b->crossing);
    free(b->witness);
    free(b->blame);
    free(b->changes);
}

static mm_status exact_init(exact *e, const mm_layout_problem *problem, int64_t height) {
    const size_t n = (size_t)problem->n;
    *e = (exact){.problem = problem};
    e->time = malloc((size_t)problem->times * sizeof *e->time);
    e->keys = malloc(n * sizeof *e->keys);
    e->twin_of = malloc(n * sizeof *e->twin_of);
    e->found.offset = malloc(n * sizeof *e->found.offset);
    MM_TRY(branch_init(&e->branch, problem, height));
    return e->time && e->keys && e->twin_of && e->found.offset
               ? MM_OK
               : mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
}

static void exact_fini(exact *e) {
    branch_fini(&e->branch);
    free(e->time);
    free(e->keys);
    free(e->twin_of);
    free(e->found.offset);
}

static mm_branch_result solve(exact *e, int64_t *nodes) {
    const mm_branch *b = &e->branch;
    for (int32_t begin = 0; begin < e->problem->n;) {
        begin = take_section(e, begin);
        const mm_branch_result result = solve_section(e, nodes);
        if (result != MM_BRANCH_FOUND) return result;
        for (int32_t i = 0; i < b->n; i++) {
            const int64_t end = b->offset[i] + b->pieces[i].size;
            e->found.offset[b->pieces[i].box] = b->offset[i];
            if (end > e->found.height) e->found.height = end;
        }
    }
    return MM_BRANCH_FOUND;
}

mm_status mm_layout_exact(const mm_layout_problem *problem, int64_t height, int64_t *nodes, mm_placement *best) {
    if (problem->n > MM_LAYOUT_EXACT_ITEMS) *nodes = 0;
    if (problem->n == 0 || problem->n > MM_LAYOUT_EXACT_ITEMS || height < problem->lower_bound ||
        best->height <= height)
        return MM_OK;
    exact e;
    mm_status status = exact_init(&e, problem, height);
    if (status == MM_OK) {
        merge_times(problem, e.time);
        if (solve(&e, nodes) == MM_BRANCH_FOUND) {
            memcpy(best->offset, e.found.offset, (size_t)problem->n * sizeof *best->offset);
            best->height = e.found.height;
        }
    }
    exact_fini(&e);
    return status;
}

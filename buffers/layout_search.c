/* Placement box by box: each goes to the lowest gap (or the closest) among the boxes already placed that are alive
 * together with it, so the result depends only on the order; the search is over orders. */
#include "buffers/layout_problem.h"

#include <stdlib.h>
#include <string.h>

/* A placed box. Kept sorted by offset. */
typedef struct placed {
    int64_t begin, end;
    int32_t first, last;
} placed;

typedef struct search {
    const mm_layout_problem *problem;
    placed *placed;
    int32_t n_placed;
    int32_t *order, *trial; /* box indices: the order that is being improved, and a change of it */
    int64_t *offset;        /* of the last placement */
    int64_t height;
    int64_t work;
    uint64_t random;
} search;

static mm_status search_init(search *s, const mm_layout_problem *problem) {
    size_t n = (size_t)problem->n;
    *s = (search){.problem = problem};
    s->placed = malloc(n * sizeof *s->placed);
    s->order = malloc(n * sizeof *s->order);
    s->trial = malloc(n * sizeof *s->trial);
    s->offset = malloc(n * sizeof *s->offset);
    if (!s->placed || !s->order || !s->trial || !s->offset) {
        return mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
    }
    return MM_OK;
}

static void search_fini(search *s) {
    free(s->placed);
    free(s->order);
    free(s->trial);
    free(s->offset);
}

/* splitmix64; a fixed seed: the same placement everywhere. */
static uint64_t next_random(search *s) {
    uint64_t z = s->random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static int32_t random_below(search *s, int32_t n) { return (int32_t)(next_random(s) % (uint64_t)n); }

/* Where the box goes among the placed ones. */
static int64_t find_gap(search *s, const mm_box *box, bool closest) {
    int64_t top = 0, best = -1, best_gap = INT64_MAX;
    int32_t i = 0;
    for (; i < s->n_placed; i++) {
        const placed *p = &s->placed[i];
        if (p->last < box->first || p->first > box->last) continue;
        int64_t gap = p->begin - top;
        if (gap >= box->bytes && gap < best_gap) {
            best = top;
            best_gap = gap;
            if (!closest || gap == box->bytes) break;
        }
        if (p->end > top) top = p->end;
    }
    s->work += i + 8;
    return best >= 0 ? best : top;
}

static void insert_placed(search *s, const mm_box *box, int64_t offset) {
    int32_t low = 0, high = s->n_placed;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (s->placed[middle].begin > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    memmove(&s->placed[low + 1], &s->placed[low], (size_t)(s->n_placed - low) * sizeof *s->placed);
    s->placed[low] = (placed){offset, offset + box->bytes, box->first, box->last};
    s->n_placed++;
    s->work += (s->n_placed - low) / 2;
}

/* Places all boxes in that order; false as soon as one ends above `limit`. */
static bool place(search *s, const int32_t *order, bool closest, int64_t limit) {
    s->n_placed = 0;
    s->height = 0;
    for (int32_t i = 0; i < s->problem->n; i++) {
        const mm_box *box = &s->problem->boxes[order[i]];
        int64_t offset = find_gap(s, box, closest);
        if (offset + box->bytes > limit) return false;
        if (offset + box->bytes > s->height) s->height = offset + box->bytes;
        s->offset[order[i]] = offset;
        insert_placed(s, box, offset);
    }
    return true;
}

static void keep(const search *s, mm_placement *best) {
    memcpy(best->offset, s->offset, (size_t)s->problem->n * sizeof *best->offset);
    best->height = s->height;
}

static bool done(const search *s, int64_t work_limit, const mm_placement *best) {
    return best->height == s->problem->lower_bound || s->work > work_limit;
}

static void try_orders(search *s, int64_t work_limit, mm_placement *best) {
    static const mm_layout_order orders[] = {MM_ORDER_LIFE, MM_ORDER_AREA, MM_ORDER_BYTES, MM_ORDER_FIRST,
                                             MM_ORDER_LAST};
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        mm_layout_order_boxes(s->problem, orders[o], s->trial);
        for (int closest = 0; closest < 2; closest++) {
            if (done(s, work_limit, best)) return;
            if (place(s, s->trial, closest, best->height - 1)) keep(s, best);
        }
    }
}

typedef struct offset_key {
    int64_t offset;
    int32_t box;
} offset_key;

static int compare_offset(const void *a, const void *b) {
    const offset_key *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->box < y->box ? -1 : x->box > y->box;
}

/* The order of the boxes from the bottom up: placing them again in it ends no higher. */
static mm_status order_bottom_up(const mm_layout_problem *problem, const int64_t *offset, int32_t *order_out) {
    offset_key *keys = malloc((size_t)problem->n * sizeof *keys);
    if (!keys) return mm_fail(MM_ERR_NOMEM, "no memory to sort %d items", problem->n);
    for (int32_t i = 0; i < problem->n; i++) keys[i] = (offset_key){offset[i], i};
    qsort(keys, (size_t)problem->n, sizeof *keys, compare_offset);
    for (int32_t i = 0; i < problem->n; i++) order_out[i] = keys[i].box;
    free(keys);
    return MM_OK;
}

/* Moves the element at `from` to `to` < from. */
static void move_forward(int32_t *order, int32_t from, int32_t to) {
    int32_t box = order[from];
    memmove(&order[to + 1], &order[to], (size_t)(from - to) * sizeof *order);
    order[to] = box;
}

/* Changes s->trial: one of the boxes that stick out above the goal goes before boxes that were placed earlier. */
static void change(search *s, const int64_t *offset, int64_t goal) {
    int32_t n = s->problem->n, seen = 0, pick = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t box = s->trial[i];
        if (offset[box] + s->problem->boxes[box].bytes > goal && random_below(s, ++seen) == 0) pick = i;
    }
    if (pick > 0) move_forward(s->trial, pick, random_below(s, 2) ? 0 : random_below(s, pick));
    if (random_below(s, 4) == 0) {
        int32_t from = random_below(s, n);
        if (from > 0) move_forward(s->trial, from, random_below(s, from));
    }
}

static mm_status improve(search *s, int64_t work_limit, mm_placement *best) {
    int32_t n = s->problem->n;
    size_t order_bytes = (size_t)n * sizeof *s->order;
    int64_t *offset = malloc((size_t)n * sizeof *offset); /* of s->order's placement */
    if (!offset) return mm_fail(MM_ERR_NOMEM, "no memory to place %d items", n);
    mm_status status = order_bottom_up(s->problem, best->offset, s->order);
    memcpy(offset, best->offset, (size_t)n * sizeof *offset);
    int64_t height = best->height;
    while (status == MM_OK && !done(s, work_limit, best)) {
        memcpy(s->trial, s->order, order_bytes);
        int64_t goal = s->problem->lower_bound + (height - 1 - s->problem->lower_bound) * random_below(s, 4) / 3;
        change(s, offset, goal);
        if (!place(s, s->trial, false, height)) continue;
        memcpy(s->order, s->trial, order_bytes);
        memcpy(offset, s->offset, (size_t)n * sizeof *offset);
        height = s->height;
        if (height < best->height) keep(s, best);
    }
    free(offset);
    return status;
}

mm_status mm_layout_search(const mm_layout_problem *problem, int64_t *work, mm_placement *best) {
    search s;
    mm_status status = search_init(&s, problem);
    if (status == MM_OK) {
        try_orders(&s, *work, best);
        status = improve(&s, *work, best);
    }
    *work -= s.work;
    search_fini(&s);
    return status;
}

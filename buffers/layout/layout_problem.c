/* SPDX-License-Identifier: MIT */
#include "buffers/layout/layout_problem.h"

#include <inttypes.h>
#include <stdlib.h>

static int compare_first(const void *a, const void *b) {
    const mm_box *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static mm_status check_item(const mm_interval *item, size_t i, int64_t left, int64_t align) {
    if (item->last < item->first)
        return mm_fail(MM_ERR_INVALID, "item %zu is alive from %d to %d: it ends before it begins", i, item->first,
                       item->last);
    if (item->bytes < 0 || item->bytes > left - align)
        return mm_fail(MM_ERR_INVALID,
                       "item %zu has %" PRId64 " bytes: must be at least 0, and all items together at most 2^62", i,
                       item->bytes);
    if (item->is_given && (item->offset < 0 || item->offset > INT64_C(1) << 61 || item->offset % align != 0))
        return mm_fail(MM_ERR_INVALID,
                       "item %zu has the given offset %" PRId64 ": must be a multiple of %" PRId64 " from 0 to 2^61", i,
                       item->offset, align);
    return MM_OK;
}

static mm_status check(const mm_interval *items, size_t n, int64_t align) {
    if (align <= 0) return mm_fail(MM_ERR_INVALID, "the alignment must be above 0, but is %" PRId64, align);
    if (n > INT32_MAX / 2)
        return mm_fail(MM_ERR_INVALID, "cannot place %zu items: at most %d are allowed", n, INT32_MAX / 2);
    int64_t left = INT64_C(1) << 62;
    for (size_t i = 0; i < n; i++) {
        MM_TRY(check_item(&items[i], i, left, align));
        left -= (items[i].bytes + align - 1) / align * align;
    }
    return MM_OK;
}

/* Planners mostly pass items that are sorted already. Sorting them again would be most of the time that planning
 * takes. */
static bool are_in_order(const mm_box *boxes, int32_t n) {
    for (int32_t i = 1; i < n; i++)
        if (boxes[i].first < boxes[i - 1].first) return false;
    return true;
}

/* Replaces positions by times (mm_box); boxes must be sorted by first. Returns the number of times. */
static int32_t rank_times(mm_box *boxes, int32_t n, int32_t *position) {
    int32_t times = 0;
    for (int32_t i = 0; i < n; i++) {
        if (times == 0 || position[times - 1] != boxes[i].first) position[times++] = boxes[i].first;
        boxes[i].first = times - 1;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t low = boxes[i].first, far = 1; /* the last rank whose position is not after boxes[i].last */
        for (; low + far < times && position[low + far] <= boxes[i].last; far *= 2) low += far; /* most are near */
        int32_t high = low + far < times ? low + far : times;
        while (high - low > 1) {
            int32_t middle = low + (high - low) / 2;
            if (position[middle] <= boxes[i].last) {
                low = middle;
            } else {
                high = middle;
            }
        }
        boxes[i].last = low;
    }
    return times;
}

static int64_t load_peak(const mm_layout_problem *problem, int64_t *change) {
    for (int32_t t = 0; t <= problem->times; t++) change[t] = 0;
    for (int32_t i = 0; i < problem->n; i++) {
        change[problem->boxes[i].first] += problem->boxes[i].size;
        change[problem->boxes[i].last + 1] -= problem->boxes[i].size;
    }
    int64_t load = 0, peak = 0;
    for (int32_t t = 0; t < problem->times; t++) {
        load += change[t];
        if (load > peak) peak = load;
    }
    return peak;
}

/* Refuses given boxes that overlap. Sets any_given, and raises the lower bound to the highest given end. */
static mm_status check_given(mm_layout_problem *problem, int64_t align) {
    for (int32_t i = 0; i < problem->n; i++) {
        const mm_box *a = &problem->boxes[i];
        if (a->given < 0) continue;
        problem->any_given = true;
        if (a->given + a->size > problem->lower_bound) problem->lower_bound = a->given + a->size;
        for (int32_t k = i + 1; k < problem->n && problem->boxes[k].first <= a->last; k++) {
            const mm_box *b = &problem->boxes[k];
            if (b->given < 0 || b->given >= a->given + a->size || a->given >= b->given + b->size) continue;
            return mm_fail(MM_ERR_INVALID,
                           "items %d and %d are alive together, but their given bytes, %" PRId64 " to %" PRId64
                           " and %" PRId64 " to %" PRId64 ", overlap: give other offsets, or leave one free",
                           a->item, b->item, a->given * align, (a->given + a->size) * align, b->given * align,
                           (b->given + b->size) * align);
        }
    }
    return MM_OK;
}

mm_status mm_layout_problem_init(mm_layout_problem *problem, const mm_interval *items, size_t n, int64_t align) {
    *problem = (mm_layout_problem){0};
    MM_TRY(check(items, n, align));
    mm_box *boxes = malloc((n + 1) * sizeof *boxes);
    int64_t *scratch = malloc((n + 1) * sizeof *scratch); /* positions, then changes of the load */
    if (!boxes || !scratch) {
        free(boxes);
        free(scratch);
        return mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
    }
    for (size_t i = 0; i < n; i++) {
        if (items[i].bytes == 0) continue;
        boxes[problem->n++] = (mm_box){.size = (items[i].bytes + align - 1) / align,
                                       .given = items[i].is_given ? items[i].offset / align : -1,
                                       .first = items[i].first,
                                       .last = items[i].last,
                                       .item = (int32_t)i};
    }
    if (!are_in_order(boxes, problem->n)) qsort(boxes, (size_t)problem->n, sizeof *boxes, compare_first);
    problem->boxes = boxes;
    problem->times = rank_times(boxes, problem->n, (int32_t *)scratch);
    problem->lower_bound = load_peak(problem, scratch);
    free(scratch);
    mm_status status = check_given(problem, align);
    if (status != MM_OK) mm_layout_problem_fini(problem);
    return status;
}

void mm_layout_problem_fini(mm_layout_problem *problem) {
    free(problem->boxes);
    *problem = (mm_layout_problem){0};
}

/* ---------------------------------------------------------------- the lower bound */

/* The number of positions from the first to the last, if these are not many more than the items. 0: they are, or there
 * are no items, or given ones. */
static size_t dense_positions(const mm_interval *items, size_t n, int32_t *first_out) {
    enum { SPARSE = 8 }; /* chosen */
    int32_t first = INT32_MAX, last = INT32_MIN;
    for (size_t i = 0; i < n; i++) {
        if (items[i].is_given) return 0;
        if (items[i].first < first) first = items[i].first;
        if (items[i].last > last) last = items[i].last;
    }
    *first_out = first;
    return n > 0 && (int64_t)last - first < SPARSE * (int64_t)n ? (size_t)((int64_t)last - first) + 1 : 0;
}

/* The most units alive at one of the positions. -1: no memory. */
static int64_t dense_peak(const mm_interval *items, size_t n, int64_t align, int32_t first, size_t positions) {
    int64_t *change = calloc(positions + 1, sizeof *change), load = 0, peak = 0;
    if (!change) return -1;
    for (size_t i = 0; i < n; i++) {
        const int64_t size = (items[i].bytes + align - 1) / align;
        change[(int64_t)items[i].first - first] += size;
        change[(int64_t)items[i].last - first + 1] -= size;
    }
    for (size_t at = 0; at < positions; at++) {
        load += change[at];
        if (load > peak) peak = load;
    }
    free(change);
    return peak;
}

int64_t mm_layout_lower_bound(const mm_interval *items, size_t n, int64_t align) {
    mm_layout_problem problem;
    int32_t first;
    if (check(items, n, align) != MM_OK) return -1;
    const size_t positions = dense_positions(items, n, &first);
    if (positions > 0) {
        const int64_t peak = dense_peak(items, n, align, first, positions);
        if (peak < 0) mm_fail_set("no memory to place %zu items", n);
        return peak < 0 ? -1 : peak * align;
    }
    if (mm_layout_problem_init(&problem, items, n, align) != MM_OK) return -1;
    const int64_t bound = problem.lower_bound * align;
    mm_layout_problem_fini(&problem);
    return bound;
}

/* ---------------------------------------------------------------- orders */

typedef struct order_key {
    double value; /* the largest comes first */
    int32_t box;
} order_key;

static double order_value(const mm_box *box, mm_layout_order order) {
    double life = (double)(box->last - box->first) + 1;
    switch (order) {
    case MM_ORDER_LIFE:
        return life;
    case MM_ORDER_SIZE:
        return (double)box->size;
    case MM_ORDER_AREA:
        return life * (double)box->size;
    case MM_ORDER_FIRST:
    case MM_ORDERS:
        break;
    }
    return 0;
}

static int compare_key(const void *a, const void *b) {
    const order_key *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->box < y->box ? -1 : x->box > y->box;
}

mm_status mm_layout_order_boxes(const mm_layout_problem *problem, mm_layout_order order, int32_t *boxes_out) {
    if (order == MM_ORDER_FIRST) { /* the boxes are in this order already */
        for (int32_t i = 0; i < problem->n; i++) boxes_out[i] = i;
        return MM_OK;
    }
    order_key *keys = malloc((size_t)problem->n * sizeof *keys);
    if (!keys) return mm_fail(MM_ERR_NOMEM, "no memory to sort %d items", problem->n);
    for (int32_t i = 0; i < problem->n; i++) keys[i] = (order_key){order_value(&problem->boxes[i], order), i};
    qsort(keys, (size_t)problem->n, sizeof *keys, compare_key);
    for (int32_t i = 0; i < problem->n; i++) boxes_out[i] = keys[i].box;
    free(keys);
    return MM_OK;
}

/* SPDX-License-Identifier: MIT */
/* Placement around given offsets. The skyline (layout_skyline.c) never looks below itself, and moDNN's allocator never
 * ahead in time, but a given box may float anywhere. So here each free box, in some order, takes the lowest room among
 * the boxes placed so far, the given ones first. The search changes the order: a box that found no room below the goal
 * comes earlier. */
#include <stdlib.h>
#include <string.h>

#include "buffers/layout/layout_problem.h"
#include "mm/core/splitmix.h"

typedef struct around {
    const mm_layout_problem *problem;
    int32_t *order;  /* all boxes */
    int32_t *placed; /* in order of offset */
    int32_t n_placed;
    int64_t *offset;
    int64_t height;
    int32_t blocked;          /* after a failure: its place in the order; -1: the work limit is reached */
    int64_t work, work_limit; /* placed boxes that were looked at */
    uint64_t random;
} around;

static mm_status around_init(around *a, const mm_layout_problem *problem, int64_t work_limit) {
    const size_t n = (size_t)problem->n;
    *a = (around){.problem = problem,
                  .order = malloc(n * sizeof *a->order),
                  .placed = malloc(n * sizeof *a->placed),
                  .offset = malloc(n * sizeof *a->offset),
                  .work_limit = work_limit};
    return a->order && a->placed && a->offset ? MM_OK : mm_fail(MM_ERR_NOMEM, "no memory to place %zu items", n);
}

static void around_fini(around *a) {
    free(a->order);
    free(a->placed);
    free(a->offset);
}

static void put(around *a, int32_t box, int64_t offset) {
    int32_t i = a->n_placed++;
    for (; i > 0 && a->offset[a->placed[i - 1]] > offset; i--) a->placed[i] = a->placed[i - 1];
    a->placed[i] = box;
    a->offset[box] = offset;
    if (offset + a->problem->boxes[box].size > a->height) a->height = offset + a->problem->boxes[box].size;
}

/* The lowest offset at which the box fits; if `exact`, the lowest room of just its size, if there is one. */
static int64_t find_room(around *a, const mm_box *box, bool exact) {
    int64_t end = 0, first = -1;
    for (int32_t i = 0; i < a->n_placed; i++) {
        const mm_box *other = &a->problem->boxes[a->placed[i]];
        const int64_t offset = a->offset[a->placed[i]];
        if (other->first > box->last || box->first > other->last) continue;
        if (offset - end == box->size || (!exact && offset - end > box->size)) return end;
        if (offset - end > box->size && first < 0) first = end;
        if (offset + other->size > end) end = offset + other->size;
    }
    return first >= 0 ? first : end;
}

/* Places all boxes below `goal`, in the present order. Sets `blocked` if it returns false. */
static bool place(around *a, int64_t goal, bool exact) {
    const mm_box *boxes = a->problem->boxes;
    a->n_placed = 0;
    a->height = 0;
    a->blocked = -1;
    for (int32_t i = 0; i < a->problem->n; i++)
        if (boxes[i].given >= 0) put(a, i, boxes[i].given);
    for (int32_t i = 0; i < a->problem->n; i++) {
        const int32_t box = a->order[i];
        if (boxes[box].given >= 0) continue;
        if (a->work > a->work_limit) return false;
        a->work += a->n_placed;
        const int64_t offset = find_room(a, &boxes[box], exact);
        if (offset + boxes[box].size > goal) {
            a->blocked = i;
            return false;
        }
        put(a, box, offset);
    }
    return true;
}

static void keep(const around *a, mm_placement *best) {
    memcpy(best->offset, a->offset, (size_t)a->problem->n * sizeof *best->offset);
    best->height = a->height;
}

mm_status mm_layout_modnn_around(const mm_layout_problem *problem, mm_placement *placement_out) {
    around a;
    mm_status status = around_init(&a, problem, INT64_MAX);
    if (status == MM_OK) status = mm_layout_order_boxes(problem, MM_ORDER_FIRST, a.order);
    if (status == MM_OK && place(&a, INT64_MAX, true)) keep(&a, placement_out);
    around_fini(&a);
    return status;
}

static mm_status search(around *a, mm_placement *best) {
    for (int order = 0; order < MM_ORDERS && best->height > a->problem->lower_bound; order++) {
        MM_TRY(mm_layout_order_boxes(a->problem, (mm_layout_order)order, a->order));
        if (place(a, best->height - 1, false)) keep(a, best);
    }
    MM_TRY(mm_layout_order_boxes(a->problem, MM_ORDER_AREA, a->order));
    while (best->height > a->problem->lower_bound && a->work <= a->work_limit) {
        if (place(a, best->height - 1, false)) {
            keep(a, best);
        } else if (a->blocked > 0) {
            const int32_t to = (int32_t)(mm_random_next(&a->random) % (uint64_t)a->blocked), box = a->order[a->blocked];
            memmove(&a->order[to + 1], &a->order[to], (size_t)(a->blocked - to) * sizeof *a->order);
            a->order[to] = box;
        } else {
            break; /* the first box has no room, or the work is used up */
        }
    }
    return MM_OK;
}

mm_status mm_layout_search_around(const mm_layout_problem *problem, int64_t work, mm_placement *best) {
    around a;
    mm_status status = around_init(&a, problem, work);
    if (status == MM_OK) status = search(&a, best);
    around_fini(&a);
    return status;
}

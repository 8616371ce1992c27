/* SPDX-License-Identifier: MIT */
/* Private to layout: the items of a placement in the form that its algorithms work on. */
#ifndef BUFFERS_LAYOUT_LAYOUT_PROBLEM_H
#define BUFFERS_LAYOUT_LAYOUT_PROBLEM_H

#include "buffers/layout/layout.h"

/* An item of more than zero bytes. Sizes, offsets and heights are in units of the alignment. A time is a rank among the
 * distinct `first` positions. Ranks suffice: two items are alive together exactly if the later one begins while the
 * other is alive. */
typedef struct mm_box {
    int64_t size;
    int64_t given; /* its offset, if the caller gave it; -1: it is free */
    int32_t first, last;
    int32_t item; /* its index among the caller's items */
} mm_box;

/* Boxes are in the order of first, then of item. */
typedef struct mm_layout_problem {
    mm_box *boxes;
    int32_t n;
    int32_t times;
    int64_t lower_bound; /* the most bytes alive at one time, or the highest given end */
    bool any_given;
} mm_layout_problem;

/* Offsets of all boxes. Height 0: there are no boxes. */
typedef struct mm_placement {
    int64_t *offset;
    int64_t height;
} mm_placement;

typedef enum mm_layout_order {
    MM_ORDER_LIFE,  /* the longest lived first */
    MM_ORDER_AREA,  /* size times lifetime, the largest first */
    MM_ORDER_SIZE,  /* the largest first */
    MM_ORDER_FIRST, /* by first use */
    MM_ORDERS
} mm_layout_order;

/* Writes the indices of all n boxes in the given order; ties by index. */
MM_CHECKED mm_status mm_layout_order_boxes(const mm_layout_problem *problem, mm_layout_order order, int32_t *boxes_out);

MM_CHECKED mm_status mm_layout_problem_init(mm_layout_problem *problem, const mm_interval *items, size_t n,
                                            int64_t align);
void mm_layout_problem_fini(mm_layout_problem *problem);

/* moDNN's placement: in order of first use, exact fit before first fit. */
MM_CHECKED mm_status mm_layout_modnn(const mm_layout_problem *problem, mm_placement *placement_out);

/* Likewise around given boxes: each box takes the lowest room of just its size, else the lowest that fits. */
MM_CHECKED mm_status mm_layout_modnn_around(const mm_layout_problem *problem, mm_placement *placement_out);

/* CNTK's placement: the largest first, in groups of boxes that are never alive together. No group shares
 * a byte with a given box. */
MM_CHECKED mm_status mm_layout_groups(const mm_layout_problem *problem, mm_placement *placement_out);

/* Improves *best by a search, until it is no higher than `enough` (at least the lower bound) or `work` is used up. Work
 * counts boxes placed and stretches raised, not time, so the result is the same on every machine. The first placement
 * tried replaces *best even if that is no higher, provided that it is no higher than `enough` or *best. */
MM_CHECKED mm_status mm_layout_search(const mm_layout_problem *problem, int64_t work, int64_t enough,
                                      mm_placement *best);

/* Likewise around given boxes. Work counts boxes that were looked at. */
MM_CHECKED mm_status mm_layout_search_around(const mm_layout_problem *problem, int64_t work, mm_placement *best);

/* If *best is higher than `height`, searches (mm_layout_fit) for a placement that is no higher than `height`, and
 * replaces *best if it finds one. */
MM_CHECKED mm_status mm_layout_exact(const mm_layout_problem *problem, int64_t height, int64_t *nodes,
                                     mm_placement *best);

/* The exact search alone, which MM_LAYOUT_EXACT and MM_LAYOUT_FIT call: for a placement no higher than `height`. The
 * items' offsets must be a valid placement (mm_layout_place). Each item tried at an offset costs one node; the search
 * stops when `*nodes` are used up. It counts nodes, not time, so the result is the same everywhere.
 *
 * *fits_out: true if the offsets, which the search may have replaced, are no higher than `height`. If it is false and
 * *nodes is above 0, no such placement exists. Takes up to 64 MiB of memory, and 2 MiB of stack. More than
 * MM_LAYOUT_EXACT_ITEMS items are not searched; *nodes is 0 then. Errors as mm_layout_place; MM_ERR_INVALID also if an
 * offset is below 0 or no multiple of `align`. */
enum { MM_LAYOUT_EXACT_ITEMS = 2048 };
MM_CHECKED mm_status mm_layout_fit(mm_interval *items, size_t n, int64_t align, int64_t height, int64_t *nodes,
                                   bool *fits_out);

#endif

/* SPDX-License-Identifier: MIT */
/* Placement of tensors by offset: pure arithmetic, no memory. A position is a place in a plan's issue order.
 * Thread-safe. */
#ifndef BUFFERS_LAYOUT_LAYOUT_H
#define BUFFERS_LAYOUT_LAYOUT_H

#include "mm/core/status.h"

/* An item that needs `bytes` from position `first` to position `last`, both included. */
typedef struct mm_interval {
    int64_t bytes;
    int32_t first, last;
    int64_t offset; /* out; in, if is_given: a multiple of the alignment, >= 0 */
    bool is_given;  /* the item lies at that offset, and the others are placed around it */
} mm_interval;

typedef enum mm_layout_algorithm {
    MM_LAYOUT_MODNN, /* moDNN (Chen et al., DATE 2018): in order of first use, exact fit, else first fit */
    MM_LAYOUT_QUICK, /* the best of moDNN and several skyline orders, then a short local search; never above MODNN */
    MM_LAYOUT_SOON,  /* the first of these that meets the goal, after a fourth of the search */
    MM_LAYOUT_LATE,  /* the first skyline order that meets the goal, even if moDNN's is lower; else as QUICK */
    MM_LAYOUT_BEST,  /* QUICK with a longer search */
    MM_LAYOUT_EXACT, /* BEST; if that is higher than the lower bound, also a short exact search for a placement at the
                      * bound */
    MM_LAYOUT_FIT, /* BEST if that meets the goal, else EXACT; if neither does, also a long exact search for a placement
                       * that does */
    MM_LAYOUT_GROUPS, /* CNTK's static allocator: the largest first, in groups of items that are never alive together */
} mm_layout_algorithm;

/* The most bytes alive at one position, each item rounded up to `align`. No placement has a smaller height. Returns -1
 * for items that mm_layout_place would refuse, or when memory is short (mm_last_error says which of the two). */
int64_t mm_layout_lower_bound(const mm_interval *items, size_t n, int64_t align);

/* Gives every item an offset >= 0, a multiple of `align`, so that items alive at one position do not overlap; given
 * offsets stay. *height_out: highest end, rounded up to align. Deterministic. Takes a fraction of a second for 10^4
 * items. Zero-byte items that are not given get offset 0.
 *
 * goal: the height that must be met; MM_LAYOUT_NO_GOAL: none. Only SOON, LATE and FIT go by it; the others place as low
 * as they can, so their result is the same whatever the budget. FIT's effort depends on how near the bound is to the
 * goal: it takes up to some 15 s where only the bound would do, and twice less for each eighth of the way from there up
 * to what EXACT found. It does not search if that is more than a fourth above the goal. A larger goal is met whenever a
 * smaller one is. *height_out may exceed the goal: then none was found.
 *
 * MM_ERR_INVALID (align <= 0, last < first, bytes < 0, more than 2^62 bytes in all, a given offset that is not a
 * multiple of align, given items that overlap), MM_ERR_INFEASIBLE (a given item ends above the goal), MM_ERR_NOMEM. */
#define MM_LAYOUT_NO_GOAL INT64_MAX
MM_CHECKED mm_status mm_layout_place(mm_interval *items, size_t n, mm_layout_algorithm algorithm, int64_t align,
                                     int64_t goal, int64_t *height_out);

/* The sliding workspace of FreeLunch: codes lie one after the other, in order of `rank` (first backward use), ties by
 * index. Offsets begin at 0; only alignment leaves gaps. `first` and `last` are ignored. MM_ERR_INVALID: a size is not
 * legal, or an offset is given. */
MM_CHECKED mm_status mm_layout_sliding(mm_interval *codes, const int32_t *rank, size_t n, int64_t align,
                                       int64_t *height_out);

/* The tensor buffers of FreeLunch: k buffers, each of which holds one item at a time. k is `want_k`, or, if that is 0,
 * the most items alive at one position. An item takes the smallest free buffer that fits it, or else enlarges the
 * largest free one. Buffers lie one after the other from offset 0, each as large as its largest item. Sets offsets;
 * buffer_out[i]: the buffer of item i. MM_ERR_INFEASIBLE: want_k is too small; the message has the k that is
 * needed. MM_ERR_INVALID: an item is not legal, or an offset is given. */
MM_CHECKED mm_status mm_layout_buffers(mm_interval *items, size_t n, int want_k, int64_t align, int32_t *buffer_out,
                                       int *k_out, int64_t *height_out);

#endif

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
    int64_t offset; /* out */
} mm_interval;

typedef enum mm_layout_algorithm {
    MM_LAYOUT_MODNN,  /* moDNN (Chen et al., DATE 2018): in order of first use, exact fit, else first fit */
    MM_LAYOUT_QUICK,  /* the best of moDNN and several skyline orders, then a short local search; never above MODNN */
    MM_LAYOUT_BEST,   /* the same with a longer search */
    MM_LAYOUT_EXACT,  /* BEST; if that is higher than the lower bound, also a short exact search for a placement at the
                      * bound (mm_layout_fit) */
    MM_LAYOUT_GROUPS, /* CNTK's static allocator: the largest first, in groups of items that are never alive together */
} mm_layout_algorithm;

/* The most bytes alive at one position, each item rounded up to `align`. No placement has a smaller height. Returns -1
 * for items that mm_layout_place would refuse, or when memory is short (mm_last_error says which of the two). */
int64_t mm_layout_lower_bound(const mm_interval *items, size_t n, int64_t align);

/* Gives every item an offset >= 0, a multiple of `align`, so that items alive at one position do not overlap.
 * *height_out: highest end, rounded up to align. Deterministic. Takes a fraction of a second for 10^4 items.
 * Zero-byte items get offset 0. MM_ERR_INVALID (align <= 0, last < first, bytes < 0, more than 2^62 bytes in all),
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_layout_place(mm_interval *items, size_t n, mm_layout_algorithm algorithm, int64_t align,
                                     int64_t *height_out);

/* Exact search for a placement no higher than `height`. The items' offsets must be a valid placement (mm_layout_place).
 * Each item tried at an offset costs one node; the search stops when `*nodes` are used up. A node takes some 4 ns for
 * each item (measured, EPYC Zen 5). It counts nodes, not time, so the result is the same everywhere.
 *
 * *fits_out: true if the offsets, which the search may have replaced, are no higher than `height`. If it is false and
 * *nodes is above 0, no such placement exists. The search takes up to 24 MiB of memory, and 2 MiB of stack. More than
 * MM_LAYOUT_EXACT_ITEMS items are not searched; *nodes is 0 then. Errors as mm_layout_place; MM_ERR_INVALID also if an
 * offset is below 0 or no multiple of `align`. */
enum { MM_LAYOUT_EXACT_ITEMS = 4096 };
MM_CHECKED mm_status mm_layout_fit(mm_interval *items, size_t n, int64_t align, int64_t height, int64_t *nodes,
                                   bool *fits_out);

/* The sliding workspace of FreeLunch: codes lie one after the other, in order of `rank` (first backward use), ties by
 * index. Offsets begin at 0; only alignment leaves gaps. `first` and `last` are ignored. */
MM_CHECKED mm_status mm_layout_sliding(mm_interval *codes, const int32_t *rank, size_t n, int64_t align,
                                       int64_t *height_out);

/* The tensor buffers of FreeLunch: k buffers, each of which holds one item at a time. k is `want_k`, or, if that is 0,
 * the most items alive at one position. An item takes the smallest free buffer that fits it, or else enlarges the
 * largest free one. Buffers lie one after the other from offset 0, each as large as its largest item. Sets offsets;
 * buffer_out[i]: the buffer of item i. MM_ERR_INFEASIBLE: want_k is too small; the message has the k that is needed. */
MM_CHECKED mm_status mm_layout_buffers(mm_interval *items, size_t n, int want_k, int64_t align, int32_t *buffer_out,
                                       int *k_out, int64_t *height_out);

#endif

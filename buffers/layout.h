/* Where bytes live: pure arithmetic on offsets, no memory. Positions are places in a plan's issue order. */
#ifndef BUFFERS_LAYOUT_H
#define BUFFERS_LAYOUT_H

#include "mm/core/status.h"

/* Something that needs `bytes` from position `first` to position `last`, both included. */
typedef struct mm_interval {
    int64_t bytes;
    int32_t first, last;
    int64_t offset; /* out */
} mm_interval;

typedef enum mm_layout_algorithm {
    MM_LAYOUT_MODNN, /* moDNN (Chen et al., DATE 2018): in order of first use, exact fit, else first fit */
    MM_LAYOUT_QUICK, /* the lowest of several orders, then local search for a little while; never above MODNN */
    MM_LAYOUT_BEST,  /* the same for longer */
} mm_layout_algorithm;

/* Max over positions of the bytes alive, each rounded up to `align`: no placement is lower. -1 for items that
 * mm_layout_place would refuse, or when memory is out (mm_last_error). */
int64_t mm_layout_lower_bound(const mm_interval *items, size_t n, int64_t align);

/* Gives every item an offset >= 0, a multiple of `align`, so that items alive at one position do not overlap.
 * *height_out: highest end, rounded up to align. Deterministic; in total a fraction of a second for 10^4 items.
 * MM_ERR_INVALID (last < first, bytes < 0), MM_ERR_NOMEM. Zero-byte items get offset 0. */
MM_CHECKED mm_status mm_layout_place(mm_interval *items, size_t n, mm_layout_algorithm algorithm, int64_t align,
                                     int64_t *height_out);

/* The sliding compression workspace (FreeLunch): codes follow one another without gaps but alignment, in the order of
 * `rank` (first backward use), ties by index; sets offsets from 0. first and last are not looked at. */
MM_CHECKED mm_status mm_layout_sliding(mm_interval *codes, const int32_t *rank, size_t n, int64_t align,
                                       int64_t *height_out);

/* Persistent tensor buffers (FreeLunch): k buffers that all items pass through, one at a time each. k is the largest
 * overlap of items, or `want_k` if that is > 0 (MM_ERR_INFEASIBLE naming the k needed if it is smaller). An item takes
 * the free buffer that fits it closest, the smallest enlargement if none does; buffer_out[i] says which, offsets are
 * set (buffers lie one after the other from 0, each as large as its largest item). */
MM_CHECKED mm_status mm_layout_buffers(mm_interval *items, size_t n, int want_k, int64_t align, int32_t *buffer_out,
                                       int *k_out, int64_t *height_out);

#endif

/* SPDX-License-Identifier: MIT */
/* The free parts of an address range: a list of spans, ordered by address and coalesced. It never touches the memory,
 * so it serves ranges that the CPU cannot reach, and plain offsets. Not thread-safe. */
#ifndef BUFFERS_LAYOUT_RANGES_H
#define BUFFERS_LAYOUT_RANGES_H

#include "mm/core/status.h"

typedef struct mm_span {
    int64_t begin, end;
} mm_span;

/* Invariant: spans are ordered, not empty, and no two of them touch. */
typedef struct mm_ranges {
    mm_span *free;
    size_t n, capacity;
} mm_ranges;

typedef enum mm_fit {
    MM_FIT_LOWEST,       /* first fit */
    MM_FIT_EXACT_LOWEST, /* a span of exactly that size, else first fit */
    MM_FIT_CLOSEST,      /* best fit, the lowest of equals */
} mm_fit;

/* All of [begin, end) is free. */
MM_CHECKED mm_status mm_ranges_init(mm_ranges *ranges, int64_t begin, int64_t end);
void mm_ranges_fini(mm_ranges *ranges);

/* Reserves memory for `n` spans. With k pieces taken there are at most k + 1 free spans. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_ranges_reserve(mm_ranges *ranges, size_t n);

/* Takes `bytes` (> 0) at a multiple of `align`. Returns the offset; -1 if no span fits. Room for one more span must be
 * reserved, because taking may split one. */
int64_t mm_ranges_take(mm_ranges *ranges, int64_t bytes, int64_t align, mm_fit fit);

/* Takes [offset, offset + bytes), all of which must be free. Room as for mm_ranges_take. */
void mm_ranges_take_at(mm_ranges *ranges, int64_t offset, int64_t bytes);

/* Gives back [offset, offset + bytes), all of which must be taken. Room for one more span must be reserved. */
void mm_ranges_give(mm_ranges *ranges, int64_t offset, int64_t bytes);

#endif

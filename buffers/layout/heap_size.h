/* SPDX-License-Identifier: MIT */
/* Bytes that an allocation at run time occupies. Planners reserve by these functions, and the heap accounts by them.
 * Pure. */
#ifndef BUFFERS_LAYOUT_HEAP_SIZE_H
#define BUFFERS_LAYOUT_HEAP_SIZE_H

#include <stdint.h>

/* Bytes that mm_heap_alloc(bytes) occupies: jemalloc's size class (at least 16384; four classes to each doubling) and
 * one page of 4096. Every allocation is an extent of its own, so it shares nothing with others. */
int64_t mm_heap_class_bytes(int64_t bytes);

/* Size of a heap for allocations whose occupied bytes never sum to more than `live_bytes`, none larger than `largest`:
 * live_bytes, and room for fragmentation, min(live, 2 sqrt(live * largest)). The factor 2 is measured, not proved:
 * random sequences of allocations that stay at the limit, which no trainer runs, needed 1.5 to 1.75 times the square
 * root (tests/buffers/heap_test.c runs such sequences). */
int64_t mm_heap_region_bytes(int64_t live_bytes, int64_t largest);

#endif

/* What an unplanned allocation really takes: planners reserve by it, the heap allocates by it. Pure. */
#ifndef BUFFERS_HEAP_SIZE_H
#define BUFFERS_HEAP_SIZE_H

#include <stdint.h>

/* Bytes that mm_heap_alloc(bytes) occupies: the allocator's size class (16384 at least, four to each doubling) and a
 * page of 4096. Every allocation is an extent of its own, so this is all it takes. */
int64_t mm_heap_class_bytes(int64_t bytes);

/* Bytes a heap must have so that any sequence of allocations whose classes never sum to more than `live_bytes`, none
 * larger than `largest`, fits in practice: the sum, and room for fragmentation, min(live, 2 sqrt(live * largest)).
 * Random sequences at the limit, which no trainer runs, were seen to need between 1.5 and 1.75 of that root. */
int64_t mm_heap_region_bytes(int64_t live_bytes, int64_t largest);

#endif

/* SPDX-License-Identifier: MIT */
#include "buffers/layout/heap_size.h"

/* SMALLEST_CLASS: the smallest size that jemalloc does not place in a slab. In a slab, the bytes that an allocation
 * takes would depend on its neighbours. */
enum { SMALLEST_CLASS = 16384, PAGE = 4096 };

/* jemalloc adds a page to every large extent, so that allocations begin at different cache lines. (5.3.0 has an option
 * against it, but forgets to read it.) */
int64_t mm_heap_class_bytes(int64_t bytes) {
    if (bytes < SMALLEST_CLASS) bytes = SMALLEST_CLASS;
    int64_t step = SMALLEST_CLASS / 4; /* distance of size classes: four to each doubling */
    while (bytes > 8 * step) step *= 2;
    return (bytes + step - 1) / step * step + PAGE;
}

/* The smallest root whose square is at least x < 2^62. */
static int64_t square_root(int64_t x) {
    int64_t low = 0, high = INT64_C(1) << 31;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (middle * middle < x) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

int64_t mm_heap_region_bytes(int64_t live_bytes, int64_t largest) {
    if (live_bytes <= 0) return 0;
    int64_t live = (live_bytes + PAGE - 1) / PAGE;
    int64_t block = (mm_heap_class_bytes(largest) + PAGE - 1) / PAGE;
    int64_t room = 2 * square_root(live * block);
    return (live + (room < live ? room : live)) * PAGE;
}

/* SPDX-License-Identifier: MIT */
#include "mm/core/plan/interval_map.h"

#include <stdlib.h>
#include <string.h>

size_t mm_interval_map_find(const mm_interval_map *runs, int64_t offset) {
    size_t low = 0, high = runs->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (runs->runs[middle].end > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Replaces the runs that overlap [begin, end), but keeps their parts outside of it. */
bool mm_interval_map_tag(mm_interval_map *r, int64_t begin, int64_t end, int64_t tag) {
    size_t from = mm_interval_map_find(r, begin), to = from, n = 0;
    while (to < r->n && r->runs[to].begin < end) to++;
    mm_run kept[3];
    if (from < to && r->runs[from].begin < begin) kept[n++] = (mm_run){r->runs[from].begin, begin, r->runs[from].tag};
    kept[n++] = (mm_run){begin, end, tag};
    if (from < to && r->runs[to - 1].end > end) kept[n++] = (mm_run){end, r->runs[to - 1].end, r->runs[to - 1].tag};
    if (r->n + n - (to - from) > r->capacity) {
        size_t capacity = 2 * r->capacity + 64;
        mm_run *runs = realloc(r->runs, capacity * sizeof *runs);
        if (!runs) return false;
        r->runs = runs;
        r->capacity = capacity;
    }
    memmove(r->runs + from + n, r->runs + to, (r->n - to) * sizeof *r->runs);
    memcpy(r->runs + from, kept, n * sizeof *kept);
    r->n += n - (to - from);
    return true;
}

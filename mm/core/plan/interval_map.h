/* SPDX-License-Identifier: MIT */
/* Interval map: ranges of bytes, each with a tag, such as the number of the last user of these bytes. */
#ifndef MM_CORE_PLAN_INTERVAL_MAP_H
#define MM_CORE_PLAN_INTERVAL_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mm_run {
    int64_t begin, end;
    int64_t tag;
} mm_run;

/* Disjoint runs, sorted. A zeroed map is empty. The caller frees `runs`. */
typedef struct mm_interval_map {
    mm_run *runs;
    size_t n, capacity;
} mm_interval_map;

/* Index of the first run that ends beyond `offset`; n: none does. */
size_t mm_interval_map_find(const mm_interval_map *runs, int64_t offset);

/* Sets the tag of [begin, end), which is not empty, whatever tags it had. False: out of memory. */
bool mm_interval_map_tag(mm_interval_map *runs, int64_t begin, int64_t end, int64_t tag);

#endif

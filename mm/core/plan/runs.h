/* SPDX-License-Identifier: MIT */
/* Interval map: byte range → tag of its last user. */
#ifndef MM_CORE_PLAN_RUNS_H
#define MM_CORE_PLAN_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mm_run {
    int64_t begin, end;
    int64_t tag;
} mm_run;

/* Disjoint runs, sorted. A zeroed map is empty. The caller frees `runs`. */
typedef struct mm_runs {
    mm_run *runs;
    size_t n, capacity;
} mm_runs;

/* Index of the first run that ends beyond `offset`; n: none does. */
size_t mm_runs_find(const mm_runs *runs, int64_t offset);

/* Tags [begin, end), which is not empty, in place of the tags that it had. False: out of memory. */
bool mm_runs_tag(mm_runs *runs, int64_t begin, int64_t end, int64_t tag);

#endif

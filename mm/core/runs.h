/* Who had which bytes of an address range last: disjoint runs of bytes, sorted, each with a tag. */
#ifndef MM_CORE_RUNS_H
#define MM_CORE_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mm_run {
    int64_t begin, end;
    int64_t tag;
} mm_run;

/* Zeroed: nobody had any. Ended by free(runs). */
typedef struct mm_runs {
    mm_run *runs;
    size_t n, capacity;
} mm_runs;

/* The first run that ends beyond `offset`; n if none does. */
size_t mm_runs_find(const mm_runs *runs, int64_t offset);

/* Tags [begin, end), which is not empty; what others had of it is theirs no more. False: out of memory. */
bool mm_runs_tag(mm_runs *runs, int64_t begin, int64_t end, int64_t tag);

#endif

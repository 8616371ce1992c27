/* SPDX-License-Identifier: MIT */
#include "mm/manager/coverage.h"

#include <stdlib.h>
#include <string.h>

static int by_begin(const void *a, const void *b) {
    const mm_range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

mm_status mm_coverage_add(mm_coverage *coverage, const mm_range *ranges, size_t n) {
    mm_range *all = malloc((coverage->n + n + 1) * sizeof *all);
    if (!all) return mm_fail(MM_ERR_NOMEM, "out of memory for %zu ranges", coverage->n + n);
    if (coverage->n) memcpy(all, coverage->ranges, coverage->n * sizeof *all);
    if (n) memcpy(all + coverage->n, ranges, n * sizeof *all);
    size_t total = coverage->n + n, kept = 0;
    qsort(all, total, sizeof *all, by_begin);
    for (size_t i = 0; i < total; i++) {
        if (kept > 0 && all[i].begin <= all[kept - 1].end) {
            if (all[i].end > all[kept - 1].end) all[kept - 1].end = all[i].end;
        } else if (all[i].end > all[i].begin)
            all[kept++] = all[i];
    }
    free(coverage->ranges);
    coverage->ranges = all;
    coverage->n = kept;
    return MM_OK;
}

void mm_coverage_fini(mm_coverage *coverage) {
    free(coverage->ranges);
    memset(coverage, 0, sizeof *coverage);
}

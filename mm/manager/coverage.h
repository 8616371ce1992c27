/* SPDX-License-Identifier: MIT */
/* A set of byte ranges. A manager records in one which bytes plans may write. */
#ifndef MM_MANAGER_COVERAGE_H
#define MM_MANAGER_COVERAGE_H

#include "mm/core/status.h"

typedef struct mm_range {
    int64_t begin, end;
} mm_range;

/* Ranges are disjoint, sorted and not adjacent. A zeroed set is empty. */
typedef struct mm_coverage {
    mm_range *ranges;
    size_t n;
} mm_coverage;

/* Adds n ranges, in any order; they may overlap. MM_ERR_NOMEM: nothing changed. */
MM_CHECKED mm_status mm_coverage_add(mm_coverage *coverage, const mm_range *ranges, size_t n);
void mm_coverage_fini(mm_coverage *coverage);

#endif

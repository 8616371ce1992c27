/* SPDX-License-Identifier: MIT */
/* Estimates cache-miss bytes per node of a plan. */
#ifndef MM_CORE_TIME_CACHE_MISS_H
#define MM_CORE_TIME_CACHE_MISS_H

#include "mm/core/plan/plan.h"

/* far_out: per node, how many of the device bytes that it uses are far: since their last use, more than cache_bytes of
 * bytes were used, in issue order. Iterations follow one another, so the last use may be in the previous one. Segments
 * that are placed at run time, pools and persistent tensors do not count. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_cache_miss_bytes(const mm_plan *plan, int64_t cache_bytes, int64_t *far_out);

#endif

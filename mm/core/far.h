/* What a plan's nodes do not find in the caches. */
#ifndef MM_CORE_FAR_H
#define MM_CORE_FAR_H

#include "mm/core/plan.h"

/* far_out: per node, how many of the planned device bytes that it uses were last used so long before that more than
 * cache_bytes have been used since, in issue order; one iteration follows another. */
MM_CHECKED mm_status mm_far_bytes(const mm_plan *plan, int64_t cache_bytes, int64_t *far_out);

#endif

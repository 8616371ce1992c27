/* Which policy would do where one does not fit. */
#ifndef MM_ADVICE_H
#define MM_ADVICE_H

#include "mm/core/plan.h"

/* To be called with the refusal of a policy (MM_ERR_INFEASIBLE, its message the last error): adds to the message the
 * first policy that would fit the limits, the lossless ones before the others, or, if none would, the first that would
 * with more pinned memory, or else the one that needs least device memory within the pinned memory that there is, and
 * how much. Returns MM_ERR_INFEASIBLE. */
MM_CHECKED mm_status mm_advise(const mm_graph *graph, const char *device, const mm_limits *limits);

#endif

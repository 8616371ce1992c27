/* A refusal says which policy would fit. */
#ifndef MM_REFUSAL_H
#define MM_REFUSAL_H

#include "mm/planning.h"

/* Who was refused. */
typedef struct mm_refused {
    const mm_graph *graph;
    const char *device;
    mm_limits limits;
    mm_rates rates;
    bool recomputes; /* its steps can be run again: somebody said how */
    bool descended;  /* all that may stand in was tried in vain: what needs least is known */
} mm_refused;

/* Tells a refusal, given in words, and behind it a policy that would fit the limits, a lossless one before the others; or,
 * if none was found, one that would with more pinned memory, or else the one that needs least device memory within the
 * pinned memory that there is, and how much (policies/advice.h). Returns MM_ERR_INFEASIBLE. */
MM_CHECKED mm_status mm_advise(const mm_refused *refused, const char *refusal);

#endif

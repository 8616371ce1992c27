/* A refusal says which policy would fit. */
#ifndef MM_REFUSAL_H
#define MM_REFUSAL_H

#include "mm/planning.h"

/* Adds the times that are known of a graph to its facts. MM_ERR_FORMAT: none are, and the facts are as before. */
typedef mm_status (*mm_times_fn)(const void *ctx, const mm_graph *graph, mm_facts *facts);

/* An mm_times_fn: measured times; ctx: mm_facts. */
MM_CHECKED mm_status mm_times_measured(const void *ctx, const mm_graph *graph, mm_facts *facts);

/* Who was refused. */
typedef struct mm_refused {
    const mm_graph *graph;
    const char *device;
    mm_limits limits;
    mm_rates rates;
    mm_times_fn add_times; /* which the policy was planned by; NULL, or without any of this graph: by the rates */
    const void *times;     /* its ctx */
    bool recomputes;       /* its steps can be run again: somebody said how */
    bool descended;        /* all that may stand in was tried in vain: what needs least is known */
} mm_refused;

/* Tells a refusal, given in words, and behind it a policy that would fit the limits, a lossless one before the others, and
 * of those the fastest; or, if none was found, one that would with more pinned memory, or else the one that needs least
 * device memory within the pinned memory that there is, and how much (policies/advice.h). Returns MM_ERR_INFEASIBLE. */
MM_CHECKED mm_status mm_advise(const mm_refused *refused, const char *refusal);

#endif

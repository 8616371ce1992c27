/* SPDX-License-Identifier: MIT */
/* Adds advice to a refusal: which policy would fit. */
#ifndef MM_PLANNING_REFUSAL_H
#define MM_PLANNING_REFUSAL_H

#include "mm/planning/planning.h"

/* Adds known times of a graph to its facts. MM_ERR_FORMAT: no times of this graph are known; the facts did not
 * change. */
typedef mm_status (*mm_times_fn)(const void *ctx, const mm_graph *graph, mm_graph_facts *facts);

/* An mm_times_fn with measured times. ctx: an mm_facts. */
MM_CHECKED mm_status mm_times_measured(const void *ctx, const mm_graph *graph, mm_graph_facts *facts);

/* What was refused, and how it was planned. */
typedef struct mm_refused {
    const mm_graph *graph;
    const char *device;
    mm_limits limits;
    mm_rates rates;
    const char *pinned_from; /* text after limits.pinned_bytes in the message, which says where that limit comes from;
                                NULL: the user gave it */
    mm_times_fn add_times;   /* adds the times that the policy was planned with; NULL: it was planned with the rates
                                only */
    const void *times;       /* ctx of add_times */
    const mm_policy *policy; /* NULL: not known */
    int64_t needs_bytes;     /* the least that `policy` needs; 0: not known */
    bool recomputes;         /* there is a function that recomputes its layers */
    char *advised;           /* receives the spec of the policy that would fit, or ""; NULL: not wanted */
    size_t advised_bytes;    /* its capacity */
    bool quick;              /* only a few policies are tried, as published: neither auto nor any that recomputes */
    bool descended;          /* the refusal names the substitute that needs least; all of them were tried */
} mm_refused;

/* Returns MM_ERR_INFEASIBLE with the message `refusal`, followed by advice: a policy that would fit the limits, a
 * lossless one if there is one, and of those the fastest. If none was found: a policy that would fit with more pinned
 * memory; or else the one that needs least device memory with the pinned memory that there is, unless that is the
 * refused one (policies/advice.h). */
MM_CHECKED mm_status mm_advise(const mm_refused *refused, const char *refusal);

#endif

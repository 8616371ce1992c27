/* SPDX-License-Identifier: MIT */
/* Adds advice to a refusal: which policy would fit. */
#ifndef MM_PLANNING_REFUSAL_H
#define MM_PLANNING_REFUSAL_H

#include "mm/core/status.h"
#include "mm/planning/persistent_table.h"
#include "mm/planning/planning.h"

/* Adds known times of a graph to its facts. MM_ERR_FORMAT: no times of this graph are known; the facts did not
 * change. */
typedef mm_status (*mm_times_fn)(const void *ctx, const mm_graph *graph, mm_graph_facts *facts);

/* An mm_times_fn with measured times. ctx: an mm_facts. */
MM_CHECKED mm_status mm_times_measured(const void *ctx, const mm_graph *graph, mm_graph_facts *facts);

/* What was refused, and how it was planned. */
typedef struct mm_refused {
    const mm_graph *graph;
    const mm_new_graph *others; /* graphs that run in the same arena; a policy must fit them, too */
    int n_others;
    const mm_persistent_table *persistents; /* all of the arena; NULL: the graphs' own, in limits.base_bytes */
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
    bool recomputes;         /* there is a function that recomputes its layers, */
    bool may_be_set;         /* or it is not known: advice says which policies need it */
    bool all_stay;           /* persistent tensors cannot leave the device */
    bool quick;              /* only a few policies are tried, as published: neither auto nor any that recomputes */
    bool descended;          /* the refusal names the substitute that needs least; all of them were tried */
    mm_advised *advised;     /* receives the advice; NULL: not wanted */
    mm_advised *recomputing; /* receives the policy that needs mm_recompute_set, which is not set; NULL: not wanted */
} mm_refused;

/* Of other graphs in the same arena, the one that declares most of the persistent tensors that `graph` does not
 * declare; NULL: none does. */
const mm_graph *mm_refused_beside(const mm_graph *graph, const mm_new_graph *others, int n);

/* Adds to a message that a graph needs too much which part of that are persistent tensors that it does not declare, and
 * who declares them ("": no graph does). Returns `told`, or the message if there are none. */
const char *mm_refused_tell_others(const char *message, int64_t other_bytes, const char *other_graph,
                                   char told[MM_MESSAGE_CAPACITY]);

/* Copies a name for data that a caller gets. */
void mm_refused_put(char name[MM_PLAN_NAME_CAPACITY], const char *text);

/* Returns MM_ERR_INFEASIBLE with the message `refusal`, followed by advice: a policy that would fit the limits, a
 * lossless one if there is one, and of those the fastest. If none was found: a policy that would fit with more pinned
 * memory; or else the one that needs least device memory with the pinned memory that there is, unless that is the
 * refused one (policies/advice.h). Without a function that recomputes layers, a policy that needs one is named beside
 * or in place of these, with "(needs mm_recompute_set)". */
MM_CHECKED mm_status mm_advise(const mm_refused *refused, const char *refusal);

#endif

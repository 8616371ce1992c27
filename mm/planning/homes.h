/* SPDX-License-Identifier: MIT */
/* Chooses the homes of persistent tensors: on the device; or in pinned memory, from where plans fetch them for the
 * steps that use them (mm/core/plan/plan.h); or on the disk, if pinned memory has no room for all that leave. The
 * policy's option `resident` says how many may leave the device. As few as the budget forces leave it, unless more are
 * predicted to be faster; as few as pinned memory forces go on to the disk: those whose next use is farthest. */
#ifndef MM_PLANNING_HOMES_H
#define MM_PLANNING_HOMES_H

#include "mm/planning/persistent_table.h"
#include "policies/policy.h"

/* A graph's persistent tensors that may leave the device, in the order in which they do: those that few steps use come
 * first, and of equal ones each next lies as far as can be from those before it, so that copies are spread over the
 * iteration. */
typedef struct mm_home_order {
    const mm_graph *graph; /* borrowed */
    mm_tensor *tensors;
    int n;
    /* Optimizer states that steps on the host update, in pinned memory; if that has no room for them, they go on to the
     * disk in this order. */
    mm_tensor *hosted;
    int n_hosted;
} mm_home_order;

/* Finds the order. away: kinds that may leave, bits of mm_tensor_kind; 0: all may. Statistics and counts stay, also
 * what the first step uses, what the forward pass writes, what is all-reduced, and what is so small that a copy does
 * not pay. MM_ERR_INVALID: of one of the kinds in `away` none can leave, in a graph that updates weights;
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_home_order_init(const mm_graph *graph, unsigned away, mm_home_order *order_out);
void mm_home_order_fini(mm_home_order *order);

/* How to plan with the first n tensors of an order off the device. */
typedef struct mm_home_trial {
    int n;
    int on_disk;         /* how many of them, the first ones, are on the disk; the others are in pinned memory */
    int hosted_on_disk;  /* how many of the hosted ones, the first ones, are on the disk */
    bool first_fit;      /* any plan that fits will do */
    bool few;            /* mm_limits.few */
    bool rival;          /* the plan of the try before, which fits, stays unless this one is faster */
    bool pinned_free;    /* as if there were no limit of pinned memory */
    int64_t ahead_bytes; /* mm_limits.ahead_bytes */
    int64_t below_ns;    /* mm_limits.below_ns */
    int compared;        /* how many such trials the search compares (mm_limits.compared); 0: no others */
} mm_home_trial;

typedef struct mm_home_result {
    bool fits;                        /* the plan fits the limits */
    bool lacks_pinned;                /* it does not, for want of pinned memory */
    bool lacks_disk;                  /* it does not, for want of room on the disk */
    int64_t peak_bytes, pinned_bytes; /* what it takes */
    int64_t ns;                       /* its predicted time, if it fits; 0: not known */
    int64_t steps_ns;                 /* of that, the time of the steps alone, each run once */
    /* Of the last trial, also if it was a rival whose plan did not stay. */
    bool tried_fits;
    int64_t tried_ns;
} mm_home_result;

/* What a policy asks for. */
typedef struct mm_home_wish {
    mm_resident resident;
    bool compares; /* tensors also leave where all may stay, if that is faster */
    bool on_host; /* steps on the host use tensors; these are not among those that leave the device, for their homes are
                      in pinned memory anyway */
} mm_home_wish;

/* Whether a graph has a backward pass. */
bool mm_home_trains(const mm_graph *graph);

/* one_of_several: the graph is one of several that run in an iteration, so that its time alone says little; tensors
 * then leave only if they must. `auto` compares, unless it is to plan as fast as it can. */
mm_home_wish mm_home_wish_of(const mm_policy *policy, bool on_host, bool one_of_several);

typedef mm_status (*mm_home_try)(void *ctx, const mm_home_trial *trial, mm_home_result *result_out);

/* Policies count on it that a plan which moves nothing fits the limit of pinned memory: raises the limit to what the
 * homes take. Whether the plan fits is judged by the limit as it was. */
static inline void mm_homes_make_room(mm_limits *limits) {
    if (limits->pinned_bytes < limits->pinned_base_bytes) limits->pinned_bytes = limits->pinned_base_bytes;
}

/* Divides a planner's work among the trials that are compared. */
static inline void mm_home_trial_divide(const mm_home_trial *trial, mm_limits *limits) {
    if (trial->compared > 1) limits->compared = trial->compared * (limits->compared > 1 ? limits->compared : 1);
}

/* Sets the memories of a table's entries, of which `memory` has as many, to those of a trial. */
void mm_home_trial_mark(const mm_home_trial *trial, const mm_home_order *order, const mm_persistent_table *table,
                        uint8_t *memory);

/* Finds how many of an order's tensors leave the device. If none must, all stay; but if wish->compares, and that is
 * slow, as many leave as is fastest. Else some ten tries take any plan that fits, which is quick; at most three plan as
 * the policy does, of which the fastest stays (rival). The plan is that of the last try, unless that was a rival and
 * slower, or did not fit: then that of the one before. Searches without a limit of pinned memory first, and with it
 * only if the result exceeds it: so the plan stays the same if the limit is set to just what it takes. If nothing then
 * fits, and there is a disk, some of those that leave go on to the disk. What fits a budget does not depend on how
 * early copies begin. Where nothing fits, the last try is the one that needs least on the device: with all tensors
 * away, as many as pinned memory has room for, or none; or, where pinned memory alone is lacking, one that would fit
 * with more of it. If nothing fits, and there is a disk, it searches again with hosted states there: with as few as
 * leave room for the others, or else with as many as both memories allow. Without a budget (limits->device_bytes 0) a
 * result is taken that is within both. limits->below_ns: where plans fit, but none that is searched for takes less, the
 * search ends, and the last try may be one that does not fit. */
MM_CHECKED mm_status mm_homes_search(const mm_home_wish *wish, const mm_home_order *order, const mm_limits *limits,
                                     mm_home_try try, void *ctx);

/* Sets the memories of those entries of a table whose homes the policy has off the device, in its plan of the graph
 * (mm_policy_ops.places). memory: per entry. MM_ERR_NOMEM; errors of `places`. */
MM_CHECKED mm_status mm_homes_mark_given(const mm_policy *policy, const mm_graph *graph,
                                         const mm_persistent_table *table, uint8_t *memory);

#endif

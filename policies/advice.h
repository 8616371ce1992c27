/* SPDX-License-Identifier: MIT */
/* Advice: a policy that fits where the requested one does not. */
#ifndef POLICIES_ADVICE_H
#define POLICIES_ADVICE_H

#include "policies/policy.h"

/* What a policy's plan takes within the limits, or at least if it does not fit. */
typedef struct mm_trial {
    int64_t bytes, pinned_bytes; /* bytes INT64_MAX: there is no plan */
    int64_t step_ns;             /* predicted */
    bool lossy;
} mm_trial;

/* Plans a policy within the limits. any: any plan that fits will do, not the fastest alone. */
typedef mm_trial (*mm_trial_fn)(void *ctx, const mm_policy *policy, bool any);

typedef enum mm_advice_kind {
    MM_ADVICE_NONE,       /* there is no plan at all */
    MM_ADVICE_FITS,       /* the policy fits */
    MM_ADVICE_PINNED,     /* the policy would fit with more pinned memory */
    MM_ADVICE_NEEDS_LEAST /* no policy fits; of those within the pinned memory it needs the least device memory */
} mm_advice_kind;

typedef struct mm_advice {
    mm_advice_kind kind;
    mm_policy policy; /* unset with NONE; the caller ends it */
    mm_trial takes;
} mm_advice;

/* What is looked for. */
typedef struct mm_advice_wish {
    const mm_limits *limits;
    bool published_only;      /* no default forms of policies */
    bool quick;               /* few policies: neither auto nor those that recompute */
    bool deep;                /* plans by auto take long: it is advised where no other lossless policy fits */
    bool hopeless;            /* a bound of what any plan needs exceeds the limits */
    const mm_policy *refused; /* NULL: not known */
    mm_trial refused_takes;   /* with `refused`: what it takes at least */
} mm_advice_wish;

/* Finds a policy that fits, a lossless one if there is one, and of several the one with the shortest predicted step.
 * auto is tried first: its plan is the fastest without loss. Where it has none, or fits in a deep graph, each policy is
 * tried as published; modnn, which has one form alone, in the limits. Those that copy are tried beyond
 * swap-async only where that does not fit: they wait more. Unless `published_only`, those that fit are tried again in
 * their default form (when=needed), which is then advised. If none fits as published, the default form
 * of the best lossless one is tried, then that of the best lossy one, unless that takes far too much. `quick` leaves
 * out most. The policy is advised in its default form, whichever was tried. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_advice_find(const mm_advice_wish *wish, mm_trial_fn try_policy, void *ctx,
                                    mm_advice *advice_out);

#endif

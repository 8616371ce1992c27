/* Advice: which policy would do where one does not fit. */
#ifndef POLICIES_ADVICE_H
#define POLICIES_ADVICE_H

#include "policies/policy.h"

/* What a policy takes within limits, or, if it does not fit, at the least. */
typedef struct mm_trial {
    int64_t bytes, pinned_bytes; /* bytes INT64_MAX: it cannot be had */
    int64_t step_ns;             /* predicted */
    bool lossy;
} mm_trial;

/* Plans a policy within the limits. */
typedef mm_trial (*mm_trial_fn)(void *ctx, const mm_policy *policy);

typedef enum mm_advice_kind {
    MM_ADVICE_NONE,       /* nothing can be had */
    MM_ADVICE_FITS,       /* the policy fits */
    MM_ADVICE_PINNED,     /* it would fit with more pinned memory */
    MM_ADVICE_NEEDS_LEAST /* none fits: of those within the pinned memory it needs least device memory */
} mm_advice_kind;

typedef struct mm_advice {
    mm_advice_kind kind;
    mm_policy policy; /* unless NONE; the caller ends it */
    mm_trial takes;
} mm_advice;

/* A policy that fits: a lossless one before the others, and of those the one whose predicted step is shortest. Each is
 * tried as published, which does not depend on the limits; those that fit are tried again in their default form
 * (when=needed), in which they are advised, unless `published_only`. Where none fits as published, the default form of the
 * best without loss, then of the best with, may. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_advice_find(const mm_limits *limits, bool published_only, mm_trial_fn try_policy, void *ctx,
                                    mm_advice *advice_out);

#endif

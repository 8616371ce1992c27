/* SPDX-License-Identifier: MIT */
/* Advice: a policy that fits where the requested one does not. */
#ifndef POLICIES_ADVICE_H
#define POLICIES_ADVICE_H

#include "policies/policy.h"

/* What a policy's plan takes. If none fits the limits, that of the plan with the lowest peak. */
typedef struct mm_trial {
    int64_t bytes, pinned_bytes, disk_bytes; /* bytes INT64_MAX: there is no plan */
    int64_t step_ns;                         /* predicted */
    bool lossy;
    bool needs_function; /* the plan recomputes, and there is no function that recomputes layers */
    bool recomputes;     /* the plan recomputes */
    bool no_memory;      /* it is not known, since memory ran out; mm_last_error says so */
} mm_trial;

/* Plans a policy within the limits. any: any plan that fits will do; it need not be the fastest. */
typedef mm_trial (*mm_trial_fn)(void *ctx, const mm_policy *policy, bool any);

typedef struct mm_advice {
    mm_advice_kind kind; /* MM_ADVICE_NONE: there is no plan at all */
    mm_policy policy;    /* unset with NONE; the caller frees both with mm_policy_fini */
    mm_trial takes;
    mm_policy with_function; /* the fastest lossless policy that would fit if there were a function that recomputes
                                layers; or, if none fits, the one that needs least, if that is less than `policy` needs.
                                spec NULL: none, or `policy` fits and is lossless */
    mm_trial function_takes; /* of with_function */
} mm_advice;

/* What mm_advice_find is asked for. */
typedef struct mm_advice_request {
    const mm_limits *limits;
    bool published_only;      /* advise policies as published only (when=always), not in their default form */
    bool quick;               /* try few policies: neither auto nor those that recompute */
    bool deep;                /* planning with auto takes long: advise it only where no other lossless policy fits */
    bool hopeless;            /* any plan needs more than the limits, by a lower bound of its bytes */
    const mm_policy *refused; /* NULL: not known */
    mm_trial refused_takes;   /* of `refused`: what it takes at least */
} mm_advice_request;

/* Finds a policy that fits: a lossless one if there is one, and of several the one with the shortest predicted step. It
 * is advised in its default form (when=needed), whichever form was tried. auto is tried before most others, because its
 * plan is the fastest lossless one. If it has no plan, or `deep` is set, each policy is tried as published
 * (when=always); modnn, which has one form only, within the limits. The policies that copy as swap-async does, but wait
 * more, are tried only where swap-async does not fit. Unless `published_only`, those that fit are tried again in their
 * default form, and the fastest wins. If none fits as published, the default form of the best lossless policy is tried,
 * then that of the best lossy one, unless its published form takes far too much. `quick` leaves out most policies.
 * Policies whose trials need a function that recomputes layers (mm_trial.needs_function) are left out of all this.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_advice_find(const mm_advice_request *wish, mm_trial_fn try_policy, void *ctx,
                                    mm_advice *advice_out);

#endif

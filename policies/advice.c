/* SPDX-License-Identifier: MIT */
#include "policies/advice.h"

#include "mm/core/status.h"
#include "policies/policy_table.h"
#include "policies/rules/rules.h"

/* The policies that may be advised, lossless ones first. Of equally fast ones the first is advised. A policy that fits
 * as published (when=always) fits in its default form (when=needed), too. */
enum { LIVENESS, AUTO, SWAP_ASYNC = 3, LOSSY = 12 };
static const struct proposal {
    const mm_policy_ops *ops;
    mm_recompute_mode mode;
    const char *codec; /* rules: codec of all maps that it can encode, others are swapped; NULL: the policy's own */
    bool waits;        /* copies what swap-async copies, but waits more: tried only where swap-async does not fit */
    bool once;         /* has one form only: published and default are the same */
    bool quick;        /* tried even with mm_advice_request.quick */
} proposals[] = {
    [LIVENESS] = {&mm_policy_liveness, MM_RECOMPUTE_COST, NULL, false, .quick = true},
    [AUTO] = {&mm_policy_auto, MM_RECOMPUTE_NESTED, NULL, false, .once = true},
    {&mm_policy_recompute, MM_RECOMPUTE_COST, NULL, false},
    [SWAP_ASYNC] = {&mm_policy_swap_async, MM_RECOMPUTE_COST, NULL, false, .quick = true},
    {&mm_policy_recompute, MM_RECOMPUTE_SQRT, NULL, false},
    {&mm_policy_recompute_swap, MM_RECOMPUTE_SQRT, NULL, false},
    {&mm_policy_recompute, MM_RECOMPUTE_NESTED, NULL, false},
    {&mm_policy_recompute_swap, MM_RECOMPUTE_NESTED, NULL, false},
    {&mm_policy_vdnn_all, MM_RECOMPUTE_COST, NULL, true},
    {&mm_policy_swap, MM_RECOMPUTE_COST, NULL, true, .quick = true},
    {&mm_policy_modnn, MM_RECOMPUTE_COST, NULL, true, .once = true},
    {&mm_policy_cdma, MM_RECOMPUTE_COST, NULL, true},
    [LOSSY] = {&mm_policy_freelunch, MM_RECOMPUTE_COST, NULL, false, .quick = true},
    {&mm_policy_hybrid, MM_RECOMPUTE_COST, NULL, false, .quick = true},
    {&mm_policy_rules, MM_RECOMPUTE_COST, "zfp:rate=4", false, .quick = true},
};
enum { PROPOSALS = sizeof proposals / sizeof *proposals };

static mm_status configure(const struct proposal *p, mm_policy *policy) {
    if (policy->config.n_rules > 0) policy->config.recompute = p->mode; /* baselines have no rules */
    policy->config.sub_batch = MM_SUB_BATCH_OFF;                        /* the graph at hand is tried as it is */
    if (p->codec) {
        mm_rules_fini(&policy->config);
        MM_TRY(mm_rules_add(&policy->config, MM_ACTION_CODE, p->codec));
        MM_TRY(mm_rules_add(&policy->config, MM_ACTION_SWAP, NULL));
    }
    return mm_policy_print(policy);
}

static mm_status propose(const struct proposal *p, mm_policy *policy_out) {
    mm_policy policy;
    MM_TRY(mm_policy_default(p->ops, &policy));
    mm_status status = configure(p, &policy);
    if (status == MM_OK)
        *policy_out = policy;
    else
        mm_policy_fini(&policy);
    return status;
}

/* A proposal's index, and what its policy takes. */
typedef struct choice {
    int proposal; /* -1: none */
    mm_trial takes;
} choice;

static const choice nothing = {.proposal = -1, .takes = {.bytes = INT64_MAX}};

typedef struct search {
    const mm_advice_request *wish;
    const mm_limits *limits; /* wish->limits */
    mm_trial_fn try_policy;
    void *ctx;
    mm_trial published[PROPOSALS]; /* per proposal: what it takes as published */
    int n_published;               /* number of proposals tried so far */
} search;

static mm_status try_proposal(const search *s, int proposal, mm_when when, mm_trial *takes_out) {
    mm_policy policy;
    MM_TRY(propose(&proposals[proposal], &policy));
    policy.config.when = when;
    *takes_out = s->try_policy(s->ctx, &policy, false);
    mm_policy_fini(&policy);
    return takes_out->no_memory ? MM_ERR_NOMEM : MM_OK;
}

static bool is_within(const mm_trial *t, int64_t device_bytes, int64_t pinned_bytes) {
    return !t->needs_function && t->bytes <= device_bytes && t->pinned_bytes <= pinned_bytes;
}

static bool fits(const search *s, const mm_trial *t) {
    return is_within(t, s->limits->device_bytes, s->limits->pinned_bytes);
}

/* Whether a proposal is of this kind (lossy or lossless), fits as published with pinned_bytes of pinned memory, and may
 * be the fastest. */
static bool is_rival(const search *s, int proposal, bool lossy, int64_t pinned_bytes) {
    const int64_t device = s->limits->device_bytes;
    const mm_trial *t = &s->published[proposal];
    if (proposals[proposal].waits && is_within(&s->published[SWAP_ASYNC], device, pinned_bytes)) return false;
    return t->lossy == lossy && is_within(t, device, pinned_bytes);
}

/* The proposal that is_rival accepts and whose published form is the fastest. */
static choice fastest(const search *s, bool lossy, int64_t pinned_bytes) {
    choice best = nothing;
    for (int p = 0; p < s->n_published; p++)
        if (is_rival(s, p, lossy, pinned_bytes) && (best.proposal < 0 || s->published[p].step_ns < best.takes.step_ns))
            best = (choice){p, s->published[p]};
    return best;
}

/* Whether auto was refused, free to choose homes of weights and states. */
static bool was_auto_refused(const search *s) {
    const mm_policy *refused = s->wish->refused;
    return refused && refused->ops == &mm_policy_auto && refused->config.resident != MM_RESIDENT_ALL;
}

/* Tries auto without codecs. If the refused policy is auto, it is not tried: it does not fit with codecs, so it does
 * not fit without them either. auto's search is turned off: the search does not change whether auto fits, and would
 * take longer than all other trials. */
static mm_status try_auto(const search *s, mm_trial *takes_out) {
    mm_policy policy;
    if (was_auto_refused(s)) {
        *takes_out = s->wish->refused_takes;
        takes_out->lossy = false;
        return MM_OK;
    }
    MM_TRY(propose(&proposals[AUTO], &policy));
    policy.config.own[MM_AUTO_EFFORT] = 0;
    *takes_out = s->try_policy(s->ctx, &policy, true);
    mm_policy_fini(&policy);
    return takes_out->no_memory ? MM_ERR_NOMEM : MM_OK;
}

/* Whether a proposal need not be tried. Where auto has a plan, no other lossless policy is better. But with a limit of
 * pinned memory, the others may show how much pinned memory would be enough. */
static bool is_no_rival(const search *s, int proposal) {
    const mm_trial *by_auto = &s->published[AUTO];
    if (proposal > AUTO && proposal < LOSSY && by_auto->bytes < INT64_MAX && !by_auto->needs_function &&
        (s->limits->pinned_bytes == INT64_MAX || s->wish->hopeless))
        return true;
    return proposals[proposal].waits && fits(s, &s->published[SWAP_ASYNC]);
}

/* Tries the proposals as published. Stops after liveness or auto if that one fits, since nothing is faster; stops
 * before the lossy proposals if a lossless one fits. */
static mm_status try_published(search *s) {
    mm_trial by_auto = nothing.takes;
    bool lossless_fits = false;
    for (int p = 0; p < PROPOSALS; p++) s->published[p] = nothing.takes;
    while (s->n_published < PROPOSALS) {
        const int p = s->n_published++;
        mm_trial *t = &s->published[p];
        if (p == LOSSY && !lossless_fits) s->published[AUTO] = by_auto;
        if (p == LOSSY && (lossless_fits || fits(s, &by_auto))) break;
        if (is_no_rival(s, p) || (s->wish->quick && !proposals[p].quick)) continue;
        MM_TRY(p == AUTO ? try_auto(s, &by_auto) : try_proposal(s, p, MM_WHEN_ALWAYS, t));
        /* with `deep`, another policy that fits is advised rather than auto */
        if (p == AUTO && s->wish->deep && fits(s, &by_auto)) continue;
        if (p == AUTO) *t = by_auto;
        lossless_fits |= !t->lossy && fits(s, t);
        if (p <= AUTO && fits(s, t)) break; /* nothing is faster */
    }
    return MM_OK;
}

/* Finds the fastest policy, in its default form, of those of one kind (lossy or lossless) that fit as published. */
static mm_status find_fastest(search *s, bool lossy, choice *found) {
    choice best = fastest(s, lossy, s->limits->pinned_bytes);
    const bool again = best.proposal > LIVENESS && !s->wish->published_only;
    for (int p = 0; again && p < s->n_published; p++) {
        choice c = {.proposal = p};
        if (proposals[p].once || !is_rival(s, p, lossy, s->limits->pinned_bytes)) continue;
        MM_TRY(try_proposal(s, p, MM_WHEN_NEEDED, &c.takes));
        if (fits(s, &c.takes) && c.takes.step_ns < best.takes.step_ns) best = c;
    }
    *found = best;
    return MM_OK;
}

/* Whether the default form of a policy may need less than `bytes`, judged by what its published form takes. */
static bool may_take(const mm_trial *published, int64_t bytes) {
    enum { TIMES = 2 }; /* chosen: far more than default forms save, which is 5 % for hybrid on ResNet-1202 */
    return published->bytes / TIMES < bytes;
}

/* Finds the policy of one kind (lossy or lossless) that needs the least device memory, in its default form if that
 * needs less. least_bytes: what the best policy of the other kind, if that was tried before, needs. */
static mm_status find_least(search *s, bool lossy, int64_t least_bytes, choice *found) {
    const int64_t pinned = s->limits->pinned_bytes, device = s->limits->device_bytes;
    *found = nothing;
    for (int p = 0; p < s->n_published; p++) {
        const mm_trial *t = &s->published[p];
        if (t->lossy == lossy && is_within(t, found->takes.bytes - 1, pinned)) *found = (choice){p, *t};
    }
    choice c = *found;
    if (c.proposal < 0 || s->wish->published_only || proposals[c.proposal].once) return MM_OK;
    if (!may_take(&found->takes, least_bytes > device ? least_bytes : device)) return MM_OK;
    MM_TRY(try_proposal(s, c.proposal, MM_WHEN_NEEDED, &c.takes));
    if (is_within(&c.takes, found->takes.bytes - 1, pinned)) *found = c;
    return MM_OK;
}

static mm_status find(search *s, choice *found) {
    choice least = nothing;
    MM_TRY(try_published(s));
    for (int lossy = 0; lossy < 2; lossy++) {
        MM_TRY(find_fastest(s, lossy, found));
        if (found->proposal < 0) MM_TRY(find_least(s, lossy, least.takes.bytes, found));
        if (fits(s, &found->takes)) return MM_OK;
        if (found->takes.bytes < least.takes.bytes) least = *found;
    }
    *found = least;
    return MM_OK;
}

/* The fastest policy that would fit as published if there were enough pinned memory. */
static choice find_pinning(const search *s) {
    const choice lossless = fastest(s, false, INT64_MAX);
    return lossless.proposal >= 0 ? lossless : fastest(s, true, INT64_MAX);
}

/* The fastest lossless policy of those that would fit with a function that recomputes layers; if none would, the one
 * that needs the least device memory within the pinned memory. */
static choice find_with_function(const search *s) {
    choice best = nothing, least = nothing;
    for (int p = 0; p < s->n_published; p++) {
        mm_trial t = s->published[p];
        if (!t.needs_function || t.lossy) continue;
        t.needs_function = false;
        if (fits(s, &t) && (best.proposal < 0 || t.step_ns < best.takes.step_ns)) best = (choice){p, t};
        if (is_within(&t, least.takes.bytes - 1, s->limits->pinned_bytes)) least = (choice){p, t};
    }
    return best.proposal >= 0 ? best : least;
}

/* Whether a policy that needs a function that recomputes layers is to be named beside the advice. */
static bool is_better(const search *s, const choice *other, const mm_advice *advice) {
    if (other->proposal < 0) return false;
    if (fits(s, &other->takes)) return advice->kind != MM_ADVICE_FITS || advice->takes.lossy;
    return advice->kind == MM_ADVICE_NEEDS_LEAST && other->takes.bytes < advice->takes.bytes;
}

mm_status mm_advice_find(const mm_advice_request *wish, mm_trial_fn try_policy, void *ctx, mm_advice *advice_out) {
    search s = {.wish = wish, .limits = wish->limits, .try_policy = try_policy, .ctx = ctx};
    choice found;
    MM_TRY(find(&s, &found));
    mm_advice advice = {.kind = MM_ADVICE_FITS};
    if (found.takes.bytes > wish->limits->device_bytes) { /* none fits */
        const choice pinning = find_pinning(&s);
        advice.kind = pinning.proposal >= 0 ? MM_ADVICE_PINNED : MM_ADVICE_NEEDS_LEAST;
        if (pinning.proposal >= 0) found = pinning;
    }
    advice.takes = found.takes;
    if (found.proposal >= 0)
        MM_TRY(propose(&proposals[found.proposal], &advice.policy));
    else
        advice.kind = MM_ADVICE_NONE;
    const choice other = find_with_function(&s);
    mm_status status = MM_OK;
    advice.function_takes = other.takes;
    if (is_better(&s, &other, &advice)) status = propose(&proposals[other.proposal], &advice.with_function);
    if (status == MM_OK)
        *advice_out = advice;
    else
        mm_policy_fini(&advice.policy);
    return status;
}

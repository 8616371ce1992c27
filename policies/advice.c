#include "policies/advice.h"

#include "mm/core/status.h"
#include "policies/strategies.h"

/* Of equal ones the first is advised; what is lossless comes first. A policy that fits as published (when=always) fits
 * in its default form, too. */
enum { LIVENESS, SWAP_ASYNC = 2 };
static const struct proposal {
    const mm_policy_ops *ops;
    mm_recompute_mode mode;
    const char *codec; /* rules: for all maps that it takes, the others swapped; NULL: the policy's own rules */
    bool waits;        /* it copies what swap-async copies, and waits more: for where that does not fit */
    bool once;         /* it has one form alone */
    bool last;         /* it tries the others, too: for where none of them fits */
} proposals[] = {
    [LIVENESS] = {&mm_policy_liveness, MM_RECOMPUTE_COST, NULL, false},
    {&mm_policy_recompute, MM_RECOMPUTE_COST, NULL, false},
    [SWAP_ASYNC] = {&mm_policy_swap_async, MM_RECOMPUTE_COST, NULL, false},
    {&mm_policy_recompute, MM_RECOMPUTE_SQRT, NULL, false},
    {&mm_policy_recompute_swap, MM_RECOMPUTE_SQRT, NULL, false},
    {&mm_policy_vdnn_all, MM_RECOMPUTE_COST, NULL, true},
    {&mm_policy_swap, MM_RECOMPUTE_COST, NULL, true},
    {&mm_policy_modnn, MM_RECOMPUTE_COST, NULL, true, .once = true},
    {&mm_policy_cdma, MM_RECOMPUTE_COST, NULL, true},
    {&mm_policy_auto, MM_RECOMPUTE_NESTED, NULL, true, .once = true, .last = true},
    {&mm_policy_freelunch, MM_RECOMPUTE_COST, NULL, false},
    {&mm_policy_hybrid, MM_RECOMPUTE_COST, NULL, false},
    {&mm_policy_rules, MM_RECOMPUTE_COST, "zfp:rate=4", false},
};
enum { PROPOSALS = sizeof proposals / sizeof *proposals };

static mm_status configure(const struct proposal *p, mm_policy *policy) {
    if (policy->config.n_rules > 0) policy->config.recompute = p->mode; /* a baseline has none */
    policy->config.sub_batch = MM_SUB_BATCH_OFF;                        /* what is tried is the graph at hand */
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

/* A proposal, and what it takes. */
typedef struct choice {
    int proposal; /* -1: none */
    mm_trial takes;
} choice;

static const choice nothing = {.proposal = -1, .takes = {.bytes = INT64_MAX}};

typedef struct search {
    const mm_limits *limits;
    bool published_only;
    mm_trial_fn try_policy;
    void *ctx;
    mm_trial published[PROPOSALS]; /* as published */
    int n_published;               /* of them were tried */
} search;

static mm_status try_proposal(const search *s, int proposal, mm_when when, mm_trial *takes_out) {
    mm_policy policy;
    MM_TRY(propose(&proposals[proposal], &policy));
    policy.config.when = when;
    *takes_out = s->try_policy(s->ctx, &policy);
    mm_policy_fini(&policy);
    return MM_OK;
}

static bool is_within(const mm_trial *t, int64_t device_bytes, int64_t pinned_bytes) {
    return t->bytes <= device_bytes && t->pinned_bytes <= pinned_bytes;
}

static bool fits(const search *s, const mm_trial *t) {
    return is_within(t, s->limits->device_bytes, s->limits->pinned_bytes);
}

/* Whether a proposal of that kind fits as published within so much pinned memory, and may be the fastest that does. */
static bool is_rival(const search *s, int proposal, bool lossy, int64_t pinned_bytes) {
    const int64_t device = s->limits->device_bytes;
    const mm_trial *t = &s->published[proposal];
    if (proposals[proposal].waits && is_within(&s->published[SWAP_ASYNC], device, pinned_bytes)) return false;
    return t->lossy == lossy && is_within(t, device, pinned_bytes);
}

/* The fastest of them as published. */
static choice fastest(const search *s, bool lossy, int64_t pinned_bytes) {
    choice best = nothing;
    for (int p = 0; p < s->n_published; p++)
        if (is_rival(s, p, lossy, pinned_bytes) && (best.proposal < 0 || s->published[p].step_ns < best.takes.step_ns))
            best = (choice){p, s->published[p]};
    return best;
}

/* Tries all as published, until a lossy one comes and a lossless one fits. */
static mm_status try_published(search *s) {
    bool lossless_fits = false;
    while (s->n_published < PROPOSALS) {
        const int p = s->n_published++;
        mm_trial *t = &s->published[p];
        *t = nothing.takes;
        if (proposals[p].waits && fits(s, &s->published[SWAP_ASYNC])) continue; /* no rival */
        if (proposals[p].last && lossless_fits) continue;
        MM_TRY(try_proposal(s, p, MM_WHEN_ALWAYS, t));
        lossless_fits |= !t->lossy && fits(s, t);
        if (lossless_fits && t->lossy) break;
        if (fits(s, &s->published[LIVENESS])) break; /* nothing is faster */
    }
    return MM_OK;
}

/* Of those of one kind that fit as published the fastest in its default form. */
static mm_status find_fastest(search *s, bool lossy, choice *found) {
    choice best = fastest(s, lossy, s->limits->pinned_bytes);
    const bool again = best.proposal > LIVENESS && !s->published_only;
    for (int p = 0; again && p < s->n_published; p++) {
        choice c = {.proposal = p};
        if (proposals[p].once || !is_rival(s, p, lossy, s->limits->pinned_bytes)) continue;
        MM_TRY(try_proposal(s, p, MM_WHEN_NEEDED, &c.takes));
        if (fits(s, &c.takes) && c.takes.step_ns < best.takes.step_ns) best = c;
    }
    *found = best;
    return MM_OK;
}

/* Of those of one kind what needs least, in its default form if that needs less. */
static mm_status find_least(search *s, bool lossy, choice *found) {
    const int64_t pinned = s->limits->pinned_bytes;
    *found = nothing;
    for (int p = 0; p < s->n_published; p++) {
        const mm_trial *t = &s->published[p];
        if (t->lossy == lossy && is_within(t, found->takes.bytes - 1, pinned)) *found = (choice){p, *t};
    }
    choice c = *found;
    if (c.proposal < 0 || s->published_only || proposals[c.proposal].once) return MM_OK;
    MM_TRY(try_proposal(s, c.proposal, MM_WHEN_NEEDED, &c.takes));
    if (is_within(&c.takes, found->takes.bytes - 1, pinned)) *found = c;
    return MM_OK;
}

static mm_status find(search *s, choice *found) {
    choice least = nothing;
    MM_TRY(try_published(s));
    for (int lossy = 0; lossy < 2; lossy++) {
        MM_TRY(find_fastest(s, lossy, found));
        if (found->proposal < 0) MM_TRY(find_least(s, lossy, found));
        if (fits(s, &found->takes)) return MM_OK;
        if (found->takes.bytes < least.takes.bytes) least = *found;
    }
    *found = least;
    return MM_OK;
}

/* The fastest that would fit as published if there were pinned memory enough. */
static choice find_pinning(const search *s) {
    const choice lossless = fastest(s, false, INT64_MAX);
    return lossless.proposal >= 0 ? lossless : fastest(s, true, INT64_MAX);
}

mm_status mm_advice_find(const mm_limits *limits, bool published_only, mm_trial_fn try_policy, void *ctx,
                         mm_advice *advice_out) {
    search s = {.limits = limits, .published_only = published_only, .try_policy = try_policy, .ctx = ctx};
    choice found;
    MM_TRY(find(&s, &found));
    mm_advice advice = {.kind = MM_ADVICE_FITS};
    if (found.takes.bytes > limits->device_bytes) { /* all were tried in vain */
        const choice pinning = find_pinning(&s);
        advice.kind = pinning.proposal >= 0 ? MM_ADVICE_PINNED : MM_ADVICE_NEEDS_LEAST;
        if (pinning.proposal >= 0) found = pinning;
    }
    advice.takes = found.takes;
    if (found.proposal >= 0)
        MM_TRY(propose(&proposals[found.proposal], &advice.policy));
    else
        advice.kind = MM_ADVICE_NONE;
    *advice_out = advice;
    return MM_OK;
}

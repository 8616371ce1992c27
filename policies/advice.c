#include "policies/advice.h"

#include "mm/core/status.h"
#include "policies/strategies.h"

/* In the order in which they are named: without loss, then the others. A policy that fits as published (when=always)
 * fits in its default form, too. */
static const struct proposal {
    const mm_policy_ops *ops;
    mm_recompute_mode mode;
    const char *codec; /* rules: for all maps that it takes, the others swapped; NULL: the policy's own rules */
} proposals[] = {
    {&mm_policy_liveness, MM_RECOMPUTE_COST, NULL},       {&mm_policy_recompute, MM_RECOMPUTE_COST, NULL},
    {&mm_policy_swap_async, MM_RECOMPUTE_COST, NULL},     {&mm_policy_recompute, MM_RECOMPUTE_SQRT, NULL},
    {&mm_policy_recompute_swap, MM_RECOMPUTE_SQRT, NULL}, {&mm_policy_vdnn_all, MM_RECOMPUTE_COST, NULL},
    {&mm_policy_swap, MM_RECOMPUTE_COST, NULL},           {&mm_policy_freelunch, MM_RECOMPUTE_COST, NULL},
    {&mm_policy_hybrid, MM_RECOMPUTE_COST, NULL},         {&mm_policy_cdma, MM_RECOMPUTE_COST, NULL},
    {&mm_policy_rules, MM_RECOMPUTE_COST, "zfp:rate=4"},
};
enum { PROPOSALS = sizeof proposals / sizeof *proposals };

static mm_status configure(const struct proposal *p, mm_policy *policy) {
    if (policy->config.n_rules > 0) policy->config.recompute = p->mode; /* a baseline has none */
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
    mm_trial published[PROPOSALS]; /* of those that were tried as published */
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

/* The first that fits; else what needs least. */
static mm_status find(search *s, choice *found) {
    const int64_t device = s->limits->device_bytes, pinned = s->limits->pinned_bytes;
    choice best[2] = {nothing, nothing}; /* without loss, with */
    for (int p = 0; p < PROPOSALS; p++) {
        mm_trial *t = &s->published[p];
        MM_TRY(try_proposal(s, p, MM_WHEN_ALWAYS, t));
        *found = (choice){p, *t};
        if (is_within(t, device, pinned)) return MM_OK;
        if (is_within(t, best[t->lossy].takes.bytes - 1, pinned)) best[t->lossy] = *found;
    }
    for (int lossy = 0; lossy < 2 && !s->published_only; lossy++) {
        choice c = {.proposal = best[lossy].proposal};
        if (c.proposal < 0) continue;
        MM_TRY(try_proposal(s, c.proposal, MM_WHEN_NEEDED, &c.takes));
        *found = c;
        if (is_within(&c.takes, device, pinned)) return MM_OK;
        if (is_within(&c.takes, best[lossy].takes.bytes - 1, pinned)) best[lossy] = c;
    }
    *found = best[best[1].takes.bytes < best[0].takes.bytes];
    return MM_OK;
}

/* The first that would fit as published if there were pinned memory enough. */
static choice find_pinning(const search *s) {
    for (int p = 0; p < PROPOSALS; p++)
        if (is_within(&s->published[p], s->limits->device_bytes, INT64_MAX)) return (choice){p, s->published[p]};
    return nothing;
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

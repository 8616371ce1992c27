#include "mm/advice.h"

#include <stdio.h>

#include "mm/core/status.h"
#include "mm/planning.h"

/* In the order in which they are named: without loss, then the others. A policy that fits as published fits in its
 * default form, too. */
static const struct proposal {
    const char *spec, *published;
} proposals[] = {
    {"liveness", "liveness"},
    {"recompute", "recompute:when=always"},
    {"swap-async", "swap-async:when=always"},
    {"recompute:mode=sqrt", "recompute:mode=sqrt,when=always"},
    {"recompute-swap", "recompute-swap:when=always"},
    {"vdnn-all", "vdnn-all:when=always"},
    {"swap", "swap:when=always"},
    {"freelunch", "freelunch:when=always"},
    {"hybrid", "hybrid:when=always"},
    {"cdma", "cdma:when=always"},
    {"rules:*=compress(zfp:rate=4);*=swap", "rules:*=compress(zfp:rate=4);*=swap,when=always"},
};

/* What a policy takes within the limits, or, if it does not fit, at the least. */
typedef struct trial {
    const char *spec;
    int64_t bytes; /* INT64_MAX: it cannot be had */
    int64_t pinned_bytes;
    bool lossy;
} trial;

enum { PROPOSALS = sizeof proposals / sizeof *proposals };

/* Each as published, which does not depend on the limits. */
typedef struct trials {
    const mm_refused *refused;
    trial of[PROPOSALS];
} trials;

/* Whether whoever was refused can run the plan, memory aside. */
static bool can_run(const mm_refused *r, const mm_plan *plan) {
    for (int i = 0; !r->recomputes && i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE) return false;
    return true;
}

/* A policy by its spec, in that form. */
static trial try_policy(const mm_refused *r, const char *spec, const char *form) {
    trial t = {.spec = spec, .bytes = INT64_MAX};
    mm_policy policy;
    mm_planned planned;
    if (mm_policy_parse(form, &policy) != MM_OK) return t;
    if (mm_planned_init(&planned, &policy, r->graph, r->device) != MM_OK) { /* not on this device */
        mm_policy_fini(&policy);
        return t;
    }
    mm_planned_tell(&planned, &r->rates);
    for (int c = 0; c < planned.facts->n_codecs; c++) t.lossy |= !planned.facts->codecs[c].lossless;
    bool made = mm_planned_make(&planned, &policy, r->graph, &r->limits) == MM_OK;
    if (made && can_run(r, planned.plan)) {
        t.bytes = planned.plan->peak_bytes;
        t.pinned_bytes = planned.plan->pinned_bytes;
    }
    mm_planned_fini(&planned);
    mm_policy_fini(&policy);
    return t;
}

static bool is_within(const trial *t, int64_t device_bytes, int64_t pinned_bytes) {
    return t->bytes <= device_bytes && t->pinned_bytes <= pinned_bytes;
}

/* The first that fits; else what needs least. Its bytes are INT64_MAX if nothing can be had. */
static trial find(trials *all) {
    const mm_refused *r = all->refused;
    const int64_t pinned = r->limits.pinned_bytes;
    trial best[2] = {{.bytes = INT64_MAX}, {.bytes = INT64_MAX}}; /* without loss, with */
    for (size_t p = 0; p < PROPOSALS; p++) {
        trial *t = &all->of[p];
        *t = try_policy(r, proposals[p].spec, proposals[p].published);
        if (is_within(t, r->limits.device_bytes, pinned)) return *t;
        if (is_within(t, best[t->lossy].bytes - 1, pinned)) best[t->lossy] = *t;
    }
    for (int lossy = 0; lossy < 2 && !r->descended; lossy++) {
        trial t = {.bytes = INT64_MAX};
        if (best[lossy].spec) t = try_policy(r, best[lossy].spec, best[lossy].spec);
        if (is_within(&t, best[lossy].bytes - 1, pinned)) best[lossy] = t;
        if (is_within(&t, r->limits.device_bytes, pinned)) return t;
    }
    return best[best[1].bytes < best[0].bytes];
}

/* The first that would fit as published if there were pinned memory enough, once it was tried in vain with what there
 * is. */
static trial find_pinning(const trials *all) {
    for (size_t p = 0; p < PROPOSALS; p++)
        if (is_within(&all->of[p], all->refused->limits.device_bytes, INT64_MAX)) return all->of[p];
    return (trial){.bytes = INT64_MAX};
}

mm_status mm_advise(const mm_refused *refused) {
    char refusal[MM_MESSAGE_CAPACITY];
    snprintf(refusal, sizeof refusal, "%s", mm_last_error());
    trials all = {.refused = refused};
    trial t = find(&all);
    const char *lossy = t.lossy ? " (lossy)" : "";
    if (t.bytes <= refused->limits.device_bytes)
        return mm_fail(MM_ERR_INFEASIBLE, "%s; policy %s%s would fit", refusal, t.spec, lossy);
    trial pinning = find_pinning(&all);
    if (pinning.bytes <= refused->limits.device_bytes)
        return mm_fail(MM_ERR_INFEASIBLE,
                       "%s; no policy would fit with %s of pinned memory; with %s, policy %s%s would", refusal,
                       MM_SIZE_TOLD(refused->limits.pinned_bytes), MM_SIZE_TOLD(pinning.pinned_bytes), pinning.spec,
                       pinning.lossy ? " (lossy)" : "");
    if (t.bytes == INT64_MAX || refused->descended) return mm_fail(MM_ERR_INFEASIBLE, "%s", refusal);
    return mm_fail(MM_ERR_INFEASIBLE, "%s; no policy would fit: %s%s needs least, %s", refusal, t.spec, lossy,
                   MM_SIZE_TOLD(t.bytes));
}

/* SPDX-License-Identifier: MIT */
#include "mm/planning/refusal.h"

#include <stdio.h>

#include "mm/core/account/account_bound.h"
#include "mm/core/plan/plan_fits.h"
#include "mm/core/size.h"
#include "mm/core/status.h"
#include "mm/core/time/simulate.h"
#include "policies/advice.h"
#include "policies/policy_table.h"
#include "policies/schedule/nominal.h"

/* Up to so many steps, the policy auto plans a graph within a second. */
enum { DEEP_STEPS = 1000 };

/* If the plan recomputes, whether there is a function that recomputes layers. */
static bool can_run(const mm_refused *r, const mm_plan *plan) {
    for (int i = 0; !r->recomputes && i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE) return false;
    return true;
}

mm_status mm_times_measured(const void *ctx, const mm_graph *graph, mm_graph_facts *facts) {
    return mm_facts_apply(ctx, graph, MM_FACTS_TIMES, facts);
}

/* Predicts the time of an iteration; INT64_MAX: it cannot be predicted. Sets nominal times if the facts have none. */
static mm_status predict(const mm_refused *r, mm_planned *planned, int64_t *ns_out) {
    mm_simulation simulation;
    *ns_out = INT64_MAX;
    if (mm_nominal_is_due(planned->facts)) mm_nominal_times(r->graph, planned->facts);
    MM_TRY(mm_program_simulate(planned->program, planned->facts, &simulation));
    *ns_out = simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    return MM_OK;
}

/* Adds times, if there are any of this graph. */
static mm_status add_times(const mm_refused *r, mm_graph_facts *facts) {
    mm_status status = r->add_times ? r->add_times(r->times, r->graph, facts) : MM_OK;
    return status == MM_ERR_FORMAT ? MM_OK : status;
}

/* Plans, and sets what the plan takes. Leaves `t` as it is if there is none. */
static mm_status make(const mm_refused *r, const mm_policy *policy, const mm_limits *limits, mm_planned *planned,
                      mm_trial *t) {
    MM_TRY(add_times(r, planned->facts));
    mm_planned_set_rates(planned, &r->rates);
    MM_TRY(mm_planned_make(planned, policy, r->graph, limits));
    t->needs_function = !can_run(r, planned->plan);
    t->bytes = planned->plan->peak_bytes;
    t->pinned_bytes = planned->plan->pinned_bytes;
    t->step_ns = INT64_MAX;
    return t->bytes <= limits->device_bytes ? predict(r, planned, &t->step_ns) : MM_OK;
}

static mm_trial try_within(const mm_refused *r, const mm_policy *policy, const mm_limits *limits) {
    mm_trial t = {.bytes = INT64_MAX};
    mm_planned planned;
    mm_status status = mm_planned_init(&planned, policy, r->graph, r->device); /* the device may lack its codecs */
    if (status == MM_OK) {
        for (int c = 0; c < planned.facts->n_codecs; c++) t.lossy |= !planned.facts->codecs[c].lossless;
        status = make(r, policy, limits, &planned, &t);
        mm_planned_fini(&planned);
    }
    t.no_memory = status == MM_ERR_NOMEM;
    return t;
}

/* An mm_trial_fn. */
static mm_trial try_policy(void *ctx, const mm_policy *policy, bool any) {
    const mm_refused *r = ctx;
    mm_limits limits = r->limits;
    limits.first_fit = any;
    const mm_trial t = try_within(r, policy, &limits);
    if (!t.needs_function || policy->ops != &mm_policy_auto) return t;
    limits.no_recompute = true;
    const mm_trial without = try_within(r, policy, &limits);
    return without.needs_function || without.bytes > limits.device_bytes ? t : without;
}

/* Whether a plan could use more pinned memory than the limit: there are more bytes of tensors. */
static bool limits_pinned(const mm_refused *r) {
    int64_t bytes = 0;
    for (int t = 0; t < mm_graph_tensors(r->graph) && bytes <= r->limits.pinned_bytes; t++)
        bytes += mm_align(mm_graph_tensor(r->graph, t)->bytes);
    return bytes > r->limits.pinned_bytes;
}

/* No policy fits. Where the limit of pinned memory counts, it is named: with more, less might be enough. */
static mm_status tell_least(const mm_refused *r, const char *refusal, const mm_advice *advice) {
    const bool none_less = r->needs_bytes > 0 && advice->takes.bytes >= r->needs_bytes;
    char within[128] = "";
    if (limits_pinned(r))
        snprintf(within, sizeof within, " with %s of pinned memory%s", MM_SIZE_TEXT(r->limits.pinned_bytes),
                 r->pinned_from ? r->pinned_from : "");
    if (none_less)
        return mm_fail(MM_ERR_INFEASIBLE, "%s; no policy needs less than %s%s", refusal, MM_SIZE_TEXT(r->needs_bytes),
                       within);
    return mm_fail(MM_ERR_INFEASIBLE, "%s; no policy would fit%s: %s%s needs least, %s%s", refusal, within,
                   advice->policy.spec, advice->takes.lossy ? " (lossy)" : "", MM_SIZE_TEXT(advice->takes.bytes),
                   MM_PLAN_PINNED_TEXT(advice->takes.pinned_bytes));
}

/* What a policy that would fit pins, by the plan that was tried; the one that will run may pin less, or some more. */
static const char *pins(const mm_advice *advice, char buffer[96]) {
    buffer[0] = '\0';
    if (advice->takes.pinned_bytes > 0)
        snprintf(buffer, 96, ", with about %s of pinned host memory", MM_SIZE_TEXT(advice->takes.pinned_bytes));
    return buffer;
}

/* Returns the refusal, followed by the advice. */
static mm_status tell(const mm_refused *r, const char *refusal, const mm_advice *advice) {
    const char *spec = advice->policy.spec, *lossy = advice->takes.lossy ? " (lossy)" : "";
    if (advice->with_function.spec && advice->kind != MM_ADVICE_FITS)
        return mm_fail(MM_ERR_INFEASIBLE, "%s; policy %s would fit (needs mm_recompute_set)", refusal,
                       advice->with_function.spec);
    if (advice->with_function.spec)
        return mm_fail(MM_ERR_INFEASIBLE, "%s; policy %s%s would fit%s, and lossless %s (needs mm_recompute_set)",
                       refusal, spec, lossy, pins(advice, (char[96]){0}), advice->with_function.spec);
    const char *from = r->pinned_from ? r->pinned_from : "";
    switch (advice->kind) {
    case MM_ADVICE_FITS:
        return mm_fail(MM_ERR_INFEASIBLE, "%s; policy %s%s would fit%s", refusal, spec, lossy,
                       pins(advice, (char[96]){0}));
    case MM_ADVICE_PINNED:
        return mm_fail(
            MM_ERR_INFEASIBLE, "%s; no policy would fit with %s of pinned memory%s; with %s, policy %s%s would",
            refusal, MM_SIZE_TEXT(r->limits.pinned_bytes), from, MM_SIZE_TEXT(advice->takes.pinned_bytes), spec, lossy);
    case MM_ADVICE_NEEDS_LEAST:
        if (r->descended) break;
        return tell_least(r, refusal, advice);
    case MM_ADVICE_NONE:
        break;
    }
    return mm_fail(MM_ERR_INFEASIBLE, "%s", refusal);
}

/* Whether no plan of any policy fits the budget. */
static bool is_hopeless(const mm_refused *r) {
    mm_graph_facts *facts;
    if (mm_graph_facts_create(r->graph, 0, &facts) != MM_OK) return false;
    const bool over = mm_lower_bound_of(r->graph, facts).bytes > r->limits.device_bytes;
    mm_graph_facts_destroy(facts);
    return over;
}

mm_status mm_advise(const mm_refused *refused, const char *refusal) {
    mm_refused ctx = *refused;
    mm_advice advice = {.kind = MM_ADVICE_NONE};
    const mm_advice_request request = {.limits = &refused->limits,
                                       .published_only = refused->descended || refused->quick,
                                       .quick = refused->quick,
                                       .deep = mm_graph_steps(refused->graph) > DEEP_STEPS,
                                       .hopeless = is_hopeless(refused),
                                       .refused = refused->needs_bytes > 0 ? refused->policy : NULL,
                                       .refused_takes = {.bytes = refused->needs_bytes}};
    if (mm_advice_find(&request, try_policy, &ctx, &advice) != MM_OK)
        return mm_fail(MM_ERR_INFEASIBLE, "%s", refusal); /* without advice */
    if (refused->advised && advice.kind == MM_ADVICE_FITS)
        snprintf(refused->advised, refused->advised_bytes, "%s", advice.policy.spec);
    mm_status status = tell(refused, refusal, &advice);
    mm_policy_fini(&advice.policy);
    mm_policy_fini(&advice.with_function);
    return status;
}

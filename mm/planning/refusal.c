/* SPDX-License-Identifier: MIT */
#include "mm/planning/refusal.h"

#include <stdio.h>
#include <stdlib.h>

#include "mm/core/account/account_bound.h"
#include "mm/core/plan/plan_fits.h"
#include "mm/core/size.h"
#include "mm/core/text.h"
#include "mm/core/time/simulate.h"
#include "mm/planning/together.h"
#include "policies/advice.h"
#include "policies/policy_table.h"
#include "policies/schedule/nominal.h"

/* Up to so many steps, the policy auto plans a graph within a second. */
enum { DEEP_STEPS = 1000 };

static bool recomputes(const mm_plan *plan) {
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE) return true;
    return false;
}

mm_status mm_times_measured(const void *ctx, const mm_graph *graph, mm_graph_facts *facts) {
    return mm_facts_apply(ctx, graph, MM_FACTS_TIMES, facts);
}

/* Predicts the time of an iteration; INT64_MAX: it cannot be predicted. Sets nominal times if the facts have none. */
static mm_status predict(const mm_graph *graph, mm_planned *planned, int64_t *ns_out) {
    mm_simulation simulation;
    *ns_out = INT64_MAX;
    if (mm_nominal_is_due(planned->facts)) mm_nominal_times(graph, planned->facts);
    MM_TRY(mm_program_simulate(planned->program, planned->facts, &simulation));
    *ns_out = simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    return MM_OK;
}

/* Adds times, if there are any of this graph. */
static mm_status add_times(const mm_refused *r, const mm_graph *graph, mm_graph_facts *facts) {
    mm_status status = r->add_times ? r->add_times(r->times, graph, facts) : MM_OK;
    return status == MM_ERR_FORMAT ? MM_OK : status;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* The graphs that were refused together, and their plans. */
typedef struct trial_graphs {
    int n;
    mm_new_graph *of; /* the refused one first */
    const mm_graph **graphs;
    mm_planned *made, **planned;
} trial_graphs;

static void trial_graphs_fini(trial_graphs *g) {
    for (int i = 0; g->made && i < g->n; i++) mm_planned_fini(&g->made[i]);
    free(g->of);
    free((void *)g->graphs);
    free(g->made);
    free((void *)g->planned);
}

static mm_status trial_graphs_init(const mm_refused *r, const mm_policy *policy, trial_graphs *g) {
    const size_t n = (size_t)r->n_others + 1;
    *g = (trial_graphs){.n = (int)n,
                        .of = calloc(n, sizeof *g->of),
                        .graphs = calloc(n, sizeof *g->graphs),
                        .made = calloc(n, sizeof *g->made),
                        .planned = calloc(n, sizeof *g->planned)};
    if (!g->of || !g->graphs || !g->made || !g->planned)
        return mm_fail(MM_ERR_NOMEM, "out of memory for the refusal of %s", mm_graph_name(r->graph));
    for (int i = 0; i < g->n; i++) {
        g->of[i] = i == 0 ? (mm_new_graph){r->graph, r->recomputes || r->may_be_set} : r->others[i - 1];
        g->graphs[i] = g->of[i].graph;
        g->planned[i] = &g->made[i];
        MM_TRY(mm_planned_init(&g->made[i], policy, g->graphs[i], r->device)); /* the device may lack its codecs */
        MM_TRY(add_times(r, g->graphs[i], g->made[i].facts));
        mm_planned_set_rates(&g->made[i], &r->rates);
    }
    return MM_OK;
}

/* Adds to the trial what a graph's plan takes. */
static mm_status add_plan(const mm_new_graph *of, mm_planned *planned, const mm_limits *limits, mm_trial *t) {
    const bool again = recomputes(planned->plan);
    int64_t ns = INT64_MAX;
    t->recomputes |= again;
    t->needs_function |= again && !of->recomputes;
    t->bytes = larger(t->bytes, planned->plan->peak_bytes);
    t->pinned_bytes = larger(t->pinned_bytes, planned->plan->pinned_bytes);
    t->disk_bytes = larger(t->disk_bytes, planned->plan->disk_bytes);
    if (t->bytes <= limits->device_bytes && predict(of->graph, planned, &ns) == MM_ERR_NOMEM) return MM_ERR_NOMEM;
    t->step_ns = ns < INT64_MAX && t->step_ns < INT64_MAX ? t->step_ns + ns : INT64_MAX;
    return MM_OK;
}

static mm_status plan_all(const mm_refused *r, const mm_policy *policy, const mm_limits *limits, trial_graphs *g,
                          mm_trial *t) {
    mm_policy own = *policy;
    if (r->all_stay) own.config.resident = MM_RESIDENT_ALL;
    for (int i = 0; i < g->n; i++)
        for (int c = 0; c < g->made[i].facts->n_codecs; c++) t->lossy |= !g->made[i].facts->codecs[c].lossless;
    MM_TRY(mm_together_plan(&(mm_together){g->graphs, g->planned, g->n, r->persistents}, &own, limits));
    for (int i = 0; i < g->n; i++) MM_TRY(add_plan(&g->of[i], &g->made[i], limits, t));
    return MM_OK;
}

static mm_trial try_within(const mm_refused *r, const mm_policy *policy, const mm_limits *limits) {
    trial_graphs g;
    mm_trial t = {0};
    mm_status status = trial_graphs_init(r, policy, &g);
    if (status == MM_OK) status = plan_all(r, policy, limits, &g, &t);
    trial_graphs_fini(&g);
    /* No advice is of use that the disk has no room for. */
    if (status == MM_OK && t.disk_bytes > limits->disk_bytes) t.bytes = INT64_MAX;
    if (status != MM_OK) t = (mm_trial){.bytes = INT64_MAX, .lossy = t.lossy}; /* there is no plan */
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

/* " and N on the disk"; "": nothing is there. Returns buffer. */
static const char *on_disk(int64_t bytes, char buffer[64]) {
    buffer[0] = '\0';
    if (bytes > 0) snprintf(buffer, 64, " and %s on the disk", MM_SIZE_TEXT(bytes));
    return buffer;
}

/* Whether a policy fits the pinned memory with a disk, which is not given. */
static bool fits_with_disk(const mm_refused *r, const mm_policy *policy) {
    mm_limits limits = r->limits;
    if (limits.disk_bytes > 0) return false;
    limits.disk_bytes = INT64_MAX / 2;
    limits.first_fit = true;
    const mm_trial t = try_within(r, policy, &limits);
    return t.bytes <= limits.device_bytes && t.pinned_bytes <= limits.pinned_bytes;
}

/* No policy fits. Where the limit of pinned memory counts, it is named: with more, less might be enough. */
static mm_status tell_least(const mm_refused *r, const char *refusal, const mm_advice *advice) {
    const bool none_less = r->needs_bytes > 0 && advice->takes.bytes >= r->needs_bytes;
    char within[192] = "", function[192] = "";
    if (limits_pinned(r))
        snprintf(within, sizeof within, " with %s of pinned memory%s%s", MM_SIZE_TEXT(r->limits.pinned_bytes),
                 r->pinned_from ? r->pinned_from : "", on_disk(r->limits.disk_bytes, (char[64]){0}));
    if (advice->with_function.spec)
        snprintf(function, sizeof function, "; %s would need %s (needs mm_recompute_set)",
                 MM_BRIEF(advice->with_function.spec), MM_SIZE_TEXT(advice->function_takes.bytes));
    if (none_less)
        return mm_fail(MM_ERR_INFEASIBLE, "%s; no policy needs less than %s%s%s", refusal, MM_SIZE_TEXT(r->needs_bytes),
                       within, function);
    return mm_fail(MM_ERR_INFEASIBLE, "%s; no policy would fit%s: %s%s needs least, %s%s%s", refusal, within,
                   advice->policy.spec, advice->takes.lossy ? " (lossy)" : "", MM_SIZE_TEXT(advice->takes.bytes),
                   MM_PLAN_PINNED_TEXT(advice->takes.pinned_bytes), function);
}

/* What a policy that would fit pins, by the plan that was tried; the one that will run may pin less, or some more. */
static const char *pins(const mm_advice *advice, char buffer[160]) {
    buffer[0] = '\0';
    if (advice->takes.pinned_bytes > 0)
        snprintf(buffer, 160, ", with about %s of pinned host memory%s", MM_SIZE_TEXT(advice->takes.pinned_bytes),
                 on_disk(advice->takes.disk_bytes, (char[64]){0}));
    return buffer;
}

/* Says of a plan that recomputes that it needs a function, if it is not known whether there is one. */
static const char *needs(const mm_refused *r, const mm_trial *takes) {
    return r->may_be_set && takes->recomputes ? " (needs mm_recompute_set)" : "";
}

/* Whether there is a policy that would fit, but for the function that recomputes layers. */
static bool fits_with_function(const mm_refused *r, const mm_advice *advice) {
    return advice->with_function.spec && advice->function_takes.bytes <= r->limits.device_bytes;
}

/* Returns the refusal, followed by the advice. */
static mm_status tell(const mm_refused *r, const char *refusal, const mm_advice *advice) {
    const char *spec = advice->policy.spec, *lossy = advice->takes.lossy ? " (lossy)" : "";
    const bool with_function = fits_with_function(r, advice);
    if (with_function && advice->kind != MM_ADVICE_FITS)
        return mm_fail(MM_ERR_INFEASIBLE, "%s; policy %s would fit (needs mm_recompute_set)", refusal,
                       advice->with_function.spec);
    if (with_function)
        return mm_fail(MM_ERR_INFEASIBLE, "%s; policy %s%s would fit%s, and lossless %s (needs mm_recompute_set)",
                       refusal, spec, lossy, pins(advice, (char[160]){0}), advice->with_function.spec);
    const char *from = r->pinned_from ? r->pinned_from : "";
    switch (advice->kind) {
    case MM_ADVICE_FITS:
        return mm_fail(MM_ERR_INFEASIBLE, "%s; policy %s%s would fit%s%s", refusal, spec, lossy,
                       pins(advice, (char[160]){0}), needs(r, &advice->takes));
    case MM_ADVICE_PINNED:
        return mm_fail(MM_ERR_INFEASIBLE,
                       "%s; no policy would fit with %s of pinned memory%s%s; with %s%s, policy %s%s would%s", refusal,
                       MM_SIZE_TEXT(r->limits.pinned_bytes), from, on_disk(r->limits.disk_bytes, (char[64]){0}),
                       MM_SIZE_TEXT(advice->takes.pinned_bytes),
                       fits_with_disk(r, &advice->policy) ? ", or with a disk (mm_options.disk, --disk)" : "", spec,
                       lossy, needs(r, &advice->takes));
    case MM_ADVICE_NEEDS_LEAST:
        if (r->descended) break;
        return tell_least(r, refusal, advice);
    case MM_ADVICE_NONE:
        break;
    }
    return mm_fail(MM_ERR_INFEASIBLE, "%s", refusal);
}

/* ---------------------------------------------------------------- as data */

void mm_refused_put(char name[MM_PLAN_NAME_CAPACITY], const char *text) {
    mm_text_mark_cut(name, MM_PLAN_NAME_CAPACITY, snprintf(name, MM_PLAN_NAME_CAPACITY, "%s", text));
}

const mm_graph *mm_refused_beside(const mm_graph *graph, const mm_new_graph *others, int n) {
    const mm_graph *most = NULL;
    int64_t most_bytes = 0;
    for (int i = 0; i < n; i++) {
        const int64_t bytes = mm_persistent_beside(graph, others[i].graph);
        if (bytes <= most_bytes) continue;
        most_bytes = bytes;
        most = others[i].graph;
    }
    return most;
}

const char *mm_refused_tell_others(const char *message, int64_t other_bytes, const char *other_graph,
                                   char told[MM_MESSAGE_CAPACITY]) {
    const char *bytes = MM_SIZE_TEXT(other_bytes);
    if (other_bytes == 0) return message;
    if (other_graph[0])
        snprintf(told, MM_MESSAGE_CAPACITY, "%.400s; what it needs includes %s of persistent tensors of %s", message,
                 bytes, MM_BRIEF(other_graph));
    else
        snprintf(told, MM_MESSAGE_CAPACITY, "%.400s; what it needs includes %s of persistent tensors of no graph",
                 message, bytes);
    return told;
}

static void note(mm_advised *advised, mm_advice_kind kind, const mm_policy *policy, const mm_trial *takes) {
    *advised = (mm_advised){.kind = policy->spec ? kind : MM_ADVICE_NONE};
    if (advised->kind == MM_ADVICE_NONE) return;
    mm_refused_put(advised->policy, policy->spec);
    advised->device_bytes = takes->bytes;
    advised->pinned_bytes = takes->pinned_bytes;
    advised->lossy = takes->lossy;
    advised->needs_recompute_set = takes->recomputes;
}

static void note_all(const mm_refused *r, const mm_advice *advice) {
    const mm_advice_kind kind = fits_with_function(r, advice) ? MM_ADVICE_FITS : MM_ADVICE_NEEDS_LEAST;
    if (r->advised) note(r->advised, advice->kind, &advice->policy, &advice->takes);
    if (r->recomputing) note(r->recomputing, kind, &advice->with_function, &advice->function_takes);
}

/* Whether no plan of any policy fits the budget. */
static bool is_hopeless(const mm_refused *r) {
    mm_graph_facts *facts;
    if (mm_graph_facts_create(r->graph, 0, &facts) != MM_OK) return false;
    const bool over = mm_lower_bound_of(r->graph, facts).bytes > r->limits.device_bytes;
    mm_graph_facts_destroy(facts);
    return over;
}

/* Of the policy auto, which plans without recomputing where there is no function, it is not known what it would need
 * with one. */
static bool knows_need(const mm_refused *r) {
    const bool all = r->recomputes || r->may_be_set || (r->policy && r->policy->ops != &mm_policy_auto);
    return r->policy && r->needs_bytes > 0 && all;
}

mm_status mm_advise(const mm_refused *refused, const char *refusal) {
    mm_refused ctx = *refused;
    mm_advice advice = {.kind = MM_ADVICE_NONE};
    /* Refused for want of pinned memory, or of the disk, it has no plan that counts. */
    const bool lacks_device = refused->needs_bytes > refused->limits.device_bytes;
    const mm_advice_request request = {.limits = &refused->limits,
                                       .published_only = refused->descended || refused->quick,
                                       .quick = refused->quick,
                                       .deep = mm_graph_steps(refused->graph) > DEEP_STEPS,
                                       .hopeless = is_hopeless(refused),
                                       .refused = knows_need(refused) ? refused->policy : NULL,
                                       .refused_takes = {.bytes = lacks_device ? refused->needs_bytes : INT64_MAX}};
    if (mm_advice_find(&request, try_policy, &ctx, &advice) != MM_OK)
        return mm_fail(MM_ERR_INFEASIBLE, "%s", refusal); /* without advice */
    note_all(refused, &advice);
    mm_status status = tell(refused, refusal, &advice);
    mm_policy_fini(&advice.policy);
    mm_policy_fini(&advice.with_function);
    return status;
}

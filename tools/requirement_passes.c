/* SPDX-License-Identifier: MIT */
/* What training a batch needs, pass by pass, and whether its layers are fused. */
#include <stdio.h>
#include <string.h>

#include "mm/core/account/account.h"
#include "mm/core/status.h"
#include "policies/policy_table.h"
#include "tools/requirement.h"

/* The graph that updates the weights comes first: it has all persistent tensors of the others. */
static mm_status make_passes(requirement_passes *p, const requirement_asked *a) {
    int64_t base_bytes = a->base_bytes;
    for (int i = p->n - 1; i >= 0; i--) {
        requirement *r = &p->r[i];
        MM_TRY(requirement_init(r, a->net, p->graphs[i], a->mode, a->target, a->policy, base_bytes, a->facts));
        if (a->wants_least || a->budget_bytes == 0 || r->minimum_bytes <= a->budget_bytes)
            MM_TRY(requirement_limit_pinned(r, a->pinned_bytes));
        base_bytes = r->base_bytes;
        if (r->minimum_bytes > p->r[p->most].minimum_bytes) p->most = i;
    }
    return MM_OK;
}

static mm_status plan_passes(requirement_passes *p, const requirement_asked *a) {
    memset(p, 0, sizeof *p);
    p->n = nets_exec_graphs(a->batch, a->sub_batch, p->graphs);
    p->most = p->n - 1;
    p->fused = target_fuses(a->target);
    mm_status status = make_passes(p, a);
    p->fused_bytes = p->least_bytes = requirement_most(p)->minimum_bytes;
    if (status != MM_OK) requirement_passes_fini(p);
    return status;
}

void requirement_passes_fini(requirement_passes *p) {
    for (int i = 0; i < p->n; i++) requirement_fini(&p->r[i]);
    memset(p, 0, sizeof *p);
}

bool requirement_may_unfuse(const target *target, const char *policy) {
    static const char chooses[] = "auto";
    const size_t length = strlen(chooses);
    return target_may_unfuse(target) && strcspn(policy, ":") == length && strncmp(policy, chooses, length) == 0;
}

static mm_status are_of(const target *target, const nets_net *net, const facts_source *source, bool *are_out) {
    nets_lowered *lowered;
    mm_facts *facts = NULL;
    MM_TRY(nets_lower(net, target->backend, source->batch, NETS_TRAIN, target->optimizer.id, &lowered));
    mm_status status = mm_facts_create(lowered->graph, 0, &facts);
    if (status == MM_OK) status = facts_source_fill(source, lowered->graph, facts);
    *are_out = status == MM_OK;
    mm_facts_destroy(facts);
    nets_lowered_destroy(lowered);
    return status == MM_ERR_FORMAT ? MM_OK : status;
}

/* Facts of neither graph are refused where they are used. */
mm_status requirement_follow_facts(target *target, const nets_net *net, const facts_source *facts) {
    bool fused, apart = false;
    if (!facts || facts->is_machine || facts->batch == 0 || strcmp(facts->net, nets_net_name(net)) != 0 ||
        !target_may_unfuse(target))
        return MM_OK;
    MM_TRY(are_of(target, net, facts, &fused));
    target_set_fused(target, false);
    if (!fused) MM_TRY(are_of(target, net, facts, &apart));
    target_set_fused(target, !apart);
    target->fuse_facts = facts->path;
    return MM_OK;
}

/* Whether the plans that need least fit. */
static bool fit(const requirement_passes *p, const requirement_asked *a) {
    bool all = requirement_most(p)->minimum_bytes <= a->budget_bytes;
    for (int i = 0; i < p->n; i++) all &= p->r[i].minimum_pinned_bytes <= a->pinned_bytes;
    return all;
}

mm_status requirement_advise_apart(const requirement_asked *asked) {
    target open = *asked->target;
    requirement_asked again = *asked;
    requirement_passes p;
    mm_failure refusal;
    const char *path = open.fuse_facts;
    open.fuse_facts = NULL;
    again.target = &open;
    again.facts = NULL;
    again.may_unfuse = true;
    if (!path || !target_fuses(&open) || !requirement_may_unfuse(&open, asked->policy)) return MM_ERR_INFEASIBLE;
    mm_failure_save(&refusal, MM_ERR_INFEASIBLE);
    bool fits = false;
    if (requirement_passes_init(&p, &again) == MM_OK) {
        fits = !p.fused && fit(&p, asked);
        requirement_passes_fini(&p);
    }
    if (!fits) return mm_failure_restore(&refusal);
    return mm_fail(MM_ERR_INFEASIBLE, "%s; with --fuse off it fits, of which %s has no times", refusal.message, path);
}

/* Whether a plan of these passes may need less than so many bytes. The bound does not round tensors up, as plans do: up
 * to so much of a step's. */
static mm_status may_undercut(const requirement_asked *a, int64_t bytes, bool *may_out) {
    enum { ROUNDED = 16 * MM_ALIGN };
    const nets_exec_graph last = requirement_last(a->batch, a->sub_batch);
    nets_lowered *lowered;
    mm_facts *facts;
    MM_TRY(
        nets_lower_pass(a->net, a->target->backend, last.batch, a->mode, last.pass, a->target->optimizer.id, &lowered));
    mm_status status = mm_facts_create(lowered->graph, 0, &facts);
    if (status == MM_OK) {
        const mm_lower_bound bound = mm_lower_bound_of(lowered->graph, facts);
        *may_out = mm_plan_base(lowered->graph) + bound.bytes - bound.persistent_bytes + ROUNDED < bytes;
        mm_facts_destroy(facts);
    }
    nets_lowered_destroy(lowered);
    return status;
}

/* Chosen: within a tenth; and so that plans of both graphs take no more than 3 s in networks of up to 650 steps. There
 * auto's search has not made the graph of single layers the faster one. */
enum { NEAR_SHARE = 10, DEEP_STEPS = 650, SMALL_STEPS = 300 };

bool requirement_near(int64_t fused_bytes, const mm_graph *fused, int64_t budget_bytes) {
    return budget_bytes < fused_bytes + fused_bytes / NEAR_SHARE && mm_graph_steps(fused) <= DEEP_STEPS;
}

void requirement_hasten(mm_policy *policy, const mm_graph *fused) {
    int *effort = &policy->config.own[MM_AUTO_EFFORT];
    if (strcmp(policy->ops->name, "auto") == 0 && *effort == 1 && mm_graph_steps(fused) > SMALL_STEPS) *effort = 0;
}

mm_status requirement_passes_time(requirement_passes *p, const requirement_asked *a, int64_t *ns_out) {
    *ns_out = INT64_MAX;
    if (!fit(p, a)) return MM_OK;
    int64_t ns = 0;
    for (int i = 0; i < p->n; i++) {
        mm_simulation sim;
        MM_TRY(requirement_limit(&p->r[i], a->budget_bytes, a->pinned_bytes, 0));
        MM_TRY(requirement_simulate(&p->r[i], &sim));
        ns += p->graphs[i].passes * sim.iteration_ns;
        mm_simulation_fini(&sim);
    }
    *ns_out = ns;
    return MM_OK;
}

static mm_status is_faster(requirement_passes *p, requirement_passes *than, const requirement_asked *a, bool *is_out) {
    int64_t ns, other_ns;
    for (int i = 0; i < p->n; i++) requirement_hasten(&p->r[i].policy, requirement_most(than)->lowered->graph);
    MM_TRY(requirement_passes_time(than, a, &other_ns));
    MM_TRY(requirement_passes_time(p, a, &ns));
    *is_out = ns < other_ns;
    return MM_OK;
}

/* Takes what is planned without fusion if it alone fits, or fits and is faster; if none fits, what needs less. */
static mm_status compare(requirement_passes *p, requirement_passes *apart, const requirement_asked *a, bool compared) {
    bool better = !fit(p, a) && apart->least_bytes < p->least_bytes;
    if (compared) MM_TRY(is_faster(apart, p, a, &better));
    const requirement_passes fused = *p;
    if (better) {
        *p = *apart;
        *apart = fused;
    }
    p->fused_bytes = fused.fused_bytes;
    if (apart->least_bytes < p->least_bytes) p->least_bytes = apart->least_bytes;
    return MM_OK;
}

static mm_status choose(requirement_passes *p, const requirement_asked *a) {
    const bool fused_fit = fit(p, a);
    const bool compared = fused_fit && a->wants_fastest && a->budget_bytes > 0 &&
                          requirement_near(p->fused_bytes, requirement_most(p)->lowered->graph, a->budget_bytes);
    requirement_passes apart = {0};
    bool may = compared;
    if (fused_fit && !a->wants_least && !compared) return MM_OK;
    target_set_fused(a->target, false);
    mm_status status = may ? MM_OK : may_undercut(a, p->fused_bytes, &may);
    if (status == MM_OK && may) status = plan_passes(&apart, a);
    target_set_fused(a->target, true);
    if (status == MM_OK && apart.n > 0) status = compare(p, &apart, a, compared);
    requirement_passes_fini(&apart);
    return status;
}

mm_status requirement_passes_init(requirement_passes *p, const requirement_asked *a) {
    MM_TRY(plan_passes(p, a));
    if (!a->may_unfuse || !requirement_may_unfuse(a->target, a->policy)) return MM_OK;
    mm_status status = choose(p, a);
    if (status != MM_OK) requirement_passes_fini(p);
    return status;
}

const char *requirement_bound_text(const requirement_passes *p, char *buffer, size_t capacity) {
    mm_lower_bound most = {0};
    const mm_graph *graph = NULL;
    char step[256];
    for (int i = 0; i < p->n; i++) {
        const mm_lower_bound bound = mm_lower_bound_of(p->r[i].lowered->graph, p->r[i].planned.facts);
        if (bound.bytes <= most.bytes || bound.step < 0) continue;
        most = bound;
        graph = p->r[i].lowered->graph;
    }
    snprintf(buffer, capacity, "no policy needs less than %s: %lld stay on the device, %s uses the rest",
             MM_SIZE_TEXT(most.bytes), (long long)most.persistent_bytes,
             graph ? mm_graph_step_name(graph, most.step, step, sizeof step) : "nothing");
    return buffer;
}

/* SPDX-License-Identifier: MIT */
#include "tools/need/need.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/account/account_bound.h"
#include "mm/core/plan/plan_fits.h"
#include "mm/core/size.h"
#include "mm/core/status.h"
#include "mm/core/time/time_bound.h"
#include "mm/planning/together.h"
#include "policies/schedule/nominal.h"
#include "tools/need/policy_marks.h"

/* ---------------------------------------------------------------- lowering */

/* Replaces the facts' link by one of the speed that the user set, each way, also while both ways are busy. */
static void give_link(mm_graph_facts *facts, int64_t bytes_per_s) {
    facts->out_bytes_per_s = facts->in_bytes_per_s = bytes_per_s;
    facts->out_both_bytes_per_s = facts->in_both_bytes_per_s = 0;
}

mm_status need_add_times(const facts_source *source, const target *target, const mm_graph *graph,
                         mm_graph_facts *facts) {
    if (source) MM_TRY(facts_source_fill(source, graph, facts));
    if (source && !source->for_run && target->link_bytes_per_s > 0) give_link(facts, target->link_bytes_per_s);
    return MM_OK;
}

mm_status need_lower(const need_case *c, const nets_exec_graph *graph, nets_lowered **lowered_out) {
    nets_lowering how = target_lowering(c->target, c->mode);
    how.pass = graph->pass;
    how.no_fuse |= c->apart;
    return nets_lower(c->net, c->target->backend, graph->batch, &how, lowered_out);
}

static int list_graphs(const need_case *c, nets_exec_graph graphs[NETS_PASSES]) {
    return nets_exec_graphs(c->batch, c->sub_batch > 0 ? c->sub_batch : c->batch, graphs);
}

nets_exec_graph need_last(const need_case *c) {
    nets_exec_graph graphs[NETS_PASSES];
    return graphs[list_graphs(c, graphs) - 1];
}

static mm_status open_pass(need *n, need_pass *p) {
    const need_case *c = &n->asked;
    MM_TRY(mm_policy_parse(c->policy, &p->policy));
    MM_TRY(need_lower(c, &p->graph, &p->lowered));
    const mm_graph *graph = p->lowered->graph;
    if (nets_lowered_divides(p->lowered, NETS_DIVIDE_STATES)) MM_TRY(policy_stay(&p->policy));
    mm_status status = mm_planned_init(&p->planned, &p->policy, graph, c->target->device);
    if (status != MM_OK) return mm_fail_in(status, "policy %s", c->policy);
    MM_TRY(need_add_times(c->facts, c->target, graph, p->planned.facts));
    if (!c->facts || !c->only_facts) mm_planned_set_rates(&p->planned, &c->target->rates);
    if (n->base_bytes == 0) n->base_bytes = mm_plan_base(graph);
    return MM_OK;
}

/* Opens the last pass first: its graph has the persistent tensors of all passes. */
mm_status need_open(need *n, const need_case *c) {
    nets_exec_graph graphs[NETS_PASSES];
    *n = (need){.asked = *c, .base_bytes = c->base_bytes, .fused = !c->apart && !c->target->apart};
    n->n = list_graphs(c, graphs);
    n->most = n->n - 1;
    mm_status status = MM_OK;
    for (int i = n->n - 1; status == MM_OK && i >= 0; i--) {
        n->pass[i].graph = graphs[i];
        status = open_pass(n, &n->pass[i]);
    }
    if (status != MM_OK) need_fini(n);
    return status;
}

void need_fini(need *n) {
    for (int i = 0; i < n->n; i++) {
        mm_planned_fini(&n->pass[i].planned);
        mm_policy_fini(&n->pass[i].policy);
        nets_lowered_destroy(n->pass[i].lowered);
    }
    *n = (need){0};
}

/* ---------------------------------------------------------------- planning */

static mm_status plan(need_pass *p, const mm_limits *limits) {
    return mm_planned_make_housed(&p->planned, &p->policy, p->lowered->graph, limits);
}

mm_status need_within(need *n, int pass, int64_t device_bytes, int64_t pinned_bytes, int64_t staged_bytes) {
    need_pass *p = &n->pass[pass];
    const need_room room = {device_bytes, pinned_bytes, staged_bytes};
    const mm_limits limits = {.device_bytes = device_bytes,
                              .pinned_bytes = pinned_bytes,
                              .base_bytes = n->base_bytes + staged_bytes,
                              .disk_bytes = n->asked.target->disk_bytes,
                              .one_of_several = n->n > 1,
                              .below_ns = device_bytes > 0 ? n->asked.below_ns : 0,
                              .stop = n->asked.target->stop};
    if (device_bytes > 0 && memcmp(&room, &p->room, sizeof room) == 0) return MM_OK;
    MM_TRY(plan(p, &limits));
    p->room = room;
    return MM_OK;
}

static void set_minimum(need_pass *p) {
    const mm_plan *plan = p->planned.plan;
    p->minimum_bytes = plan->peak_bytes;
    p->minimum_pinned_bytes = plan->pinned_bytes;
    p->minimum_disk_bytes = plan->disk_bytes;
    p->minimum_step = plan->peak_step;
}

int64_t need_free_room(const need *n, int pass) {
    const bool always = n->pass[pass].policy.config.when == MM_WHEN_ALWAYS;
    return always && n->asked.budget_bytes == 0 ? INT64_MAX : 0;
}

/* The device memory in which a pass's smallest plan is sought. */
static int64_t least_room(const need *n, int pass) { return n->asked.wants_least ? 0 : need_free_room(n, pass); }

mm_status need_limit_pinned(need *n, int pass, int64_t pinned_bytes) {
    if (n->pass[pass].minimum_pinned_bytes <= pinned_bytes) return MM_OK;
    MM_TRY(need_within(n, pass, least_room(n, pass), pinned_bytes, 0));
    set_minimum(&n->pass[pass]);
    return MM_OK;
}

/* With homes in limited pinned memory, or on the disk, a budget may have a plan that the plan with the lowest peak says
 * nothing of. */
static mm_status try_budget(need *n, int pass) {
    need_pass *p = &n->pass[pass];
    const int64_t budget = n->asked.budget_bytes;
    const bool onto_disk = n->asked.target->disk_bytes > 0 && mm_graph_uses_host(p->lowered->graph);
    const bool all_stay = p->policy.config.resident == MM_RESIDENT_ALL && !onto_disk;
    if (all_stay || p->minimum_bytes <= budget || p->free.device_bytes > budget) return MM_OK;
    MM_TRY(need_within(n, pass, budget, n->asked.pinned.bytes, 0));
    if (p->planned.plan->peak_bytes <= budget && need_is_within(&n->asked, p->planned.plan)) set_minimum(p);
    return MM_OK;
}

mm_status need_least(need *n) {
    const need_case *c = &n->asked;
    for (int i = n->n - 1; i >= 0; i--) {
        need_pass *p = &n->pass[i];
        MM_TRY(need_within(n, i, least_room(n, i), INT64_MAX, 0));
        set_minimum(p);
        p->free = (need_free){p->minimum_bytes, p->minimum_pinned_bytes, p->minimum_step};
        if (c->wants_least || c->budget_bytes == 0 || p->minimum_bytes <= c->budget_bytes)
            MM_TRY(need_limit_pinned(n, i, c->pinned.bytes));
        if (c->budget_bytes > 0) MM_TRY(try_budget(n, i));
        if (p->minimum_bytes > need_most(n)->minimum_bytes) n->most = i;
    }
    n->fused_bytes = n->least_bytes = need_most(n)->minimum_bytes;
    return MM_OK;
}

static mm_status plan_with_room(need *n, int64_t staged_bytes, bool *fit_out) {
    const need_case *c = &n->asked;
    const mm_limits limits = {
        .device_bytes = c->budget_bytes, .pinned_bytes = c->pinned.bytes, .disk_bytes = c->target->disk_bytes};
    *fit_out = true;
    for (int i = n->n - 1; *fit_out && i >= 0; i--) {
        MM_TRY(need_within(n, i, c->budget_bytes, c->pinned.bytes, staged_bytes));
        *fit_out = mm_plan_fits(n->pass[i].planned.plan, &limits) == MM_OK;
        if (n->pass[i].planned.plan->peak_bytes > need_most(n)->planned.plan->peak_bytes) n->most = i;
    }
    return MM_OK;
}

mm_status need_plan(need *n, bool *fit_out) {
    *fit_out = false;
    if (n->asked.staged_bytes > 0) MM_TRY(plan_with_room(n, n->asked.staged_bytes, fit_out));
    if (*fit_out) return MM_OK;
    n->most = n->n - 1;
    MM_TRY(plan_with_room(n, 0, fit_out));
    if (!*fit_out) n->most = n->n - 1;
    return MM_OK;
}

/* The bytes below the plan's segments, had all persistent tensors their homes on the device. */
static int64_t base_of(const mm_plan *plan) {
    int64_t base = plan->base_bytes;
    for (int i = 0; i < mm_graph_persistents(plan->graph); i++)
        if (plan->segments[i].memory != MM_MEM_DEVICE) base += mm_align(plan->segments[i].bytes);
    return base;
}

int64_t need_stages(const need *n, int64_t staged_bytes) {
    bool room = true;
    for (int i = 0; i < n->n; i++)
        room &= !n->pass[i].policy.ops->places || base_of(n->pass[i].planned.plan) >= n->base_bytes + staged_bytes;
    return room ? staged_bytes : 0;
}

bool need_fits(const need *n) {
    bool all = need_most(n)->minimum_bytes <= n->asked.budget_bytes;
    for (int i = 0; i < n->n; i++)
        all &= n->pass[i].minimum_pinned_bytes <= n->asked.pinned.bytes &&
               n->pass[i].minimum_disk_bytes <= n->asked.target->disk_bytes;
    return all;
}

mm_status need_try_pass(const need *n, int pass, int64_t device_bytes, mm_resident resident, bool *fits_out) {
    const need_pass *p = &n->pass[pass];
    const mm_limits limits = {.device_bytes = device_bytes,
                              .pinned_bytes = n->asked.pinned.bytes,
                              .base_bytes = n->base_bytes,
                              .disk_bytes = n->asked.target->disk_bytes,
                              .stop = n->asked.target->stop,
                              .first_fit = true};
    mm_policy policy = p->policy; /* it and `tried` borrow what the pass owns */
    mm_planned tried = {.facts = p->planned.facts, .codecs = p->planned.codecs};
    policy.config.resident = resident;
    *fits_out = resident != MM_RESIDENT_ALL ||
                mm_lower_bound_of(p->lowered->graph, p->planned.facts).bytes <= limits.device_bytes;
    if (!*fits_out) return MM_OK;
    mm_status status = mm_planned_make_housed(&tried, &policy, p->lowered->graph, &limits);
    *fits_out = status == MM_OK && mm_plan_fits(tried.plan, &limits) == MM_OK;
    mm_plan_destroy(mm_planned_release(&tried));
    return status;
}

mm_status need_try(const need_case *c, bool *fit_out) {
    need n;
    bool fit = true;
    MM_TRY(need_open(&n, c));
    mm_status status = MM_OK;
    for (int i = n.n - 1; status == MM_OK && fit && i >= 0; i--)
        status = need_try_pass(&n, i, c->budget_bytes, n.pass[i].policy.config.resident, &fit);
    need_fini(&n);
    *fit_out = fit;
    return status;
}

/* ---------------------------------------------------------------- times */

mm_status need_simulate(const need *n, int pass, mm_simulation *sim_out) {
    const need_pass *p = &n->pass[pass];
    const mm_graph_facts *facts = p->planned.facts;
    mm_graph_facts nominal;
    if (!mm_nominal_is_due(facts)) return mm_program_simulate(p->planned.program, facts, sim_out);
    mm_status status = mm_nominal_init(p->lowered->graph, facts, &nominal);
    if (status == MM_OK) status = mm_program_simulate(p->planned.program, &nominal, sim_out);
    mm_nominal_fini(&nominal);
    return status;
}

mm_status need_time(need *n, int64_t *ns_out) {
    int64_t ns = 0;
    *ns_out = INT64_MAX;
    if (!need_fits(n)) return MM_OK;
    for (int i = 0; i < n->n; i++) {
        const need_room *room = &n->pass[i].room;
        mm_simulation sim;
        if (room->device_bytes != n->asked.budget_bytes || room->pinned_bytes != n->asked.pinned.bytes)
            MM_TRY(need_within(n, i, n->asked.budget_bytes, n->asked.pinned.bytes, 0));
        MM_TRY(need_simulate(n, i, &sim));
        ns += n->pass[i].graph.passes * sim.iteration_ns;
        mm_simulation_fini(&sim);
    }
    *ns_out = ns;
    return MM_OK;
}

mm_status need_bound_passes(const need *n, int pass, int64_t device_bytes, int64_t pinned_bytes, int64_t below_ns,
                            int64_t *ns_out) {
    const need_pass *p = &n->pass[pass];
    mm_limits limits = {.device_bytes = device_bytes,
                        .pinned_bytes = target_pinned_and_disk(n->asked.target, pinned_bytes),
                        .base_bytes = n->base_bytes};
    mm_time_bound bound;
    if (below_ns < INT64_MAX) limits.below_ns = below_ns > 0 ? (below_ns - 1) / p->graph.passes + 1 : 1;
    if (p->policy.config.resident == MM_RESIDENT_ALL)
        MM_TRY(mm_time_bound_of(p->lowered->graph, p->planned.facts, &limits, &bound));
    else
        MM_TRY(mm_time_bound_any_home(p->lowered->graph, p->planned.facts, &limits, &bound));
    *ns_out = bound.ns < INT64_MAX ? p->graph.passes * bound.ns : INT64_MAX;
    return MM_OK;
}

mm_status need_bound(const need *n, int64_t device_bytes, int64_t pinned_bytes, int64_t below_ns, int64_t *ns_out) {
    int64_t ns = 0;
    for (int i = 0; ns < INT64_MAX && i < n->n; i++) {
        int64_t passes;
        const int64_t below = below_ns < INT64_MAX ? below_ns - ns : INT64_MAX;
        MM_TRY(need_bound_passes(n, i, device_bytes, pinned_bytes, below, &passes));
        ns = passes < INT64_MAX ? ns + passes : INT64_MAX;
    }
    *ns_out = ns;
    return MM_OK;
}

const char *need_bound_text(const need *n, char *buffer, size_t capacity) {
    mm_lower_bound most = {0};
    const mm_graph *graph = NULL;
    char step[256];
    for (int i = 0; i < n->n; i++) {
        const mm_lower_bound bound = mm_lower_bound_of(n->pass[i].lowered->graph, n->pass[i].planned.facts);
        if (bound.bytes <= most.bytes || bound.step < 0) continue;
        most = bound;
        graph = n->pass[i].lowered->graph;
    }
    snprintf(buffer, capacity, "any plan needs at least %s: %lld stay on the device, %s uses the rest",
             MM_SIZE_TEXT(most.bytes), (long long)most.persistent_bytes,
             graph ? mm_graph_step_name(graph, most.step, step, sizeof step) : "nothing");
    return buffer;
}

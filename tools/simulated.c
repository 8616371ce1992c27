/* SPDX-License-Identifier: MIT */
#include "tools/simulated.h"

#include <string.h>

#include "mm/core/account/account.h"
#include "mm/core/graph/graph.h"
#include "mm/core/plan/program.h"
#include "mm/core/status.h"
#include "mm/core/time/time_bound.h"
#include "tools/requirement.h"

/* Whether any step has a time: without, the simulated iteration takes none. */
static bool has_step_times(const mm_plan *plan, const mm_facts *facts) {
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (n->kind == MM_NODE_STEP && facts->variants[facts->variant_first[n->step] + n->variant].ns > 0) return true;
    }
    return false;
}

static const char *untimed(const mm_plan *plan, const mm_facts *facts, const mm_node *n) {
    const mm_node_cost cost = mm_node_table[n->kind].cost;
    if (cost == MM_COST_STEP) return NULL;
    const int codec = plan->segments[mm_program_stored(n)].codec;
    switch (cost) {
    case MM_COST_ENCODE:
        return mm_facts_code(facts, codec, n->tensor)->encode_ns == 0 ? facts->codecs[codec].spec : NULL;
    case MM_COST_DECODE:
        return mm_facts_code(facts, codec, n->tensor)->decode_ns == 0 ? facts->codecs[codec].spec : NULL;
    case MM_COST_LINK_OUT:
        return facts->out_bytes_per_s == 0 ? "the link" : NULL;
    case MM_COST_LINK_IN:
        return facts->in_bytes_per_s == 0 ? "the link" : NULL;
    case MM_COST_MEMORY:
        return facts->memory_bytes_per_s == 0 ? "the memory" : NULL;
    case MM_COST_STEP:
        break;
    }
    return NULL;
}

const char *simulated_untimed(const mm_plan *plan, const mm_facts *facts) {
    if (!has_step_times(plan, facts)) return "the steps";
    for (int i = 0; i < plan->n_nodes; i++) {
        const char *what = untimed(plan, facts, &plan->nodes[i]);
        if (what) return what;
    }
    return NULL;
}

static mm_status lower(simulated *s, const nets_net *net) {
    const int n = nets_exec_graphs(s->batch, s->sub_batch, s->graphs);
    for (s->n = 0; s->n < n; s->n++)
        MM_TRY(nets_lower_pass(net, s->target->backend, s->graphs[s->n].batch, NETS_TRAIN, s->graphs[s->n].pass,
                               s->target->optimizer.id, &s->lowered[s->n]));
    return MM_OK;
}

mm_status simulated_init(simulated *s, const nets_net *net, int64_t batch, int64_t sub_batch, const target *target) {
    *s = (simulated){.batch = batch,
                     .sub_batch = sub_batch,
                     .fused = target_fuses(target),
                     .target = target,
                     .staged_bytes = target_staged_bytes(target, net, sub_batch)};
    mm_status status = lower(s, net);
    if (status != MM_OK) simulated_fini(s);
    return status;
}

void simulated_fini(simulated *s) {
    for (int i = 0; i < s->n; i++) nets_lowered_destroy(s->lowered[i]);
    *s = (simulated){0};
}

static uint64_t add_hash(uint64_t hash, int64_t value) {
    for (int i = 0; i < 8; i++) hash = (hash ^ ((uint64_t)value >> 8 * i & 0xff)) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_nodes(const mm_plan *plan, const mm_facts *facts, uint64_t hash) {
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        hash = add_hash(add_hash(add_hash(hash, n->kind), n->step), n->tensor);
        hash = add_hash(add_hash(hash, n->throttle), n->stage >= 0);
        for (int s = 0; s < MM_STREAM_COUNT; s++) hash = add_hash(hash, n->wait[s]);
        if (n->dst < 0) continue;
        const mm_segment *to = &plan->segments[n->dst];
        hash = add_hash(add_hash(add_hash(hash, to->bytes), to->pinned), to->dynamic);
        for (const char *c = to->codec >= 0 ? facts->codecs[to->codec].spec : ""; *c; c++) hash = add_hash(hash, *c);
    }
    return hash;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Adds the bound of a pass: in the budget, or in what the plan takes. The bound is not for plans with a heap. */
static mm_status add_bound(const mm_planned *planned, const mm_limits *limits, int64_t times, simulated_run *run) {
    const mm_plan *plan = planned->plan;
    const mm_limits within = {.device_bytes =
                                  limits->device_bytes < INT64_MAX ? limits->device_bytes : plan->peak_bytes,
                              .pinned_bytes = limits->pinned_bytes,
                              .base_bytes = plan->base_bytes};
    mm_time_bound bound;
    if (plan->heap_bytes > 0 || !run->fits || run->untimed[0]) return MM_OK;
    MM_TRY(mm_time_bound_of(plan->graph, planned->facts, &within, &bound));
    run->bound_ns += times * bound.ns;
    return MM_OK;
}

/* Adds a pass that is run `times` times. */
static mm_status add_pass(const mm_planned *planned, const mm_limits *limits, int64_t times, bool timed,
                          simulated_run *run) {
    const mm_plan *plan = planned->plan;
    if (plan->peak_bytes > run->peak_bytes)
        mm_graph_step_name(plan->graph, plan->peak_step, run->holder, sizeof run->holder);
    run->peak_bytes = larger(run->peak_bytes, plan->peak_bytes);
    run->stash_bytes = larger(run->stash_bytes, plan->stash_bytes);
    run->pinned_bytes = larger(run->pinned_bytes, plan->pinned_bytes);
    run->moved_bytes += times * mm_account_moves(plan).bytes;
    run->steps_again += times * mm_account_steps_again(plan);
    run->nodes_hash = hash_nodes(plan, planned->facts, run->nodes_hash);
    if (!run->pinned_hint || !run->pinned_hint[0]) run->pinned_hint = mm_plan_pinned_hint(plan);
    run->fits &= plan->peak_bytes <= limits->device_bytes && plan->pinned_bytes <= limits->pinned_bytes;
    run->cut_short |= plan->cut_short;
    if (!timed) return MM_OK;
    const char *untimed = simulated_untimed(plan, planned->facts);
    if (untimed) strcpy(run->untimed, untimed);
    mm_simulation simulation;
    MM_TRY(mm_program_simulate(planned->program, planned->facts, &simulation));
    const int64_t codec_ns = simulation.busy_ns[MM_STREAM_ENCODE] + simulation.busy_ns[MM_STREAM_DECODE];
    run->iteration_ns += times * simulation.iteration_ns;
    run->codec_ns += times * codec_ns;
    run->hidden_ns += (double)(times * codec_ns) * simulation.codec_hidden_permille / 1000;
    mm_simulation_fini(&simulation);
    return add_bound(planned, limits, times, run);
}

static mm_status plan_pass(const simulated *s, int i, const mm_policy *policy, const mm_limits *limits,
                           const time_source *source, simulated_run *run) {
    mm_planned planned;
    const mm_graph *graph = s->lowered[i]->graph;
    mm_status status = mm_planned_init(&planned, policy, graph, s->target->device);
    if (status != MM_OK) return mm_fail_in(status, "policy %s", policy->spec);
    const bool planned_with = source && source->planned_with;
    if (!planned_with) mm_planned_log(&planned, &s->target->rates);
    if (planned_with) status = source->fill(source->ctx, graph, planned.facts);
    if (status == MM_OK) status = mm_planned_make(&planned, policy, graph, limits);
    if (status == MM_OK && source && !planned_with) status = source->fill(source->ctx, graph, planned.facts);
    const mm_limits within = {.device_bytes = limits->device_bytes > 0 ? limits->device_bytes : INT64_MAX,
                              .pinned_bytes = limits->pinned_bytes};
    if (status == MM_OK) status = add_pass(&planned, &within, s->graphs[i].passes, source != NULL, run);
    mm_planned_fini(&planned);
    return status;
}

static mm_status plan_passes(const simulated *s, const mm_policy *policy, const mm_limits *limits,
                             const time_source *source, simulated_run *run) {
    *run = (simulated_run){.fits = true, .fused = s->fused, .nodes_hash = UINT64_C(0xcbf29ce484222325)};
    for (int i = 0; i < s->n; i++) MM_TRY(plan_pass(s, i, policy, limits, source, run));
    return MM_OK;
}

/* The last pass updates the weights: it has all persistent tensors. Where the budget is what the policy needs, the pass
 * that needs most gives it to the others. */
mm_status simulated_policy(const simulated *s, const char *policy_spec, int64_t budget_bytes, int64_t pinned_bytes,
                           const time_source *source, simulated_run *run_out) {
    mm_policy policy;
    mm_limits limits = {.device_bytes = budget_bytes,
                        .pinned_bytes = pinned_limit(pinned_bytes, INT64_MAX),
                        .base_bytes = mm_plan_base(s->lowered[s->n - 1]->graph),
                        .stop = s->target->stop};
    MM_TRY(mm_policy_parse(policy_spec, &policy));
    if (s->beside) requirement_hasten(&policy, s->beside);
    mm_status status = plan_passes(s, &policy, &limits, source, run_out);
    if (status == MM_OK && budget_bytes == 0 && source && s->n > 1) {
        limits.device_bytes = run_out->peak_bytes;
        status = plan_passes(s, &policy, &limits, source, run_out);
    }
    mm_policy_fini(&policy);
    return status;
}

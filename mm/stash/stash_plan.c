/* SPDX-License-Identifier: MIT */
#include "mm/stash/stash_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mm/core/plan/plan_fits.h"
#include "mm/core/text.h"
#include "mm/planning/refusal.h"
#include "mm/stash/stash_need.h"

static int64_t cpu_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---------------------------------------------------------------- what an order needs, whatever the policy */

/* Bytes of the arena that an unplanned iteration needs: the most that are held at the same time, and the largest entry.
 * The kept entries come in addition. */
static int64_t margin(const mm_order *o) {
    int64_t held = 0, most = 0, largest = 0;
    bool *holds = calloc((size_t)o->n_entries + 1, sizeof *holds);
    if (!holds) return INT64_MAX / 2;
    for (int i = 0; i < o->n_events; i++) {
        const mm_order_event *e = &o->events[i];
        const int64_t bytes = mm_stash_piece(&o->entries[e->entry]);
        const bool now = e->kind == MM_ORDER_GET;
        if (bytes > largest) largest = bytes;
        if (holds[e->entry] != now) held += now ? bytes : -bytes;
        holds[e->entry] = now;
        if (held > most) most = held;
    }
    free(holds);
    return most + largest;
}

static int64_t total(const mm_order *o) {
    int64_t bytes = 0;
    for (int i = 0; i < o->n_entries; i++) bytes += mm_stash_piece(&o->entries[i]);
    return bytes;
}

/* ---------------------------------------------------------------- plans */

/* Whether held entries stay where they are: between a get and its return, nothing writes to their segments. Scratch:
 * segment_of (per tensor), held (per segment). */
static bool holds_still(const mm_plan *plan, const mm_stash_graph *g, int32_t *segment_of, bool *held) {
    bool still = true;
    for (int i = 0; i < mm_graph_tensors(plan->graph); i++) segment_of[i] = -1;
    for (int i = 0; still && i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        if (node->kind != MM_NODE_STEP) {
            still = node->dst < 0 || !held[node->dst];
            continue;
        }
        int32_t *segment = &segment_of[g->tensor[g->step_entry[node->step]]];
        const int32_t now = plan->bindings[node->first_binding];
        still = *segment < 0 || *segment == now;
        *segment = g->step_holds[node->step] ? now : -1;
        held[now] = *segment >= 0;
    }
    return still;
}

static bool has_signs(const mm_graph *graph) {
    for (int i = 0; i < mm_graph_layers(graph); i++) {
        const mm_layer_info *layer = mm_graph_layer(graph, i);
        if (layer->n_parts > 0 && strcmp(layer->parts[layer->n_parts - 1], mm_stash_signs_part) == 0) return true;
    }
    return false;
}

static bool recomputes(const mm_plan *plan) {
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE) return true;
    return false;
}

/* MM_ERR_UNSUPPORTED: the plan does what a stash cannot. */
static mm_status check_served(const mm_stash_terms *t, const mm_plan *plan, const mm_stash_graph *g) {
    int32_t *segment_of = malloc(((size_t)mm_graph_tensors(plan->graph) + 1) * sizeof *segment_of);
    bool *held = calloc((size_t)plan->n_segments + 1, sizeof *held);
    mm_status status = MM_OK;
    const char *unfit = recomputes(plan) ? "recomputes" : plan->heap_bytes > 0 ? "places tensors at run time" : NULL;
    if (!segment_of || !held)
        status = mm_fail(MM_ERR_NOMEM, "out of memory for a plan of %d segments", plan->n_segments);
    else if (!unfit && !holds_still(plan, g, segment_of, held))
        unfit = "moves tensors while they are read";
    if (status == MM_OK && unfit)
        status = mm_fail(MM_ERR_UNSUPPORTED, "policy %s %s, which a stash cannot do", MM_BRIEF(t->policy->spec), unfit);
    free(segment_of);
    free(held);
    return status;
}

/* For orders with more steps, auto takes the first plan that fits, without a search. That takes 1.4 s of CPU time for
 * 2000 entries; with the search, 100 entries take 0.7 s (tools/bench/stash, on a busy machine). */
enum { SEARCHED_STEPS = 200 };

/* Plans the entries that callers do not keep, within the part of the budget that the kept entries leave. p->planned has
 * the plan even if it does not fit. */
static mm_status plan_rest(const mm_stash_terms *t, const mm_order *o, mm_stash_plan *p) {
    const uint32_t exact = MM_STASH_EXACT | (t->signing ? 0 : MM_STASH_SIGNS);
    MM_TRY(mm_stash_graph_init(o, p->kept, exact, &p->graph));
    if (!p->graph.graph) return MM_OK;
    const mm_limits limits = {.device_bytes = t->device_bytes - p->kept_bytes,
                              .pinned_bytes = t->pinned_bytes,
                              .disk_bytes = t->disk_bytes,
                              .stop = t->stop,
                              .first_fit = mm_graph_steps(p->graph.graph) > SEARCHED_STEPS};
    const mm_policy *policy = has_signs(p->graph.graph) ? t->signing : t->policy;
    MM_TRY(mm_planned_init(&p->planned, policy, p->graph.graph, t->device));
    if (t->facts) {
        mm_status status = mm_facts_apply(t->facts, p->graph.graph, MM_FACTS_TIMES, p->planned.facts);
        if (status != MM_OK && status != MM_ERR_FORMAT)
            return status; /* MM_ERR_FORMAT: the times are of another graph,
                                                                          and are not used */
    }
    mm_planned_set_rates(&p->planned, &t->rates);
    MM_TRY(mm_planned_make(&p->planned, policy, p->graph.graph, &limits));
    const mm_plan *plan = p->planned.plan;
    p->needed_bytes = plan->peak_bytes + p->kept_bytes;
    MM_TRY(check_served(t, plan, &p->graph));
    return mm_plan_fits(plan, &limits);
}

/* ---------------------------------------------------------------- what callers keep */

/* Marks the entries that the plan never moves. Returns their bytes. */
static int64_t mark_unmoved(const mm_stash_plan *p, const mm_order *o, bool *kept_out) {
    const mm_plan *plan = p->planned.plan;
    int64_t bytes = 0;
    bool *moved = calloc((size_t)mm_graph_tensors(plan->graph) + 1, sizeof *moved);
    if (!moved) return 0;
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].tensor >= 0) moved[plan->nodes[i].tensor] = true;
    for (int i = 0; i < o->n_entries; i++) {
        kept_out[i] = !moved[p->graph.tensor[i]];
        if (kept_out[i]) bytes += mm_stash_piece(&o->entries[i]);
    }
    free(moved);
    return bytes;
}

/* Plans the entries that are not kept. An earlier plan has moved all of these entries, so the policy moves them always,
 * and does not search for what to move, which takes longest. Rules may name entries that are kept. */
static mm_status plan_moved(const mm_stash_terms *t, const mm_order *o, mm_stash_plan *p) {
    mm_stash_terms terms = *t;
    mm_policy policy = *t->policy, signing;
    policy.config.when = MM_WHEN_ALWAYS;
    policy.config.names_absent = true;
    terms.policy = &policy;
    if (t->signing) {
        signing = *t->signing;
        signing.config.when = MM_WHEN_ALWAYS;
        signing.config.names_absent = true;
        terms.signing = &signing;
    }
    return plan_rest(&terms, o, p);
}

/* Replaces the plan by one in which callers keep the entries that it never moves, if that one fits. */
static void keep_unmoved(const mm_stash_terms *t, const mm_order *o, mm_stash_plan *p) {
    mm_stash_plan other = {.kept = calloc((size_t)o->n_entries + 1, sizeof *other.kept)};
    if (other.kept) other.kept_bytes = mark_unmoved(p, o, other.kept);
    if (other.kept_bytes > 0 && other.kept_bytes + margin(o) <= t->device_bytes && plan_moved(t, o, &other) == MM_OK) {
        const mm_stash_plan first = *p;
        *p = other;
        other = first;
    }
    mm_stash_plan_fini(&other);
}

/* ---------------------------------------------------------------- orders */

/* Plans an order in t->device_bytes. all: bytes of its entries. */
static mm_status plan_order(const mm_stash_terms *t, const mm_order *o, int64_t all, mm_stash_plan *p) {
    *p = (mm_stash_plan){.kept = calloc((size_t)o->n_entries + 1, sizeof *p->kept)};
    if (!p->kept) return mm_fail(MM_ERR_NOMEM, "out of memory for an order of %d entries", o->n_entries);
    const bool keeps_all = t->keep_always || (!t->take_always && all + margin(o) <= t->device_bytes);
    if (keeps_all) {
        memset(p->kept, true, (size_t)o->n_entries);
        p->kept_bytes = p->needed_bytes = all;
    }
    MM_TRY(plan_rest(t, o, p));
    if (!keeps_all && !t->take_always) keep_unmoved(t, o, p);
    return MM_OK;
}

/* ---------------------------------------------------------------- refusals */

enum { TRIES = 4 }; /* chosen: the first budget is nearly always enough */

/* A budget from `needed` on, by a policy's own account, in which the order really runs, planned and unplanned. */
static int64_t enough(const mm_stash_terms *t, const mm_order *o, int64_t all, int64_t needed) {
    mm_stash_terms larger = *t;
    larger.device_bytes = needed;
    for (int i = 0; i < TRIES; i++) {
        mm_stash_plan other;
        if (mm_stash_need(o, larger.device_bytes, &larger.device_bytes) != MM_OK) break;
        mm_status status = plan_order(&larger, o, all, &other);
        needed = other.needed_bytes;
        mm_stash_plan_fini(&other);
        if (status != MM_ERR_INFEASIBLE) break;
        larger.device_bytes = mm_align(needed > larger.device_bytes ? needed : larger.device_bytes / 16 * 17);
    }
    return larger.device_bytes;
}

static mm_status refuse(const mm_stash_terms *t, const mm_order *o, int64_t all, const mm_stash_plan *p,
                        mm_stash_refused *refused_out) {
    const mm_plan *plan = p->planned.plan;
    char told[MM_MESSAGE_CAPACITY];
    snprintf(told, sizeof told, "%s", mm_last_error());
    mm_stash_refused refusal = {.needed_bytes = enough(t, o, all, p->needed_bytes), .device_bytes = t->device_bytes};
    refusal.tensor = p->graph.step_entry[plan->peak_step];
    refusal.tensor_bytes = o->entries[refusal.tensor].bytes;
    snprintf(refusal.producer, sizeof refusal.producer, "%s", o->entries[refusal.tensor].producer);
    mm_advised advised = {.kind = MM_ADVICE_NONE};
    const mm_refused refused = {
        .graph = p->graph.graph,
        .device = t->device,
        .limits = {.device_bytes = t->device_bytes, .pinned_bytes = t->pinned_bytes, .disk_bytes = t->disk_bytes},
        .rates = t->rates,
        .policy = t->policy,
        .needs_bytes = refusal.needed_bytes,
        .quick = true,
        .advised = &advised};
    mm_status status = mm_advise(&refused, told);
    if (advised.kind == MM_ADVICE_FITS) snprintf(refusal.policy, sizeof refusal.policy, "%s", advised.policy);
    *refused_out = refusal;
    return status;
}

mm_status mm_stash_plan_make(const mm_stash_terms *t, const mm_order *o, mm_stash_plan *plan_out,
                             mm_stash_refused *refused_out) {
    const int64_t began_ns = cpu_now_ns(), all = total(o);
    mm_status status = plan_order(t, o, all, plan_out);
    if (status == MM_ERR_INFEASIBLE && plan_out->planned.plan && !plan_out->graph.by_turns)
        status = refuse(t, o, all, plan_out, refused_out);
    /* If puts and gets alternate, policies cannot move all entries. The order has run unplanned within the budget, and
     * may go on unplanned. */
    if (status == MM_ERR_INFEASIBLE && plan_out->graph.by_turns)
        status = mm_fail(MM_ERR_UNSUPPORTED, "%s", mm_last_error());
    plan_out->cpu_ns = cpu_now_ns() - began_ns;
    return status;
}

void mm_stash_plan_fini(mm_stash_plan *p) {
    mm_planned_fini(&p->planned);
    mm_stash_graph_fini(&p->graph);
    free(p->kept);
    *p = (mm_stash_plan){0};
}

int64_t mm_stash_plan_extent(const mm_stash_plan *p) { return p->planned.plan ? p->planned.plan->extent_bytes : 0; }

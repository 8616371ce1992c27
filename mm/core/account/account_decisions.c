/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "mm/core/account/account_stash.h"
#include "mm/core/plan/plan_codes.h"
#include "mm/core/status.h"
#include "mm/core/time/simulate.h"

typedef struct decider {
    const mm_plan *plan;
    const mm_graph_facts *facts;
    const mm_stash_account *stash;
    mm_decision *decisions;
    int *map_of; /* per tensor: the map of its root; -1: none */
} decider;

static const mm_decision undecided = {.codec = -1, .sign_codec = -1};

static mm_decision *decision_of(const decider *d, mm_tensor tensor) {
    const int map = tensor < 0 ? -1 : d->map_of[mm_plan_root(d->plan, tensor)];
    return map < 0 ? NULL : &d->decisions[map];
}

static bool leaves_device(const mm_plan *plan, const mm_segment *s) {
    return s->memory == MM_MEM_PINNED || (s->pool >= 0 && plan->segments[s->pool].memory == MM_MEM_PINNED);
}

static void read_operation(const decider *d, const mm_node *n) {
    mm_decision *decision = decision_of(d, n->tensor);
    const mm_segment *to = n->dst >= 0 ? &d->plan->segments[n->dst] : NULL;
    if (!decision || !to) return;
    const mm_node_cost cost = mm_node_table[n->kind].cost;
    const bool copies = cost == MM_COST_LINK_OUT || cost == MM_COST_LINK_IN;
    decision->ns += mm_simulate_node_ns(d->plan, d->facts, n) + (copies ? d->facts->issue_ns : 0);
    if (n->kind == MM_NODE_OUT && to->content == MM_CONTENT_RAW) decision->kinds |= 1u << MM_REMEDY_SWAP;
    if (to->codec >= 0 && !d->facts->codecs[to->codec].gives_value) {
        decision->kinds |= 1u << MM_REMEDY_MASK;
        decision->sign_codec = to->codec;
    } else if (to->codec >= 0) {
        decision->kinds |= 1u << (leaves_device(d->plan, to) ? MM_REMEDY_COMPRESS_SWAP : MM_REMEDY_COMPRESS);
        decision->codec = to->codec;
    }
}

/* Adds the codes that the step reads and writes by itself. */
static void read_step(const decider *d, const mm_node *n) {
    const mm_step_info *step = mm_graph_step(d->plan->graph, n->step);
    for (int u = 0; step->n_codes > 0 && u < step->n_uses; u++) {
        mm_decision *decision = decision_of(d, step->uses[u].tensor);
        const int32_t written = mm_node_code(d->plan, n, u);
        if (!decision) continue;
        decision->ns += mm_node_codes_ns(d->plan, d->facts, n, u);
        if (written < 0) continue;
        const int32_t codec = d->plan->segments[written].codec;
        const bool value = d->facts->codecs[codec].gives_value;
        decision->kinds |= 1u << (value ? MM_REMEDY_COMPRESS : MM_REMEDY_MASK);
        *(value ? &decision->codec : &decision->sign_codec) = codec;
    }
}

static void read_recomputation(const decider *d, const mm_node *n) {
    const mm_step_info *step = mm_graph_step(d->plan->graph, n->step);
    for (int u = 0; u < step->n_uses; u++) {
        mm_decision *decision = decision_of(d, step->uses[u].tensor);
        if (!decision || mm_node_access(n, &step->uses[u], u) == MM_READ) continue;
        decision->kinds |= 1u << MM_REMEDY_RECOMPUTE;
        decision->ns += mm_simulate_node_ns(d->plan, d->facts, n);
    }
}

/* Counts a map as kept if its elements stay on the device from the forward to the backward pass, and its only other
 * remedy is RECOMPUTE: a step that recomputes another map writes this one, too. */
static void keep_what_stays(const decider *d) {
    int last_forward, first_backward;
    mm_plan_turning_point(d->plan, &last_forward, &first_backward);
    for (int i = 0; i < d->plan->n_segments; i++) {
        const mm_segment *s = &d->plan->segments[i];
        mm_decision *decision =
            s->content == MM_CONTENT_RAW && s->memory == MM_MEM_DEVICE ? decision_of(d, s->tensor) : NULL;
        if (!decision || s->first_node < 0 || s->first_node > last_forward || s->live_last < first_backward) continue;
        if (decision->kinds == 1u << MM_REMEDY_RECOMPUTE) *decision = undecided;
    }
}

/* A code that is swapped is first made on the device; the decision is then COMPRESS_SWAP alone, not also COMPRESS. */
static void finish_decision(mm_decision *decision) {
    if (decision->kinds & 1u << MM_REMEDY_COMPRESS_SWAP) decision->kinds &= ~(1u << MM_REMEDY_COMPRESS);
    if (decision->kinds == 0) decision->kinds = 1u << MM_REMEDY_KEEP;
}

mm_status mm_account_decide(const mm_plan *plan, const mm_graph_facts *facts, const mm_stash_account *stash,
                            mm_decision **decisions_out) {
    const size_t n_tensors = (size_t)mm_graph_tensors(plan->graph);
    decider d = {.plan = plan, .facts = facts, .stash = stash};
    d.decisions = malloc(((size_t)stash->n_maps + 1) * sizeof *d.decisions);
    d.map_of = malloc((n_tensors + 1) * sizeof *d.map_of);
    if (!d.decisions || !d.map_of) {
        free(d.decisions);
        free(d.map_of);
        return mm_fail(MM_ERR_NOMEM, "out of memory for the decisions on %d maps", stash->n_maps);
    }
    for (size_t t = 0; t < n_tensors; t++) d.map_of[t] = -1;
    for (int i = 0; i < stash->n_maps; i++) {
        d.map_of[stash->maps[i].tensor] = i;
        d.decisions[i] = undecided;
    }
    for (int i = 0; i < plan->n_nodes; i++) {
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE) read_recomputation(&d, &plan->nodes[i]);
        if (mm_node_runs_step(&plan->nodes[i]))
            read_step(&d, &plan->nodes[i]);
        else
            read_operation(&d, &plan->nodes[i]);
    }
    keep_what_stays(&d);
    for (int i = 0; i < stash->n_maps; i++) finish_decision(&d.decisions[i]);
    free(d.map_of);
    *decisions_out = d.decisions;
    return MM_OK;
}

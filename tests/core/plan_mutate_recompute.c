/* SPDX-License-Identifier: MIT */
/* Mutations of steps that run again: the wrong step, at the wrong time, from and to the wrong places. */
#include "tests/core/plan_mutate_parts.h"

/* Another step runs again, with the bindings of the right one. */
static bool recompute_another_step(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_recompute);
    if (n) n->step = mutant_below(m, mm_graph_steps(m->plan->graph));
    return n != NULL;
}

/* A step runs again at another time: before its first run, when its inputs are gone, or after its result is needed. */
static bool recompute_at_another_time(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_recompute);
    if (n) mutant_move_node(m->plan, (int)(n - m->plan->nodes), mutant_below(m, m->plan->n_nodes));
    return n != NULL;
}

/* A step runs again by a variant that may give other bits. */
static bool recompute_by_another_variant(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_recompute);
    if (!n) return false;
    int variants = m->facts->variant_first[n->step + 1] - m->facts->variant_first[n->step];
    int32_t before = n->variant;
    n->variant = mutant_below(m, variants);
    return n->variant != before;
}

/* The step ran by another variant than the one by which it runs again. */
static bool variant_before_recompute(mutant *m) {
    const mm_node *again = mutant_find_node(m, node_is_recompute);
    for (int i = 0; again && i < m->plan->n_nodes; i++) {
        mm_node *n = &m->plan->nodes[i];
        if (n->kind != MM_NODE_STEP || n->step != again->step) continue;
        n->variant = mutant_below(m, m->facts->variant_first[n->step + 1] - m->facts->variant_first[n->step]);
        return n->variant != again->variant;
    }
    return false;
}

/* A step that runs again reads, or writes, another segment of the same tensor. */
static bool rebind(mutant *m, bool write) {
    const mm_node *n = mutant_find_node(m, node_is_recompute);
    const mm_step_info *step = n ? mm_graph_step(m->plan->graph, n->step) : NULL;
    int32_t *found = NULL;
    for (int u = 0, seen = 0; step && u < step->n_uses; u++) {
        int32_t *binding = &m->plan->bindings[n->first_binding + u];
        if (*binding >= 0 && (step->uses[u].access == MM_WRITE) == write && mutant_find_sibling(m, *binding) >= 0 &&
            mutant_below(m, ++seen) == 0)
            found = binding;
    }
    if (found) *found = mutant_find_sibling(m, *found);
    return found != NULL;
}

static bool recompute_from_elsewhere(mutant *m) { return rebind(m, false); }
static bool recompute_to_elsewhere(mutant *m) { return rebind(m, true); }

/* A first run is called a second one, or a second run a first one. */
static bool exchange_step_and_recompute(mutant *m) {
    mm_node *n = mutant_node(m);
    if (mutant_below(m, 2)) n = mutant_find_node(m, node_is_recompute);
    if (!n || !mm_node_runs_step(n)) return false;
    n->kind = n->kind == MM_NODE_STEP ? MM_NODE_RECOMPUTE : MM_NODE_STEP;
    return true;
}

const mutation mutations_of_recomputes[] = {
    {"recompute_another_step", recompute_another_step},
    {"recompute_at_another_time", recompute_at_another_time},
    {"recompute_by_another_variant", recompute_by_another_variant},
    {"variant_before_recompute", variant_before_recompute},
    {"recompute_from_elsewhere", recompute_from_elsewhere},
    {"recompute_to_elsewhere", recompute_to_elsewhere},
    {"exchange_step_and_recompute", exchange_step_and_recompute},
    {NULL, NULL},
};

/* SPDX-License-Identifier: MIT */
/* Mutations of persistent tensors: moved, over each other, mistaken, touched too early, put back too late. */
#include "tests/core/plan_mutate_parts.h"
#include "tests/core/random_graph.h"

static mm_segment *find_persistent(mutant *m) {
    return &m->plan->segments[mutant_below(m, mm_graph_persistents(m->plan->graph))];
}

static bool move_persistent(mutant *m) {
    find_persistent(m)->offset += MM_ALIGN * (int64_t)(mutant_below(m, 5) - 2);
    return true;
}

/* Two persistent tensors lie in one place. */
static bool persistent_over_another(mutant *m) {
    mm_segment *s = find_persistent(m), *other = find_persistent(m);
    s->offset = other->offset;
    return s != other;
}

static bool swap_persistents(mutant *m) {
    mm_segment *s = find_persistent(m), *other = find_persistent(m), old = *s;
    *s = *other;
    *other = old;
    return s != other;
}

static bool lower_base(mutant *m) {
    m->limits.base_bytes -= MM_ALIGN;
    return m->limits.base_bytes >= 0;
}

/* A persistent tensor counts as a map, or another segment as persistent. */
static bool other_category(mutant *m) {
    mm_segment *s = mutant_below(m, 2) ? find_persistent(m) : mutant_segment(m);
    s->category = s->category == MM_CAT_PERSISTENT ? MM_CAT_FEATURE_MAP : MM_CAT_PERSISTENT;
    return true;
}

/* A step uses a copy of a persistent tensor in place of the tensor. */
static bool bind_copy(mutant *m) {
    const int n = mm_graph_persistents(m->plan->graph);
    int32_t *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_bindings; i++) {
        int32_t *binding = &m->plan->bindings[i];
        if (*binding >= 0 && *binding < n && mutant_find_sibling(m, *binding) >= 0 && mutant_below(m, ++seen) == 0)
            found = binding;
    }
    if (found) *found = mutant_find_sibling(m, *found);
    return found != NULL;
}

static mm_node *find_op(mutant *m, bool reads, bool writes) {
    const int n = mm_graph_persistents(m->plan->graph);
    mm_node *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_nodes; i++) {
        mm_node *node = &m->plan->nodes[i];
        if (node_is_op(node) && ((reads && node->src < n) || (writes && node->dst >= 0 && node->dst < n)) &&
            mutant_below(m, ++seen) == 0)
            found = node;
    }
    return found;
}

/* An operation on a persistent tensor waits for nothing. */
static bool touch_at_once(mutant *m) {
    mm_node *n = find_op(m, true, true);
    for (int s = 0; n && s < MM_STREAM_COUNT; s++) n->wait[s] = -1;
    return n != NULL;
}

/* A copy is made or put back later, perhaps after the tensor has changed. */
static bool touch_later(mutant *m) {
    mm_node *n = find_op(m, true, true);
    const int from = n ? (int)(n - m->plan->nodes) : 0;
    if (n) mutant_move_node(m->plan, from, from + mutant_below(m, m->plan->n_nodes - from));
    return n != NULL;
}

/* A copy is put back behind all nodes, and waits for every stream: only its content can be wrong. */
static bool put_back_last(mutant *m) {
    mm_node *n = find_op(m, false, true);
    if (!n) return false;
    mutant_move_node(m->plan, (int)(n - m->plan->nodes), m->plan->n_nodes - 1);
    n = &m->plan->nodes[m->plan->n_nodes - 1];
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (s != (int)n->stream) n->wait[s] = m->plan->stream_nodes[s] - 1;
    return true;
}

/* A persistent tensor comes back from a lossy code, even if a step then overwrites it. */
static bool lossy_trip(mutant *m) {
    const mm_node *n = find_op(m, false, true);
    bool any = false;
    for (int i = 0; n && i < m->plan->n_segments; i++) {
        mm_segment *s = &m->plan->segments[i];
        const int64_t bytes = mm_facts_code(m->facts, RANDOM_LOSSY, n->tensor)->code_bytes;
        if (s->tensor != n->tensor || s->content != MM_CONTENT_CODED || s->pool >= 0 || bytes < 0) continue;
        s->codec = RANDOM_LOSSY;
        s->bytes = bytes;
        any = true;
    }
    return any;
}

const mutation mutations_of_persistents[] = {
    {"move_persistent", move_persistent},
    {"persistent_over_another", persistent_over_another},
    {"swap_persistents", swap_persistents},
    {"lower_base", lower_base},
    {"other_category", other_category},
    {"bind_copy", bind_copy},
    {"touch_at_once", touch_at_once},
    {"touch_later", touch_later},
    {"put_back_last", put_back_last},
    {"lossy_trip", lossy_trip},
    {NULL, NULL},
};

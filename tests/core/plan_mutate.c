/* SPDX-License-Identifier: MIT */
#include "tests/core/plan_mutate.h"

#include <stdlib.h>
#include <string.h>

#include "tests/core/plan_mutate_parts.h"
#include "tests/core/random_graph.h"

static void *copy(const void *from, size_t n, size_t room, size_t item) {
    void *to = calloc(room + 1, item);
    if (!to) abort();
    if (n > 0) memcpy(to, from, n * item);
    return to;
}

mm_plan *plan_clone(const mm_plan *plan) {
    mm_plan *clone = copy(plan, 1, 1, sizeof *plan);
    size_t nodes = (size_t)plan->n_nodes, segments = (size_t)plan->n_segments, bindings = (size_t)plan->n_bindings;
    size_t tensors = (size_t)mm_graph_tensors(plan->graph);
    clone->nodes = copy(plan->nodes, nodes, nodes + 1, sizeof *plan->nodes);
    clone->segments = copy(plan->segments, segments, segments + 1, sizeof *plan->segments);
    clone->bindings = copy(plan->bindings, bindings, bindings, sizeof *plan->bindings);
    clone->policy = copy(plan->policy, strlen(plan->policy), strlen(plan->policy) + 1, 1);
    clone->alias = copy(plan->alias, tensors, tensors, sizeof *plan->alias);
    return clone;
}

/* ---------------------------------------------------------------- choosing */

int mutant_below(mutant *m, int n) { return random_below(&m->random, n); }

mm_node *mutant_node(mutant *m) { return &m->plan->nodes[mutant_below(m, m->plan->n_nodes)]; }

mm_segment *mutant_segment(mutant *m) {
    return m->plan->n_segments ? &m->plan->segments[mutant_below(m, m->plan->n_segments)] : NULL;
}

mm_node *mutant_find_node(mutant *m, bool (*fits)(const mm_node *)) {
    mm_node *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_nodes; i++)
        if (fits(&m->plan->nodes[i]) && mutant_below(m, ++seen) == 0) found = &m->plan->nodes[i];
    return found;
}

mm_segment *mutant_find_segment(mutant *m, bool (*fits)(const mm_segment *)) {
    mm_segment *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_segments; i++)
        if (fits(&m->plan->segments[i]) && mutant_below(m, ++seen) == 0) found = &m->plan->segments[i];
    return found;
}

bool node_has_wait(const mm_node *n) {
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (n->wait[s] >= 0) return true;
    return false;
}

int32_t *mutant_find_wait(mutant *m) {
    mm_node *n = mutant_find_node(m, node_has_wait);
    if (!n) return NULL;
    int s = mutant_below(m, MM_STREAM_COUNT);
    while (n->wait[s] < 0) s = (s + 1) % MM_STREAM_COUNT;
    return &n->wait[s];
}

int32_t *mutant_find_binding(mutant *m) {
    int32_t *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_bindings; i++)
        if (m->plan->bindings[i] >= 0 && mutant_below(m, ++seen) == 0) found = &m->plan->bindings[i];
    return found;
}

int mutant_find_sibling(mutant *m, int segment) {
    const mm_segment *s = &m->plan->segments[segment];
    int found = -1;
    for (int i = 0, seen = 0; i < m->plan->n_segments; i++)
        if (i != segment && s->tensor >= 0 && m->plan->segments[i].tensor == s->tensor && mutant_below(m, ++seen) == 0)
            found = i;
    return found;
}

/* ---------------------------------------------------------------- order */

void mutant_renumber(mm_plan *plan) {
    memset(plan->stream_nodes, 0, sizeof plan->stream_nodes);
    for (int i = 0; i < plan->n_nodes; i++) plan->nodes[i].seq = plan->stream_nodes[plan->nodes[i].stream]++;
}

void mutant_insert(mm_plan *plan, int at, mm_node node) {
    int32_t seq = 0;
    for (int i = 0; i < at; i++) seq += plan->nodes[i].stream == node.stream;
    memmove(&plan->nodes[at + 1], &plan->nodes[at], (size_t)(plan->n_nodes++ - at) * sizeof node);
    plan->nodes[at] = node;
    for (int i = at + 1; i < plan->n_nodes; i++)
        if (plan->nodes[i].wait[node.stream] >= seq) plan->nodes[i].wait[node.stream]++;
    mutant_renumber(plan);
}

void mutant_move_node(mm_plan *plan, int from, int to) {
    mm_node moved = plan->nodes[from];
    int32_t *new_seq = copy(NULL, 0, (size_t)plan->n_nodes, sizeof *new_seq);
    if (from < to)
        memmove(&plan->nodes[from], &plan->nodes[from + 1], (size_t)(to - from) * sizeof moved);
    else
        memmove(&plan->nodes[to + 1], &plan->nodes[to], (size_t)(from - to) * sizeof moved);
    plan->nodes[to] = moved;
    int32_t seq = 0;
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].stream == moved.stream) new_seq[plan->nodes[i].seq] = seq++;
    for (int i = 0; i < plan->n_nodes; i++) {
        int32_t *wait = &plan->nodes[i].wait[moved.stream];
        if (*wait >= 0) *wait = new_seq[*wait];
    }
    free(new_seq);
    mutant_renumber(plan);
}

/* ---------------------------------------------------------------- all */

const mutation *mutation_at(int index) {
    const mutation *const tables[] = {mutations_of_order,       mutations_of_moves, mutations_of_recomputes,
                                      mutations_of_bytes,       mutations_of_uses,  mutations_of_limits,
                                      mutations_of_persistents, mutations_of_pools, mutations_of_measures,
                                      mutations_of_codes};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        int n = 0;
        while (tables[t][n].name) n++;
        if (index < n) return &tables[t][index];
        index -= n;
    }
    return NULL;
}

/* SPDX-License-Identifier: MIT */
/* Mutations of codes that steps themselves read and write. */
#include "tests/core/plan_mutate_parts.h"
#include "tests/core/random_graph.h"

static bool writes_codes(const mm_node *n) { return n->kind == MM_NODE_STEP && n->first_code >= 0; }

/* A code that a step writes; NULL: none does. *node_out: the step's node. */
static int32_t *find_written(mutant *m, mm_node **node_out) {
    mm_node *n = mutant_find_node(m, writes_codes);
    if (!n) return NULL;
    int u = 0;
    while (m->plan->bindings[n->first_code + u] < 0) u++;
    *node_out = n;
    return &m->plan->bindings[n->first_code + u];
}

static bool write_no_code(mutant *m) {
    mm_node *n;
    int32_t *code = find_written(m, &n);
    if (code) *code = -1;
    return code != NULL;
}

static bool write_sibling(mutant *m) {
    mm_node *n;
    int32_t *code = find_written(m, &n);
    const int sibling = code ? mutant_find_sibling(m, *code) : -1;
    if (sibling >= 0) *code = sibling;
    return sibling >= 0;
}

/* A step writes the code of some use into any coded segment. */
static bool write_any(mutant *m) {
    mm_node *n = mutant_find_node(m, writes_codes);
    mm_segment *s = n ? mutant_find_segment(m, segment_is_coded) : NULL;
    if (!s) return false;
    m->plan->bindings[n->first_code + mutant_below(m, mm_graph_step(m->plan->graph, n->step)->n_uses)] =
        (int32_t)(s - m->plan->segments);
    return true;
}

static bool other_codes(mutant *m) {
    mm_node *n = mutant_find_node(m, writes_codes);
    if (n) n->first_code = mutant_below(m, m->plan->n_bindings + 20) - 10;
    return n != NULL;
}

/* A step that is run again writes codes, which it must not. */
static bool code_again(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_recompute);
    if (n) n->first_code = n->first_binding;
    return n != NULL;
}

/* A step uses a code in place of the elements, whether it can or not. */
static bool read_code(mutant *m) {
    int32_t *found = NULL;
    int code = -1;
    for (int i = 0, seen = 0; i < m->plan->n_nodes; i++) {
        const mm_node *n = &m->plan->nodes[i];
        const int uses = mm_node_runs_step(n) ? mm_graph_step(m->plan->graph, n->step)->n_uses : 0;
        for (int u = 0; u < uses; u++) {
            int32_t *binding = &m->plan->bindings[n->first_binding + u];
            const int sibling = *binding >= 0 ? mutant_find_sibling(m, *binding) : -1;
            if (sibling < 0 || !segment_is_coded(&m->plan->segments[sibling]) || mutant_below(m, ++seen) != 0) continue;
            found = binding;
            code = sibling;
        }
    }
    if (found) *found = code;
    return found != NULL;
}

/* A code that a step writes, and most likely another reads, lies in pinned memory. */
static bool code_pinned(mutant *m) {
    mm_node *n;
    const int32_t *code = find_written(m, &n);
    if (code) m->plan->segments[*code].memory = MM_MEM_PINNED;
    return code != NULL;
}

/* The workspace of a step that writes codes is what the step needs without. */
static bool cramped(mutant *m) {
    mm_node *n = mutant_find_node(m, writes_codes);
    if (!n || n->work < 0) return false;
    const int64_t bytes = m->facts->variants[m->facts->variant_first[n->step] + n->variant].workspace_bytes;
    m->plan->segments[n->work].bytes = bytes > 0 ? bytes : 1;
    return true;
}

const mutation mutations_of_codes[] = {
    {"write_no_code", write_no_code},
    {"write_sibling", write_sibling},
    {"write_any", write_any},
    {"other_codes", other_codes},
    {"code_again", code_again},
    {"read_code", read_code},
    {"code_pinned", code_pinned},
    {"cramped", cramped},
    {NULL, NULL},
};

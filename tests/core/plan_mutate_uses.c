/* SPDX-License-Identifier: MIT */
/* Mutations of which segments the nodes use. */
#include <stdlib.h>

#include "tests/core/plan_mutate_parts.h"
#include "tests/core/plan_oracle.h"
#include "tests/core/random_graph.h"

static bool bind_sibling(mutant *m) {
    int32_t *binding = mutant_find_binding(m);
    int sibling = binding ? mutant_find_sibling(m, *binding) : -1;
    if (sibling >= 0) *binding = sibling;
    return sibling >= 0;
}

static bool bind_any(mutant *m) {
    if (m->plan->n_bindings == 0) return false;
    m->plan->bindings[mutant_below(m, m->plan->n_bindings)] = mutant_below(m, m->plan->n_segments + 1) - 1;
    return true;
}

/* A step writes another segment of the tensor; shared: a tensor that shares the storage of an input. */
static bool rebind_write(mutant *m, bool shared) {
    int32_t *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_nodes; i++) {
        const mm_node *n = &m->plan->nodes[i];
        const mm_step_info *step = mm_node_runs_step(n) ? mm_graph_step(m->plan->graph, n->step) : NULL;
        for (int u = 0; step && u < step->n_uses; u++) {
            mm_tensor t = step->uses[u].tensor;
            int32_t *binding = &m->plan->bindings[n->first_binding + u];
            if (step->uses[u].access == MM_WRITE && *binding >= 0 && (m->plan->alias[t] != t) == shared &&
                mutant_find_sibling(m, *binding) >= 0 && mutant_below(m, ++seen) == 0)
                found = binding;
        }
    }
    if (found) *found = mutant_find_sibling(m, *found);
    return found != NULL;
}

static bool write_elsewhere(mutant *m) { return rebind_write(m, false); }
static bool share_elsewhere(mutant *m) { return rebind_write(m, true); }

/* A write that no longer waits for an operation that reads what is there, nor does anything before it on its stream. */
static bool write_too_early(mutant *m) {
    int n, seen = 0, writer = -1, reader = -1;
    access *list = plan_accesses(m->plan, &n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            const mm_node *reads = &m->plan->nodes[list[j].node];
            bool waits = m->plan->nodes[list[i].node].wait[reads->stream] >= reads->seq;
            if (list[i].segment != list[j].segment || !list[i].write || list[j].write || !node_is_op(reads) || !waits)
                continue;
            if (mutant_below(m, ++seen) != 0) continue;
            writer = list[i].node;
            reader = list[j].node;
        }
    free(list);
    for (int i = reader + 1; i <= writer; i++) {
        int32_t *wait = &m->plan->nodes[i].wait[m->plan->nodes[reader].stream];
        bool same = m->plan->nodes[i].stream == m->plan->nodes[writer].stream;
        if (same && *wait >= m->plan->nodes[reader].seq) *wait = m->plan->nodes[reader].seq - 1;
    }
    return writer >= 0;
}

static bool other_bindings(mutant *m) {
    mutant_node(m)->first_binding += mutant_below(m, 5) - 2;
    return true;
}

static bool other_source(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_op);
    int sibling = n ? mutant_find_sibling(m, n->src) : -1;
    if (sibling >= 0) n->src = sibling;
    return sibling >= 0;
}

static bool other_target(mutant *m) {
    mm_node *n = mutant_find_node(m, node_has_target);
    int sibling = n ? mutant_find_sibling(m, n->dst) : -1;
    if (sibling >= 0) n->dst = sibling;
    return sibling >= 0;
}

static bool swap_operations(mutant *m) {
    mm_node *a = mutant_find_node(m, node_is_op), *b = mutant_find_node(m, node_is_op);
    if (!a || a == b || a->kind != b->kind) return false;
    mm_node old = *a;
    a->tensor = b->tensor, a->src = b->src, a->dst = b->dst, a->work = b->work, a->stage = b->stage;
    b->tensor = old.tensor, b->src = old.src, b->dst = old.dst, b->work = old.work, b->stage = old.stage;
    return true;
}

static bool other_codec(mutant *m) {
    mm_segment *s = mutant_find_segment(m, segment_is_coded);
    if (s) s->codec = mutant_below(m, m->facts->n_codecs + 2) - 1;
    return s != NULL;
}

static bool of_what_takes_no_loss(const mutant *m, const mm_segment *s) {
    const mm_tensor_kind kind = mm_graph_tensor(m->plan->graph, s->tensor)->kind;
    return kind == MM_SAVED || kind == MM_INPUT;
}

/* Codes of a saved tensor or of a batch become lossy. */
static bool lossy_saved(mutant *m) {
    const mm_segment *one = mutant_find_segment(m, segment_is_coded);
    bool any = false;
    for (int i = 0; one && of_what_takes_no_loss(m, one) && i < m->plan->n_segments; i++) {
        mm_segment *s = &m->plan->segments[i];
        const int64_t bytes = mm_facts_code(m->facts, RANDOM_LOSSY, one->tensor)->code_bytes;
        if (s->tensor != one->tensor || s->content != MM_CONTENT_CODED || s->pool >= 0 || bytes < 0) continue;
        s->codec = RANDOM_LOSSY;
        s->bytes = bytes;
        any = true;
    }
    return any;
}

/* The other codec, and the code of the right size for it. */
static bool exchange_codec(mutant *m) {
    mm_segment *s = mutant_find_segment(m, segment_is_coded);
    if (!s) return false;
    s->codec = mutant_below(m, m->facts->n_codecs);
    int64_t bytes = mm_facts_code(m->facts, s->codec, s->tensor)->code_bytes;
    if (bytes > 0) s->bytes = bytes;
    return true;
}

static bool other_content(mutant *m) {
    mm_segment *s = mutant_segment(m);
    if (s) s->content = (mm_content)mutant_below(m, MM_CONTENTS + 1);
    return s != NULL;
}

static bool other_tensor(mutant *m) {
    mm_segment *s = mutant_segment(m);
    if (s) s->tensor = mutant_below(m, mm_graph_tensors(m->plan->graph) + 2) - 1;
    return s != NULL;
}

static bool wrong_alias(mutant *m) {
    int n = mm_graph_tensors(m->plan->graph);
    m->plan->alias[mutant_below(m, n)] = mutant_below(m, n);
    return true;
}

/* An alias that the graph allows, but that this plan was not made for. */
static bool unplanned_alias(mutant *m) {
    int s = mutant_below(m, mm_graph_steps(m->plan->graph));
    const mm_step_info *step = mm_graph_step(m->plan->graph, s);
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].alias) {
            m->plan->alias[step->pairs[p].output] = m->plan->alias[step->pairs[p].input];
            return true;
        }
    return false;
}

static bool lose_workspace(mutant *m) {
    mm_node *n = mutant_find_node(m, node_has_work);
    if (n) n->work = -1;
    return n != NULL;
}

static bool share_workspace(mutant *m) {
    mm_node *a = mutant_find_node(m, node_has_work), *b = mutant_find_node(m, node_has_work);
    if (a) a->work = b->work;
    return a != b;
}

static bool other_stage(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_encode);
    if (n) n->stage = mutant_below(m, m->plan->n_segments + 1) - 1;
    return n != NULL;
}

static bool other_variant(mutant *m) {
    mutant_node(m)->variant = mutant_below(m, 5) - 1;
    return true;
}

static bool other_throttle(mutant *m) {
    mutant_node(m)->throttle = mutant_below(m, 4) - 1;
    return true;
}

const mutation mutations_of_uses[] = {
    {"bind_sibling", bind_sibling},       {"bind_any", bind_any},
    {"write_elsewhere", write_elsewhere}, {"share_elsewhere", share_elsewhere},
    {"write_too_early", write_too_early}, {"other_bindings", other_bindings},
    {"other_source", other_source},       {"other_target", other_target},
    {"swap_operations", swap_operations}, {"other_codec", other_codec},
    {"lossy_saved", lossy_saved},         {"exchange_codec", exchange_codec},
    {"other_content", other_content},     {"other_tensor", other_tensor},
    {"wrong_alias", wrong_alias},         {"unplanned_alias", unplanned_alias},
    {"lose_workspace", lose_workspace},   {"share_workspace", share_workspace},
    {"other_stage", other_stage},         {"other_variant", other_variant},
    {"other_throttle", other_throttle},   {NULL, NULL},
};

/* SPDX-License-Identifier: MIT */
/* Mutations of measures: of the wrong bytes, too early, too late, or with a target. */
#include "tests/core/plan_mutate_parts.h"

/* A measure no longer waits for one of the streams that it waited for. */
static bool measure_too_early(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_measure);
    if (!n || !node_has_wait(n)) return false;
    int s = mutant_below(m, MM_STREAM_COUNT);
    while (n->wait[s] < 0) s = (s + 1) % MM_STREAM_COUNT;
    n->wait[s] = -1;
    return true;
}

/* A measure moves behind later nodes, and finds what they have written. */
static bool measure_too_late(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_measure);
    if (!n) return false;
    const int from = (int)(n - m->plan->nodes), to = from + mutant_below(m, m->plan->n_nodes - from);
    mutant_move_node(m->plan, from, to);
    for (int i = 0; i < to; i++) mm_plan_wait(m->plan, to, i);
    return true;
}

/* A measure has another segment of its tensor: in pinned memory, a code, or a value of another time. */
static bool measure_sibling(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_measure);
    const int sibling = n ? mutant_find_sibling(m, n->src) : -1;
    if (sibling >= 0) n->src = sibling;
    return sibling >= 0;
}

static bool measure_any(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_measure);
    if (!n) return false;
    n->src = mutant_below(m, m->plan->n_segments + 2) - 1;
    if (mutant_below(m, 2) && n->src >= 0 && n->src < m->plan->n_segments) n->tensor = m->plan->segments[n->src].tensor;
    return true;
}

static bool measure_other_tensor(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_measure);
    if (n) n->tensor = mutant_below(m, mm_graph_tensors(m->plan->graph) + 1) - 1;
    return n != NULL;
}

static bool measure_into(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_measure);
    if (n) n->dst = mutant_below(m, m->plan->n_segments);
    return n != NULL;
}

static bool measure_with_work(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_measure);
    if (!n) return false;
    *(mutant_below(m, 2) ? &n->work : &n->stage) = mutant_below(m, m->plan->n_segments);
    return true;
}

static bool measure_elsewhere(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_measure);
    if (!n) return false;
    n->stream = (mm_stream_id)mutant_below(m, MM_STREAM_COUNT);
    n->wait[n->stream] = -1;
    mutant_renumber(m->plan);
    return true;
}

/* Another operation becomes a measure of its source. */
static bool measure_instead(mutant *m) {
    mm_node *n = mutant_find_node(m, node_has_target);
    if (!n) return false;
    n->kind = MM_NODE_MEASURE;
    n->stream = MM_STREAM_ENCODE;
    n->wait[n->stream] = n->work = n->stage = n->dst = -1;
    n->throttle = 0;
    mutant_renumber(m->plan);
    return true;
}

/* A measure reads what an operation has brought back, perhaps from a lossy code. */
static bool measure_fetched(mutant *m) {
    const mm_node *n = mutant_find_node(m, node_has_target);
    if (!n) return false;
    const int at = (int)(n - m->plan->nodes) + 1;
    mm_node measure = {.kind = MM_NODE_MEASURE,
                       .stream = MM_STREAM_ENCODE,
                       .step = -1,
                       .tensor = n->tensor,
                       .src = n->dst,
                       .dst = -1,
                       .work = -1,
                       .stage = -1};
    for (int s = 0; s < MM_STREAM_COUNT; s++) measure.wait[s] = -1;
    mutant_insert(m->plan, at, measure);
    for (int i = 0; i < at; i++) mm_plan_wait(m->plan, at, i);
    return true;
}

const mutation mutations_of_measures[] = {
    {"measure_too_early", measure_too_early},
    {"measure_too_late", measure_too_late},
    {"measure_sibling", measure_sibling},
    {"measure_any", measure_any},
    {"measure_other_tensor", measure_other_tensor},
    {"measure_into", measure_into},
    {"measure_with_work", measure_with_work},
    {"measure_elsewhere", measure_elsewhere},
    {"measure_instead", measure_instead},
    {"measure_fetched", measure_fetched},
    {NULL, NULL},
};

/* SPDX-License-Identifier: MIT */
#include "mm/core/plan/plan_visits.h"

static bool is_visit(const mm_plan *plan, int segment, mm_tensor tensor) {
    const mm_segment *s = &plan->segments[segment];
    return s->tensor == tensor && s->memory == MM_MEM_DEVICE && s->content == MM_CONTENT_RAW && s->first_node >= 0;
}

static bool node_uses(const mm_plan *plan, const mm_node *node, int segment) {
    if (!mm_node_runs_step(node)) return false;
    for (int u = 0; u < mm_graph_step(plan->graph, node->step)->n_uses; u++)
        if (plan->bindings[node->first_binding + u] == segment) return true;
    return false;
}

static mm_plan_visit visit_of(const mm_plan *plan, int segment) {
    const mm_segment *s = &plan->segments[segment];
    mm_plan_visit v = {.first = -1, .last = -1, .begin_node = s->first_node, .end_node = s->last_node};
    for (int i = s->first_node; i <= s->last_node; i++) {
        const mm_node *node = &plan->nodes[i];
        v.fetched |= node->kind == MM_NODE_IN && node->dst == segment;
        v.sent |= node->kind == MM_NODE_OUT && node->src == segment;
        if (!node_uses(plan, node, segment)) continue;
        if (v.first < 0) v.first = node->step;
        v.last = node->step;
    }
    return v;
}

bool mm_plan_next_visit(const mm_plan *plan, mm_tensor tensor, int *segment, mm_plan_visit *visit_out) {
    while (*segment < plan->n_segments && !is_visit(plan, *segment, tensor)) ++*segment;
    if (*segment == plan->n_segments) return false;
    *visit_out = visit_of(plan, (*segment)++);
    return true;
}

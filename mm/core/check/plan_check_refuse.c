/* SPDX-License-Identifier: MIT */
/* Messages of the check: in which node and tensor the fault is, and why it is one. */
#include <stdarg.h>
#include <stdio.h>

#include "mm/core/check/plan_check.h"
#include "mm/core/status.h"
#include "mm/core/text.h"

const char *mm_check_node_name(const mm_check *c, int node, char *buffer, size_t capacity) {
    if (node < 0 || node >= c->plan->n_nodes) return "the plan";
    int step = node;
    while (step >= 0 && c->plan->nodes[step].kind != MM_NODE_STEP) step--;
    char name[256] = "the start";
    if (step >= 0) mm_graph_step_name(c->graph, c->plan->nodes[step].step, name, sizeof name);
    const mm_node *n = &c->plan->nodes[node];
    bool named = n->tensor >= 0 && n->tensor < mm_graph_tensors(c->graph);
    if (step == node) {
        snprintf(buffer, capacity, "%s", name);
    } else if (n->kind == MM_NODE_RECOMPUTE) {
        char again[256];
        snprintf(buffer, capacity, "recompute of %s after %s",
                 mm_graph_step_name(c->graph, n->step, again, sizeof again), name);
    } else
        snprintf(buffer, capacity, "%s of %s after %s", mm_node_kind_name(n->kind),
                 named ? mm_graph_tensor(c->graph, n->tensor)->name : "no tensor", name);
    return buffer;
}

mm_status mm_check_refuse(const mm_check *c, mm_rule rule, int node, mm_tensor tensor, const char *why, ...) {
    char reason[256], where[320];
    va_list arguments;
    va_start(arguments, why);
    vsnprintf(reason, sizeof reason, why, arguments);
    va_end(arguments);
    const mm_graph *graph = c->graph;
    const bool named = tensor >= 0 && tensor < mm_graph_tensors(graph);
    *c->violation = (mm_violation){
        .rule = rule, .node = node, .other = -1, .tensor = named ? tensor : -1, .segment = -1, .old = -1};
    return mm_fail(MM_ERR_PLAN, "plan %s of %s: %s%s%s: %s (rule %s)", MM_BRIEF(c->plan->policy), mm_graph_name(graph),
                   mm_check_node_name(c, node, where, sizeof where), named ? ", tensor " : "",
                   named ? mm_graph_tensor(graph, tensor)->name : "", reason, mm_rule_number(rule));
}

mm_status mm_check_refuse_segment(const mm_check *c, mm_rule rule, int segment, const char *why) {
    const mm_segment *s = &c->plan->segments[segment];
    const mm_status status = mm_check_refuse(c, rule, -1, s->tensor, "segment %d (%lld bytes at %lld): %s", segment,
                                             (long long)s->bytes, (long long)s->offset, why);
    c->violation->segment = segment;
    return status;
}

mm_status mm_check_against(const mm_check *c, int other, int segment, int old, mm_status refused) {
    c->violation->other = other;
    c->violation->segment = segment;
    c->violation->old = old;
    return refused;
}

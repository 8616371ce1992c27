/* SPDX-License-Identifier: MIT */
#include "tools/plan/home_visits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/size.h"
#include "mm/core/status.h"

/* ---------------------------------------------------------------- visits */

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

static home_visit visit_of(const mm_plan *plan, int segment) {
    const mm_segment *s = &plan->segments[segment];
    home_visit v = {.first = -1, .last = -1, .begin_node = s->first_node, .end_node = s->last_node};
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

bool home_next_visit(const mm_plan *plan, mm_tensor tensor, int *segment, home_visit *visit_out) {
    while (*segment < plan->n_segments && !is_visit(plan, *segment, tensor)) ++*segment;
    if (*segment == plan->n_segments) return false;
    *visit_out = visit_of(plan, (*segment)++);
    return true;
}

/* ---------------------------------------------------------------- pictures */

/* The number of steps before a node, which is that of the column in which the picture has it. */
static int *count_steps(const mm_plan *plan) {
    int *steps = malloc(((size_t)plan->n_nodes + 1) * sizeof *steps);
    for (int i = 0, n = 0; steps && i < plan->n_nodes; i++) {
        n += plan->nodes[i].kind == MM_NODE_STEP;
        steps[i] = n > 0 ? n - 1 : 0;
    }
    return steps;
}

static int visits_of(const mm_plan *plan, mm_tensor tensor, int row, const int *steps, picture_visit *visits_out) {
    home_visit v;
    int n = 0;
    for (int s = 0; home_next_visit(plan, tensor, &s, &v); n++)
        if (visits_out) visits_out[n] = (picture_visit){row, steps[v.begin_node], steps[v.end_node]};
    return n;
}

static bool is_at_home(const mm_plan *plan, mm_tensor t, mm_tensor_kind kind, mm_memory memory) {
    const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, t);
    return tensor->persistent >= 0 && tensor->kind == kind && plan->segments[tensor->persistent].memory == memory;
}

/* Fills in the tensors of a kind with their homes in a memory. */
static mm_status group_of(const mm_plan *plan, mm_tensor_kind kind, mm_memory memory, const int *steps,
                          picture_group *group_out) {
    const int n_tensors = mm_graph_tensors(plan->graph);
    picture_group g = {.memory = memory};
    char size[32];
    int64_t bytes = 0;
    for (int t = 0; t < n_tensors; t++) {
        if (!is_at_home(plan, t, kind, memory)) continue;
        bytes += mm_graph_tensor(plan->graph, t)->bytes;
        if (memory != MM_MEM_DEVICE) g.n_visits += visits_of(plan, t, 0, NULL, NULL);
        g.n++;
    }
    g.visits = malloc(((size_t)g.n_visits + 1) * sizeof *g.visits);
    if (!g.visits) return mm_fail(MM_ERR_NOMEM, "out of memory for a picture of homes");
    for (int t = 0, row = 0, at = 0; memory != MM_MEM_DEVICE && t < n_tensors; t++)
        if (is_at_home(plan, t, kind, memory)) at += visits_of(plan, t, row++, steps, g.visits + at);
    snprintf(g.label, sizeof g.label, "%s%s %s: %d of %s", mm_tensor_kind_name(kind), g.n == 1 ? "" : "s",
             mm_memory_where(memory), g.n, mm_size_format(bytes, size, sizeof size));
    *group_out = g;
    return MM_OK;
}

mm_status home_picture(const mm_plan *plan, picture_homes *homes_out) {
    bool away = false;
    *homes_out = (picture_homes){0};
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) away |= mm_plan_visits(plan, t);
    if (!away) return MM_OK;
    int *steps = count_steps(plan);
    mm_status status = steps ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a picture of homes");
    for (mm_memory m = MM_MEM_DEVICE; m < MM_MEMORY_COUNT; m++)
        for (int k = 0; status == MM_OK && k < MM_TENSOR_KINDS; k++) {
            picture_group *group = &homes_out->groups[homes_out->n];
            status = group_of(plan, (mm_tensor_kind)k, m, steps, group);
            if (status == MM_OK && group->n > 0)
                homes_out->n++;
            else if (status == MM_OK)
                free(group->visits);
        }
    free(steps);
    if (status != MM_OK) picture_homes_fini(homes_out);
    return status;
}

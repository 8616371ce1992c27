/* SPDX-License-Identifier: MIT */
#include "policies/engine/engine_gradients.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"

mm_status mm_gradients_init(mm_gradients *g, mm_schedule *schedule, const uint8_t *leave) {
    const size_t n = (size_t)mm_graph_tensors(schedule->graph) + 1;
    *g = (mm_gradients){.schedule = schedule,
                        .leave = leave,
                        .node = malloc(n * sizeof *g->node),
                        .segment = malloc(n * sizeof *g->segment)};
    if (!g->node || !g->segment) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan");
    for (size_t t = 0; t < n; t++) g->node[t] = g->segment[t] = -1;
    return MM_OK;
}

void mm_gradients_fini(mm_gradients *g) {
    free(g->node);
    free(g->segment);
    memset(g, 0, sizeof *g);
}

static mm_tensor root_of(const mm_schedule *s, const mm_use *use) { return s->plan->alias[use->tensor]; }

/* The next step after `step` that uses the storage; INT_MAX: none does. */
static int next_user(const mm_schedule *s, mm_tensor root, int step) {
    while (++step <= s->tensors[root].last_step) {
        const mm_step_info *info = mm_graph_step(s->graph, step);
        for (int u = 0; u < info->n_uses; u++)
            if (root_of(s, &info->uses[u]) == root) return step;
    }
    return INT_MAX;
}

/* Adds a copy of the gradient map to or from pinned memory, after node `after`. */
static int copy(const mm_gradients *g, mm_node_kind kind, mm_tensor t, int src, int after, int *segment_out) {
    mm_schedule *s = g->schedule;
    const mm_region region = kind == MM_NODE_OUT ? MM_REGION_PINNED : MM_REGION_GENERAL;
    const int node = mm_schedule_op(s, kind, t, src, -1, region, s->plan->segments[src].bytes, segment_out);
    if (node < 0) return -1;
    s->plan->segments[*segment_out].category = MM_CAT_GRADIENT_MAP;
    mm_plan_wait(s->plan, node, after);
    return node;
}

mm_status mm_gradients_return(mm_gradients *g, int step) {
    mm_schedule *s = g->schedule;
    const mm_step_info *info = mm_graph_step(s->graph, step);
    for (int u = 0; u < info->n_uses; u++) {
        const mm_tensor t = root_of(s, &info->uses[u]);
        if (g->node[t] < 0) continue;
        s->tensors[t].value_node = copy(g, MM_NODE_IN, t, g->segment[t], g->node[t], &s->tensors[t].value);
        if (s->tensors[t].value_node < 0) return MM_ERR_NOMEM;
        g->node[t] = -1;
    }
    return MM_OK;
}

mm_status mm_gradients_go(mm_gradients *g, int step, int node) {
    mm_schedule *s = g->schedule;
    const mm_step_info *info = mm_graph_step(s->graph, step);
    for (int u = 0; u < info->n_uses; u++) {
        const mm_tensor t = root_of(s, &info->uses[u]);
        if (!g->leave[t] || g->node[t] >= 0) continue;
        const int next = next_user(s, t, step);
        if (next == INT_MAX || next < step + g->leave[t]) continue;
        g->node[t] = copy(g, MM_NODE_OUT, t, s->tensors[t].value, node, &g->segment[t]);
        if (g->node[t] < 0) return MM_ERR_NOMEM;
    }
    return MM_OK;
}

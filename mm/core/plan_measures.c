/* Adds measures to a plan that is made already, for an iteration that samples. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan.h"
#include "mm/core/status.h"

static void *copy_of(const void *from, int n, size_t size) {
    void *copy = malloc((size_t)n * size + 1);
    return copy && n > 0 ? memcpy(copy, from, (size_t)n * size) : copy;
}

/* A copy without nodes. NULL: out of memory. */
static mm_plan *copy_without_nodes(const mm_plan *plan) {
    mm_plan *copy = malloc(sizeof *copy);
    if (!copy) return NULL;
    *copy = *plan;
    copy->nodes = NULL;
    copy->n_nodes = 0;
    memset(copy->stream_nodes, 0, sizeof copy->stream_nodes);
    copy->policy = strdup(plan->policy);
    copy->segments = copy_of(plan->segments, plan->n_segments, sizeof *plan->segments);
    copy->bindings = copy_of(plan->bindings, plan->n_bindings, sizeof *plan->bindings);
    copy->alias = copy_of(plan->alias, mm_graph_tensors(plan->graph), sizeof *plan->alias);
    if (copy->policy && copy->segments && copy->bindings && copy->alias) return copy;
    mm_plan_destroy(copy);
    return NULL;
}

/* Appends a node of the plan. `moved`: by stream and seq of the plan, the seq in the copy. */
static void append(mm_plan *copy, const mm_node *node, int32_t *const moved[MM_STREAM_COUNT]) {
    mm_node *added = &copy->nodes[copy->n_nodes++];
    *added = *node;
    added->seq = copy->stream_nodes[node->stream]++;
    moved[node->stream][node->seq] = added->seq;
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (node->wait[s] >= 0) added->wait[s] = moved[s][node->wait[s]];
}

/* Appends a measure behind all nodes so far. Nodes behind it wait for it through the step that follows. */
static void append_measure(mm_plan *copy, int32_t segment) {
    mm_node *added = &copy->nodes[copy->n_nodes++];
    const mm_stream_id stream = mm_node_stream(MM_NODE_MEASURE);
    *added = (mm_node){.kind = MM_NODE_MEASURE,
                       .stream = stream,
                       .seq = copy->stream_nodes[stream]++,
                       .step = -1,
                       .first_code = -1,
                       .tensor = copy->segments[segment].tensor,
                       .src = segment,
                       .dst = -1,
                       .work = -1,
                       .stage = -1};
    for (int s = 0; s < MM_STREAM_COUNT; s++) added->wait[s] = s == (int)stream ? -1 : copy->stream_nodes[s] - 1;
}

static void fill(const mm_plan *plan, const mm_measure_at *at, int n, mm_plan *copy,
                 int32_t *const moved[MM_STREAM_COUNT]) {
    for (int i = 0; i <= plan->n_nodes; i++) {
        int measures = 0;
        for (int m = 0; m < n; m++) {
            if (at[m].before != i) continue;
            append_measure(copy, at[m].segment);
            measures++;
        }
        if (i == plan->n_nodes) break;
        append(copy, &plan->nodes[i], moved);
        if (measures > 0) mm_plan_wait(copy, copy->n_nodes - 1, copy->n_nodes - 2);
    }
}

mm_status mm_plan_add_measures(const mm_plan *plan, const mm_measure_at *at, int n, mm_plan **plan_out) {
    int32_t *moved[MM_STREAM_COUNT];
    mm_plan *copy = copy_without_nodes(plan);
    int32_t *all = malloc(((size_t)plan->n_nodes + 1) * sizeof *all);
    if (copy) copy->nodes = malloc(((size_t)plan->n_nodes + (size_t)n + 1) * sizeof *copy->nodes);
    if (!copy || !copy->nodes || !all) {
        mm_plan_destroy(copy);
        free(all);
        return mm_fail(MM_ERR_NOMEM, "out of memory for a plan of %d nodes", plan->n_nodes + n);
    }
    int32_t *next = all;
    for (int s = 0; s < MM_STREAM_COUNT; next += plan->stream_nodes[s++]) moved[s] = next;
    fill(plan, at, n, copy, moved);
    free(all);
    mm_status status = mm_plan_finish(copy);
    if (status == MM_OK)
        *plan_out = copy;
    else
        mm_plan_destroy(copy);
    return status;
}

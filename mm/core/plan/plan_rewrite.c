/* SPDX-License-Identifier: MIT */
#include "mm/core/plan/plan_rewrite.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"

/* A copy of n items, with room for `more`. */
static void *copy_of(const void *from, int n, int more, size_t size) {
    void *copy = malloc(((size_t)n + (size_t)more) * size + 1);
    return copy && n > 0 ? memcpy(copy, from, (size_t)n * size) : copy;
}

/* A copy without nodes. NULL: out of memory. */
static mm_plan *copy_without_nodes(const mm_plan *plan, int more_segments) {
    mm_plan *copy = malloc(sizeof *copy);
    if (!copy) return NULL;
    *copy = *plan;
    copy->nodes = NULL;
    copy->n_nodes = 0;
    memset(copy->stream_nodes, 0, sizeof copy->stream_nodes);
    copy->policy = strdup(plan->policy);
    copy->segments = copy_of(plan->segments, plan->n_segments, more_segments, sizeof *plan->segments);
    copy->bindings = copy_of(plan->bindings, plan->n_bindings, 0, sizeof *plan->bindings);
    copy->alias = copy_of(plan->alias, mm_graph_tensors(plan->graph), 0, sizeof *plan->alias);
    if (copy->policy && copy->segments && copy->bindings && copy->alias) return copy;
    mm_plan_destroy(copy);
    return NULL;
}

mm_status mm_plan_rewrite_begin(const mm_plan *plan, int more_nodes, int more_segments, mm_plan_rewrite *rewrite_out) {
    mm_plan_rewrite r = {.copy = copy_without_nodes(plan, more_segments),
                         .all_moved = malloc(((size_t)plan->n_nodes + 1) * sizeof *r.all_moved)};
    if (r.copy) r.copy->nodes = malloc(((size_t)plan->n_nodes + (size_t)more_nodes + 1) * sizeof *r.copy->nodes);
    if (!r.copy || !r.copy->nodes || !r.all_moved) {
        mm_plan_destroy(r.copy);
        free(r.all_moved);
        return mm_fail(MM_ERR_NOMEM, "out of memory for a plan of %d nodes", plan->n_nodes + more_nodes);
    }
    int32_t *next = r.all_moved;
    for (int s = 0; s < MM_STREAM_COUNT; next += plan->stream_nodes[s++]) r.moved[s] = next;
    *rewrite_out = r;
    return MM_OK;
}

void mm_plan_rewrite_keep(mm_plan_rewrite *r, const mm_node *node) {
    mm_plan *copy = r->copy;
    mm_node *kept = &copy->nodes[copy->n_nodes++];
    *kept = *node;
    kept->seq = copy->stream_nodes[node->stream]++;
    r->moved[node->stream][node->seq] = kept->seq;
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (node->wait[s] >= 0) kept->wait[s] = r->moved[s][node->wait[s]];
}

int mm_plan_rewrite_add(mm_plan_rewrite *r, mm_node_kind kind, mm_tensor tensor, int32_t src, int32_t dst) {
    mm_plan *copy = r->copy;
    const mm_stream_id stream = mm_node_stream(kind);
    mm_node *added = &copy->nodes[copy->n_nodes];
    *added = (mm_node){.kind = kind,
                       .stream = stream,
                       .seq = copy->stream_nodes[stream]++,
                       .step = -1,
                       .first_code = -1,
                       .tensor = tensor,
                       .src = src,
                       .dst = dst,
                       .work = -1,
                       .stage = -1};
    for (int s = 0; s < MM_STREAM_COUNT; s++) added->wait[s] = -1;
    return copy->n_nodes++;
}

mm_status mm_plan_rewrite_end(mm_plan_rewrite *r, mm_plan **plan_out) {
    free(r->all_moved);
    mm_status status = mm_plan_finish(r->copy);
    if (status == MM_OK)
        *plan_out = r->copy;
    else
        mm_plan_destroy(r->copy);
    return status;
}

/* SPDX-License-Identifier: MIT */
/* Adds measures to a finished plan, for an iteration that samples. */
#include "mm/core/plan/plan_measures.h"

#include "mm/core/plan/plan_rewrite.h"
#include "mm/core/status.h"

/* Appends a measure that waits for all nodes so far. Later nodes wait for it through the step that follows. */
static void append_measure(mm_plan_rewrite *r, int32_t segment) {
    const int node = mm_plan_rewrite_add(r, MM_NODE_MEASURE, r->copy->segments[segment].tensor, segment, -1);
    mm_node *added = &r->copy->nodes[node];
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (s != (int)added->stream) added->wait[s] = r->copy->stream_nodes[s] - 1;
}

mm_status mm_plan_add_measures(const mm_plan *plan, const mm_measure_at *at, int n, mm_plan **plan_out) {
    mm_plan_rewrite r;
    MM_TRY(mm_plan_rewrite_begin(plan, n, 0, &r));
    for (int i = 0; i <= plan->n_nodes; i++) {
        int measures = 0;
        for (int m = 0; m < n; m++) {
            if (at[m].before != i) continue;
            append_measure(&r, at[m].segment);
            measures++;
        }
        if (i == plan->n_nodes) break;
        mm_plan_rewrite_keep(&r, &plan->nodes[i]);
        if (measures > 0) mm_plan_wait(r.copy, r.copy->n_nodes - 1, r.copy->n_nodes - 2);
    }
    return mm_plan_rewrite_end(&r, plan_out);
}

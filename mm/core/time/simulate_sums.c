/* SPDX-License-Identifier: MIT */
/* The sums of all-reduces in a simulation: when they begin, and who waits for them. */
#include <stdlib.h>

#include "mm/core/status.h"
#include "mm/core/time/simulator.h"

bool mm_sim_waits_for_all(const mm_simulator *s, const mm_piece *piece) {
    const mm_node *n = &s->plan->nodes[piece->node];
    return s->outs_left > 0 && s->facts->sum_at == MM_SUM_AT_DEVICE && n->kind == MM_NODE_IN &&
           mm_node_allreduces(s->plan, n);
}

mm_status mm_sim_find_sums(mm_simulator *s) {
    if (s->facts->ranks <= 1) return MM_OK;
    for (int i = 0; i < s->program->n; i++) {
        const mm_node *n = &s->plan->nodes[s->program->pieces[i].node];
        s->outs_left += n->kind == MM_NODE_OUT && mm_node_allreduces(s->plan, n);
    }
    s->summed_ns = calloc((size_t)s->program->count[MM_STREAM_OUT] + 1, sizeof *s->summed_ns);
    return s->summed_ns ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a simulation");
}

/* Whether the step is an update that needs sums in place. It waits for all sums that have begun. */
static bool updates_with_sums(const mm_simulator *s, int node) {
    for (int g = 0; g < s->begun; g++)
        if (s->groups.groups[g].update == node) return true;
    return false;
}

int64_t mm_sim_work_begins_ns(const mm_simulator *s, const mm_piece *piece) {
    const mm_node *n = &s->plan->nodes[piece->node];
    if (updates_with_sums(s, piece->node)) return s->sums_ns > s->now ? s->sums_ns : s->now;
    if (!s->summed_ns || n->kind != MM_NODE_IN || !mm_node_allreduces(s->plan, n)) return s->now;
    const int64_t there = s->facts->sum_at == MM_SUM_AT_DEVICE ? s->sums_ns : s->summed_ns[piece->wait[MM_STREAM_OUT]];
    return there > s->now ? there : s->now;
}

/* Called when a piece has ended. If the piece brought a part of an all-reduced tensor to the host, the sum of that part
 * begins as soon as earlier sums have ended; under MM_SUM_AT_DEVICE, all sums begin when the last tensor is on the
 * host. */
static void begin_sum(mm_simulator *s, const mm_piece *piece) {
    const mm_node *n = &s->plan->nodes[piece->node];
    if (!s->summed_ns || n->kind != MM_NODE_OUT || !mm_node_allreduces(s->plan, n)) return;
    const bool one_by_one = s->facts->sum_at == MM_SUM_AT_DEVICE;
    s->outs_left--;
    s->sums_ns =
        (one_by_one || s->sums_ns > s->now ? s->sums_ns : s->now) + mm_facts_sum_ns(s->facts, piece->stored_bytes);
    s->summed_ns[piece->seq] = s->sums_ns;
    if (one_by_one && s->outs_left == 0) s->sums_ns += s->now; /* until now, sums_ns was how long all sums take */
}

/* Called when a node has ended: begins the all-reduces in place that may begin after this node. */
static void begin_sums_in_place(mm_simulator *s, int node) {
    for (; s->begun < s->groups.n && s->groups.groups[s->begun].after == node; s->begun++) {
        mm_period *span = &s->spans[s->program->n + s->begun];
        const int64_t ns = mm_facts_sum_ns(s->facts, mm_allreduce_group_bytes(s->plan, &s->groups, s->begun));
        span->start_ns = s->sums_ns > s->now ? s->sums_ns : s->now;
        s->sums_ns = span->end_ns = span->start_ns + (s->facts->ranks > 1 ? ns : 0);
    }
}

void mm_sim_begin_sums(mm_simulator *s, const mm_piece *piece) {
    begin_sum(s, piece);
    begin_sums_in_place(s, piece->node);
}

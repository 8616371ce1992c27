/* SPDX-License-Identifier: MIT */
#include "mm/core/time/node_time.h"

#include "mm/core/plan/plan_codes.h"
#include "mm/core/plan/program.h"

int64_t mm_add_ns(int64_t ns, double more) { return more < (double)MM_NS_MOST ? ns + (int64_t)more : MM_NS_MOST + 1; }

int64_t mm_rate_ns(int64_t rate, int64_t bytes) {
    if (rate <= 0) return 0;
    return mm_add_ns(0, (double)bytes / (double)rate * 1e9);
}

int64_t mm_simulate_step_ns(const mm_graph_facts *facts, const mm_node *n) {
    int64_t ns = facts->variants[facts->variant_first[n->step] + n->variant].ns;
    return n->given ? ns - ns / 3 : ns;
}

int64_t mm_plan_steps_ns(const mm_plan *plan, const mm_graph_facts *facts) {
    int64_t ns = 0;
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_STEP)
            ns = mm_add_ns(ns, (double)mm_simulate_step_ns(facts, &plan->nodes[i]));
    return ns;
}

/* Bytes that a step on the host reads and writes. */
static int64_t host_bytes(const mm_graph *graph, const mm_step_info *step) {
    int64_t bytes = 0;
    for (int u = 0; u < step->n_uses; u++)
        bytes += (step->uses[u].access == MM_MODIFY ? 2 : 1) * mm_graph_tensor(graph, step->uses[u].tensor)->bytes;
    return bytes;
}

int64_t mm_disk_ns(const mm_graph_facts *facts, int64_t rate, int64_t bytes) {
    return mm_add_ns(mm_rate_ns(rate > 0 ? rate : MM_DISK_BYTES_PER_S, bytes), (double)facts->disk_ns);
}

int64_t mm_simulate_node_ns(const mm_plan *plan, const mm_graph_facts *facts, const mm_node *n) {
    const mm_node_cost cost = mm_node_table[n->kind].cost;
    if (mm_node_on_host(n)) {
        const int64_t rate = facts->host_bytes_per_s > 0 ? facts->host_bytes_per_s : MM_HOST_BYTES_PER_S;
        return mm_rate_ns(rate, host_bytes(plan->graph, mm_graph_step(plan->graph, n->step)));
    }
    const mm_segment *stored = cost == MM_COST_STEP ? NULL : &plan->segments[mm_program_stored(n)];
    switch (cost) {
    case MM_COST_STEP:
        return mm_simulate_step_ns(facts, n) + mm_node_codes_ns(plan, facts, n, -1);
    case MM_COST_ENCODE:
        return mm_facts_code(facts, stored->codec, n->tensor)->encode_ns;
    case MM_COST_DECODE:
        return mm_facts_code(facts, stored->codec, n->tensor)->decode_ns;
    case MM_COST_LINK_OUT:
        return mm_rate_ns(facts->out_bytes_per_s, stored->bytes);
    case MM_COST_LINK_IN:
        return mm_rate_ns(facts->in_bytes_per_s, stored->bytes);
    case MM_COST_DISK_OUT:
        return mm_disk_ns(facts, facts->store_bytes_per_s, stored->bytes);
    case MM_COST_DISK_IN:
        return mm_disk_ns(facts, facts->load_bytes_per_s, stored->bytes);
    case MM_COST_MEMORY:
        return mm_rate_ns(facts->memory_bytes_per_s, stored->bytes);
    }
    return -1; /* an unknown cost: refused as out of range */
}

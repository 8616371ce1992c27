/* SPDX-License-Identifier: MIT */
#include "mm/core/time/untimed.h"

#include "mm/core/plan/program.h"

/* Whether the facts have a time for any step of the plan. If not, a simulated iteration would take no time. */
static bool has_step_times(const mm_plan *plan, const mm_graph_facts *facts) {
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (n->kind == MM_NODE_STEP && facts->variants[facts->variant_first[n->step] + n->variant].ns > 0) return true;
    }
    return false;
}

static const char *untimed_of(const mm_plan *plan, const mm_graph_facts *facts, const mm_node *n) {
    const mm_node_cost cost = mm_node_table[n->kind].cost;
    if (cost == MM_COST_STEP) return NULL;
    const int codec = plan->segments[mm_program_stored(n)].codec;
    switch (cost) {
    case MM_COST_ENCODE:
        return mm_facts_code(facts, codec, n->tensor)->encode_ns == 0 ? facts->codecs[codec].spec : NULL;
    case MM_COST_DECODE:
        return mm_facts_code(facts, codec, n->tensor)->decode_ns == 0 ? facts->codecs[codec].spec : NULL;
    case MM_COST_LINK_OUT:
        return facts->out_bytes_per_s == 0 ? "the link" : NULL;
    case MM_COST_LINK_IN:
        return facts->in_bytes_per_s == 0 ? "the link" : NULL;
    case MM_COST_MEMORY:
        return facts->memory_bytes_per_s == 0 ? "the memory" : NULL;
    case MM_COST_DISK_OUT:
        return facts->store_bytes_per_s == 0 ? "the disk" : NULL;
    case MM_COST_DISK_IN:
        return facts->load_bytes_per_s == 0 ? "the disk" : NULL;
    case MM_COST_STEP:
        break;
    }
    return NULL;
}

const char *mm_plan_untimed(const mm_plan *plan, const mm_graph_facts *facts) {
    if (!has_step_times(plan, facts)) return "the steps";
    for (int i = 0; i < plan->n_nodes; i++) {
        const char *what = untimed_of(plan, facts, &plan->nodes[i]);
        if (what) return what;
    }
    return NULL;
}

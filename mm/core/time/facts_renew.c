/* SPDX-License-Identifier: MIT */
#include "mm/core/time/facts_renew.h"

#define RATE_MOST 1e15 /* bytes/s: beyond any link, and within what files of facts may have */

/* The updated time: ns, multiplied by measured over simulated; if ns was not known, the measured time. */
static int64_t scaled(int64_t ns, int64_t simulated_ns, int64_t measured_ns) {
    if (measured_ns <= 0) return ns;
    double renewed = (double)measured_ns;
    if (ns > 0 && simulated_ns > 0) renewed *= (double)ns / (double)simulated_ns;
    return renewed < 1 ? 1 : renewed > (double)MM_NS_MOST ? MM_NS_MOST : (int64_t)renewed;
}

static void renew_step(const mm_graph_facts *planned, const mm_node *node, int64_t simulated_ns, int64_t measured_ns,
                       mm_graph_facts *facts) {
    const int32_t id = planned->variants[planned->variant_first[node->step] + node->variant].id;
    for (int v = facts->variant_first[node->step]; v < facts->variant_first[node->step + 1]; v++)
        if (facts->variants[v].id == id)
            facts->variants[v].ns = scaled(facts->variants[v].ns, simulated_ns, measured_ns);
}

/* Whether a part of the code goes over the link while it is encoded. If so, the measured time is not that of the codec
 * alone. */
static bool is_moved(const mm_plan *plan, const mm_segment *code) {
    const mm_segment *pool = code->pool >= 0 ? &plan->segments[code->pool] : NULL;
    return code->memory == MM_MEM_PINNED || (pool && (pool->memory == MM_MEM_PINNED || pool->spill >= 0));
}

/* Sums over the copies of one direction. */
typedef struct copies {
    double bytes, issue_ns, simulated_ns, measured_ns;
} copies;

/* Of the time `ns` of copies, the time of the bytes alone, without issue_ns; at least a tenth of `ns` (chosen). */
static double of_bytes(const copies *c, double ns) {
    const double rest = ns - c->issue_ns;
    return rest > 0.1 * ns ? rest : 0.1 * ns;
}

/* Multiplies a direction's rates by the simulated time of its bytes over the measured time. So copies that the other
 * direction slowed down do not lower the rate: the simulation includes that delay. If the simulated time is next to
 * nothing, the rate becomes bytes over measured time. */
static void renew_rates(const copies *c, int64_t *alone, int64_t *both) {
    if (c->measured_ns <= 0) return;
    const double measured = of_bytes(c, c->measured_ns), simulated = c->simulated_ns - c->issue_ns;
    const bool compares = *alone > 0 && simulated > 0.1 * c->simulated_ns;
    double rate = compares ? (double)*alone * simulated / measured : c->bytes * 1e9 / measured;
    rate = rate < 1 ? 1 : rate > RATE_MOST ? RATE_MOST : rate;
    if (*both > 0 && *alone > 0) *both = 1 + (int64_t)((double)*both * rate / (double)*alone);
    *alone = (int64_t)rate;
}

void mm_facts_renew(const mm_program *program, const mm_graph_facts *planned, const int64_t *simulated_ns,
                    const int64_t *measured_ns, mm_graph_facts *facts) {
    const mm_plan *plan = program->plan;
    copies out = {0}, in = {0};
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        const mm_segment *stored = mm_node_runs_step(node) ? NULL : &plan->segments[mm_program_stored(node)];
        const mm_node_cost cost = mm_node_table[node->kind].cost;
        mm_code_facts *code = NULL;
        if (measured_ns[i] <= 0) continue;
        if ((cost == MM_COST_ENCODE || cost == MM_COST_DECODE) && !is_moved(plan, stored))
            code = &facts->codes[(size_t)stored->codec * (size_t)facts->n_tensors + (size_t)node->tensor];
        switch (cost) {
        case MM_COST_STEP:
            if (node->kind == MM_NODE_STEP) renew_step(planned, node, simulated_ns[i], measured_ns[i], facts);
            break;
        case MM_COST_ENCODE:
            if (code) code->encode_ns = scaled(code->encode_ns, simulated_ns[i], measured_ns[i]);
            break;
        case MM_COST_DECODE:
            if (code) code->decode_ns = scaled(code->decode_ns, simulated_ns[i], measured_ns[i]);
            break;
        case MM_COST_LINK_OUT:
        case MM_COST_LINK_IN: {
            copies *way = cost == MM_COST_LINK_OUT ? &out : &in;
            way->bytes += (double)stored->bytes;
            way->issue_ns += (double)mm_program_pieces(program, i) * (double)planned->issue_ns;
            way->simulated_ns += (double)simulated_ns[i];
            way->measured_ns += (double)measured_ns[i];
            break;
        }
        case MM_COST_MEMORY: /* the rates of the memory and of the disk stay */
        case MM_COST_DISK_OUT:
        case MM_COST_DISK_IN:
            break;
        }
    }
    renew_rates(&out, &facts->out_bytes_per_s, &facts->out_both_bytes_per_s);
    renew_rates(&in, &facts->in_bytes_per_s, &facts->in_both_bytes_per_s);
}

/* SPDX-License-Identifier: MIT */
/* Facts from the first iterations of a run. */
#include "mm/device/host/host_pool.h"
#include "policies/schedule/nominal.h"
#include "tools/facts/machine_work.h"
#include "tools/host_rates/host_rates.h"

/* Bytes a second of all measured steps that compute no products; 0: there are none. */
static double memory_rate(const mm_measured *m) {
    const mm_graph *graph = m->plan->graph;
    double bytes = 0, ns = 0;
    for (int i = 0; i < m->plan->n_nodes; i++) {
        const mm_node *node = &m->plan->nodes[i];
        if (node->kind != MM_NODE_STEP) continue;
        const mm_step_info *step = mm_graph_step(graph, node->step);
        if (mm_graph_layer(graph, step->layer)->properties.cost == MM_LAYER_EXPENSIVE) continue;
        bytes += machine_traffic_bytes(graph, step);
        ns += (double)mm_execution_ns(m->execution, i);
    }
    return ns > 0 ? bytes * 1e9 / ns : 0;
}

/* Gives facts without times nominal ones, scaled to the memory's rate. The link is a copy in memory, which reads and
 * writes each byte. A copy or an encode keeps one CPU busy, which the steps lack. */
static void begin(const mm_measured *m, mm_graph_facts *facts) {
    const double rate = memory_rate(m);
    if (rate >= 1) facts->memory_bytes_per_s = (int64_t)rate;
    if (rate >= 2 && facts->out_bytes_per_s == 0) facts->out_bytes_per_s = (int64_t)(rate / 2);
    if (rate >= 2 && facts->in_bytes_per_s == 0) facts->in_bytes_per_s = (int64_t)(rate / 2);
    mm_nominal_times(m->plan->graph, facts);
    facts->contention_permille = facts->link_contention_permille = 1000 / mm_host_cpus();
}

mm_status host_rates_learn(void *ctx, const mm_measured *m, mm_graph_facts *facts) {
    (void)ctx;
    mm_copy_line copies[2] = {{0}};
    int64_t ns = 0;
    for (int i = 0; i < m->plan->n_nodes; i++) ns += mm_execution_ns(m->execution, i);
    if (ns == 0) return mm_fail(MM_ERR_ORDER, "no iteration of %s was measured", mm_graph_name(m->plan->graph));
    if (mm_nominal_is_due(facts)) begin(m, facts);
    mm_measured_steps(m, 1, false, facts);
    mm_measured_operations(m, 1, facts, copies);
    mm_measured_link(copies, facts);
    mm_facts_drop_impossible(facts);
    return MM_OK;
}

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

/* A copy, an encode or a decode keeps one CPU busy. Where the steps' threads take all CPUs, it takes turns with one of
 * them, and the steps, of whose CPUs one is shared, lose that share. Two threads on two CPUs were measured at 551 and
 * 443 permille beside copies (convolutions, ReLU), copies beside them at 1000 ('mm device --facts'). */
static void share_cpus(int threads, mm_graph_facts *facts) {
    enum { TURNS = 1000 };
    const int cpus = mm_host_cpus();
    mm_contention shared = {.known = true};
    for (mm_work of = 0; of < MM_WORK_KINDS; of++)
        for (mm_work beside = 0; beside < MM_WORK_KINDS; beside++) {
            const bool is_step = of <= MM_WORK_CHEAP;
            const int busy = is_step || beside <= MM_WORK_CHEAP ? threads + 1 : 2;
            if (mm_work_can_run_beside(of, beside) && busy > cpus)
                shared.permille[of][beside] = is_step ? TURNS / cpus : TURNS;
        }
    facts->contention = shared;
}

/* Gives facts without times nominal ones, scaled to the memory's rate. The link is a copy in memory, which reads and
 * writes each byte. */
static void begin(const mm_measured *m, int threads, mm_graph_facts *facts) {
    const double rate = memory_rate(m);
    if (rate >= 1) facts->memory_bytes_per_s = (int64_t)rate;
    if (rate >= 2 && facts->out_bytes_per_s == 0) facts->out_bytes_per_s = (int64_t)(rate / 2);
    if (rate >= 2 && facts->in_bytes_per_s == 0) facts->in_bytes_per_s = (int64_t)(rate / 2);
    mm_nominal_times(m->plan->graph, facts);
    share_cpus(threads, facts);
}

mm_status host_rates_learn(void *ctx, const mm_measured *m, mm_graph_facts *facts) {
    const int *threads = ctx;
    mm_copy_line copies[2] = {{0}};
    int64_t ns = 0;
    for (int i = 0; i < m->plan->n_nodes; i++) ns += mm_execution_ns(m->execution, i);
    if (ns == 0) return mm_fail(MM_ERR_ORDER, "no iteration of %s was measured", mm_graph_name(m->plan->graph));
    if (mm_nominal_is_due(facts)) begin(m, *threads, facts);
    mm_measured_steps(m, 1, false, facts);
    mm_measured_operations(m, 1, facts, copies);
    mm_measured_link(copies, facts);
    mm_facts_drop_impossible(facts);
    return MM_OK;
}

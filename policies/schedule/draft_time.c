/* SPDX-License-Identifier: MIT */
#include "policies/schedule/draft_time.h"

#include "mm/core/status.h"
#include "mm/core/time/simulate.h"

double mm_busiest_ns(const double busy[MM_STREAM_COUNT], const mm_graph_facts *facts) {
    double most = 0;
    const struct {
        mm_stream_id a, b;
        int permille;
    } beside[] = {{MM_STREAM_ENCODE, MM_STREAM_ENCODE, mm_facts_step_contention(facts, MM_WORK_ENCODE)},
                  {MM_STREAM_DECODE, MM_STREAM_DECODE, mm_facts_step_contention(facts, MM_WORK_DECODE)},
                  {MM_STREAM_OUT, MM_STREAM_IN, mm_facts_step_contention(facts, MM_WORK_LINK)}};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        double longer = busy[beside[i].a] > busy[beside[i].b] ? busy[beside[i].a] : busy[beside[i].b];
        double slowed = busy[MM_STREAM_COMPUTE] + longer * beside[i].permille / (1000.0 + beside[i].permille);
        if (longer > most) most = longer;
        if (slowed > most) most = slowed;
    }
    return most;
}

static double busiest_ns(const mm_plan *plan, const mm_graph_facts *facts) {
    double busy[MM_STREAM_COUNT] = {0};
    for (int i = 0; i < plan->n_nodes; i++)
        busy[plan->nodes[i].stream] += (double)mm_simulate_node_ns(plan, facts, &plan->nodes[i]);
    return mm_busiest_ns(busy, facts);
}

/* A lower bound that ignores slowdowns: if work on one stream does not slow down another's, the waits that placement
 * adds cannot make any node end earlier. */
static mm_status unhindered_ns(const mm_plan *plan, const mm_graph_facts *facts, int64_t *ns_out) {
    mm_graph_facts unhindered = *facts;
    unhindered.contention_permille = unhindered.link_contention_permille = 0;
    unhindered.contention.known = false;
    unhindered.out_both_bytes_per_s = unhindered.in_both_bytes_per_s = 0;
    unhindered.alloc_ns = unhindered.far_ps_per_byte = 0;
    return mm_simulated_time(plan, &unhindered, ns_out);
}

int64_t mm_ns_at_least(double ns, int n_nodes) {
    /* Error of the simulator: it rounds ns at the end of each piece (at most 8 pieces of a node), and speeds to 1e-6.
     * The factors 16 and 4 are chosen above that. */
    const double rounding = 16.0 * n_nodes + ns * 4e-6;
    return ns > rounding ? (int64_t)(ns - rounding) : 0;
}

mm_status mm_draft_time(const mm_plan *plan, const mm_graph_facts *facts, int64_t *ns_out) {
    int64_t unhindered;
    MM_TRY(unhindered_ns(plan, facts, &unhindered));
    double most = busiest_ns(plan, facts);
    if (most < (double)unhindered) most = (double)unhindered;
    *ns_out = mm_ns_at_least(most, plan->n_nodes);
    return MM_OK;
}

mm_status mm_simulated_time(const mm_plan *plan, const mm_graph_facts *facts, int64_t *ns_out) {
    mm_simulation simulation;
    MM_TRY(mm_simulate(plan, facts, &simulation));
    *ns_out = simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    return MM_OK;
}

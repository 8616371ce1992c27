/* SPDX-License-Identifier: MIT */
/* Makes facts from times that a manager measured. */
#include "mm/manager/facts_measured.h"

#include <string.h>

#include "mm/manager/install.h"
#include "mm/manager/manager.h"
#include "mm/manager/observe.h"
#include "mm/manager/policy_thread.h"

mm_status mm_measured_get(mm_manager *m, const mm_graph *graph, mm_measured *measured_out) {
    MM_TRY(mm_manager_drain(m, "mm_measured_get"));
    const mm_ready *r = mm_manager_find(m, graph);
    if (!r || !m->options.measure_times)
        return mm_fail(MM_ERR_ORDER, "mm_measured_get: no graph that was run with measure_times");
    *measured_out = (mm_measured){
        .plan = r->prepared->planned.plan, .facts = r->prepared->planned.facts, .execution = r->execution};
    return MM_OK;
}

void mm_measured_steps(const mm_measured *m, double part, bool only_unknown, mm_graph_facts *facts) {
    for (int i = 0; i < m->plan->n_nodes; i++) {
        const mm_node *node = &m->plan->nodes[i];
        if (node->kind != MM_NODE_STEP) continue;
        int32_t id = m->facts->variants[m->facts->variant_first[node->step] + node->variant].id;
        for (int v = facts->variant_first[node->step]; v < facts->variant_first[node->step + 1]; v++)
            if (facts->variants[v].id == id && !(only_unknown && facts->variants[v].ns > 0))
                facts->variants[v].ns = (int64_t)((double)mm_execution_ns(m->execution, i) * part);
    }
}

static mm_code_facts *code_of(const mm_measured *m, const mm_node *node, mm_graph_facts *facts) {
    int codec = mm_facts_codec(facts, m->facts->codecs[m->plan->segments[mm_program_stored(node)].codec].spec);
    return codec < 0 ? NULL : &facts->codes[(size_t)codec * (size_t)facts->n_tensors + (size_t)node->tensor];
}

/* Sets the measured size of a code's body (its part of variable size), and a reserve for it. The reserve is an eighth
 * larger, because the size changes while a network learns; the eighth is chosen. A reserve that the codec's spec sets
 * stays. */
static void set_body(const mm_code_size *size, mm_code_facts *code) {
    const int64_t more = size->body_bytes + size->body_bytes / 8 + 1;
    if (code->body_bound_bytes == 0) return;
    code->body_typical_bytes = size->body_bytes;
    code->body_is_measured = true;
    if (!strstr(size->codec, "reserve="))
        code->body_reserve_bytes = more < code->body_bound_bytes ? more : code->body_bound_bytes;
}

/* Takes over the encode or decode time of a code. The time of a code that has bytes in pinned memory includes the time
 * of the link. So it is used only if no other run has given a time. */
static void set_ns(int64_t ns, const mm_code_size *size, int64_t *ns_out) {
    if (size->spilled_bytes == 0 || *ns_out == 0) *ns_out = ns;
}

/* Adds a node's copies to the line: each of its pieces is one copy. */
static void add_copy(const mm_measured *m, int index, int64_t ns, mm_copy_line *line) {
    double n = mm_execution_pieces(m->execution, index);
    double bytes = (double)m->plan->segments[m->plan->nodes[index].dst].bytes;
    if (ns <= 0) return;
    line->n += n;
    line->bytes += bytes;
    line->ns += (double)ns;
    line->bytes_bytes += bytes * bytes / n;
    line->bytes_ns += bytes * (double)ns / n;
}

void mm_measured_operations(const mm_measured *m, double part, mm_graph_facts *facts, mm_copy_line copies[2]) {
    for (int i = 0; i < m->plan->n_nodes; i++) {
        const mm_node *node = &m->plan->nodes[i];
        int64_t ns = (int64_t)((double)mm_execution_ns(m->execution, i) * part);
        const mm_node_cost cost = mm_node_table[node->kind].cost;
        const bool coded = cost == MM_COST_ENCODE || cost == MM_COST_DECODE;
        mm_code_facts *code = coded ? code_of(m, node, facts) : NULL;
        mm_code_size size = {0};
        if (coded) mm_execution_code(m->execution, i, &size);
        if (coded && ns == 0 && size.body_bytes == 0) code = NULL; /* not timed: all iterations have sampled */
        switch (cost) {
        case MM_COST_STEP:
        case MM_COST_MEMORY: /* rates that are not measured here */
        case MM_COST_DISK_OUT:
        case MM_COST_DISK_IN:
            break;
        case MM_COST_ENCODE:
            if (code) set_ns(ns, &size, &code->encode_ns);
            if (code) set_body(&size, code);
            break;
        case MM_COST_DECODE:
            if (code) set_ns(ns, &size, &code->decode_ns);
            break;
        case MM_COST_LINK_OUT:
            add_copy(m, i, ns, &copies[1]);
            break;
        case MM_COST_LINK_IN:
            add_copy(m, i, ns, &copies[0]);
            break;
        }
    }
}

/* The constant (ns of a copy of 0 bytes) of the line fitted to the copies of both directions; 0 if all have about the
 * same size. */
static double copy_constant(const mm_copy_line copies[2]) {
    double up = 0, down = 0;
    for (int way = 0; way < 2; way++) {
        const mm_copy_line *l = &copies[way];
        double spread = l->n * l->bytes_bytes - l->bytes * l->bytes;
        if (l->n < 2 || spread <= 1e-9 * l->n * l->bytes_bytes) continue;
        up += l->ns * l->bytes_bytes - l->bytes * l->bytes_ns;
        down += spread;
    }
    return down > 0 && up > 0 ? up / down : 0;
}

static void take_rate(const mm_copy_line *line, double constant, int64_t *bytes_per_s) {
    double ns = line->ns - line->n * constant;
    if (line->n == 0) return;
    if (ns <= 0.1 * line->ns) ns = 0.1 * line->ns; /* the copies are too small for the fit; the tenth is chosen */
    *bytes_per_s = (int64_t)(line->bytes * 1e9 / ns);
}

void mm_measured_link(const mm_copy_line copies[2], mm_graph_facts *facts) {
    double constant = copy_constant(copies);
    if (copies[0].n + copies[1].n == 0) return;
    facts->issue_ns = constant < MM_ALLOC_NS_MOST ? (int64_t)constant : MM_ALLOC_NS_MOST;
    take_rate(&copies[0], constant, &facts->in_bytes_per_s);
    take_rate(&copies[1], constant, &facts->out_bytes_per_s);
}

/* ---------------------------------------------------------------- a manager's facts */

/* Takes over the sizes that codes' bodies had last. */
static void take_bodies(const mm_measured *m, mm_graph_facts *facts) {
    for (int i = 0; i < m->plan->n_nodes; i++) {
        const mm_node *node = &m->plan->nodes[i];
        mm_code_size size;
        if (mm_node_table[node->kind].cost != MM_COST_ENCODE) continue;
        mm_code_facts *code = code_of(m, node, facts);
        mm_execution_code(m->execution, i, &size);
        if (code && size.body_bytes > 0) set_body(&size, code);
    }
}

/* Makes facts of an observed graph: what was learned of it. */
static mm_status observed(const mm_manager *m, const mm_ready *r, mm_graph_facts **facts_out) {
    const mm_measured measured = {
        .plan = r->prepared->planned.plan, .facts = r->prepared->planned.facts, .execution = r->execution};
    MM_TRY(mm_observe_facts(m, r, facts_out));
    take_bodies(&measured, *facts_out);
    return MM_OK;
}

static mm_status measured_alone(mm_manager *m, const mm_graph *graph, mm_graph_facts **facts_out) {
    mm_measured measured;
    int64_t ns = 0;
    MM_TRY(mm_measured_get(m, graph, &measured));
    for (int i = 0; i < measured.plan->n_nodes; i++) ns += mm_execution_ns(measured.execution, i);
    if (ns == 0)
        return mm_fail(MM_ERR_ORDER, "mm_facts_save: no iteration of %s was measured under this plan: run at least two",
                       mm_graph_name(graph));
    MM_TRY(mm_plan_set_facts(&m->plans, mm_plan_set_find(&m->plans, graph), facts_out));
    mm_copy_line copies[2] = {{0}};
    mm_measured_steps(&measured, 1, false, *facts_out);
    mm_measured_operations(&measured, 1, *facts_out, copies);
    mm_measured_link(copies, *facts_out);
    return MM_OK;
}

mm_status mm_facts_save(mm_manager *m, const mm_graph *graph, const char *path) {
    mm_graph_facts *facts;
    MM_TRY(mm_manager_drain(m, "mm_facts_save"));
    MM_TRY(mm_check_given(path, "mm_facts_save", "path"));
    const mm_ready *r = mm_manager_find(m, graph);
    const bool is_observed = r && m->observed.permille > 0 && r->prepared->untimed.status == MM_OK;
    MM_TRY(is_observed ? observed(m, r, &facts) : measured_alone(m, graph, &facts));
    mm_facts_drop_impossible(facts); /* a new rate of one direction may contradict old rates with both directions
                                        busy */
    mm_status status = mm_facts_write(facts, graph, path);
    mm_graph_facts_destroy(facts);
    return status;
}

/* ---------------------------------------------------------------- planning again */

/* Teaches the plan set, and the present plan, what was measured of a graph. */
static mm_status teach(mm_manager *m, const mm_graph *graph, mm_measured_learn learn, void *ctx) {
    mm_measured measured;
    mm_graph_facts *all, *own;
    MM_TRY(mm_measured_get(m, graph, &measured));
    mm_prepared *p = mm_plan_set_find(&m->plans, graph);
    MM_TRY(mm_graph_facts_copy(p->planned.facts, &own));
    mm_status status = mm_plan_set_facts(&m->plans, p, &all);
    if (status == MM_OK) {
        status = learn(ctx, &measured, own);
        if (status == MM_OK) status = learn(ctx, &measured, all);
        if (status == MM_OK) status = mm_plan_set_learn(&m->plans, graph, all);
        if (status != MM_OK) mm_graph_facts_destroy(all);
    }
    if (status == MM_OK) {
        const mm_graph_facts before = *p->planned.facts;
        *p->planned.facts = *own;
        *own = before;
    }
    mm_graph_facts_destroy(own);
    return status;
}

mm_status mm_measured_plan_again(mm_manager *m, const mm_graph *const *graphs, int n, mm_measured_learn learn,
                                 void *ctx, mm_again *again_out) {
    mm_policy_thread_interrupt(&m->policy_thread);
    for (int i = 0; i < n; i++) MM_TRY(teach(m, graphs[i], learn, ctx));
    MM_TRY(mm_plan_again(m, again_out));
    if (!again_out->refused) mm_again_note(m, graphs[0], again_out);
    return MM_OK;
}

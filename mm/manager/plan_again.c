/* SPDX-License-Identifier: MIT */
#include "mm/manager/plan_again.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_digest.h"
#include "mm/core/time/simulate.h"
#include "mm/manager/install.h"
#include "mm/manager/states.h"

enum { GAIN_PERMILLE = 20 /* a new plan that is faster by less than this is not worth the change. Chosen */ };

mm_status mm_planned_expect(const mm_planned *planned, int64_t *ns_out, int64_t *node_ns) {
    mm_simulation simulation;
    MM_TRY(mm_program_simulate(planned->program, planned->facts, &simulation));
    *ns_out = simulation.iteration_ns;
    if (node_ns) mm_program_node_times(planned->program, simulation.spans, node_ns);
    mm_simulation_fini(&simulation);
    return MM_OK;
}

/* ---------------------------------------------------------------- whether a draft is taken up */

static bool was_left(const mm_manager *m, const mm_graph *graph, uint64_t digest) {
    for (int i = 0; i < m->observed.n_left; i++)
        if (m->observed.left[i].graph == graph && m->observed.left[i].digest == digest) return true;
    return false;
}

/* Per tensor: spec of the lossy codec that encodes it; NULL: none does. */
static void find_lossy(const mm_planned *p, const char **specs) {
    for (int i = 0; i < p->plan->n_nodes; i++) {
        const mm_node *node = &p->plan->nodes[i];
        if (mm_node_table[node->kind].cost != MM_COST_ENCODE) continue;
        const mm_codec_facts *codec = &p->facts->codecs[p->plan->segments[mm_program_stored(node)].codec];
        if (!codec->lossless) specs[node->tensor] = codec->spec;
    }
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static const mm_node *next_step(const mm_node *node) {
    while (node->kind != MM_NODE_STEP) node++;
    return node;
}

/* Whether each step reads the same tensors bit for bit as they were computed. */
static bool reads_the_same(const mm_planned *a, const mm_planned *b) {
    const mm_graph *graph = a->plan->graph;
    const mm_node *in_a = a->plan->nodes, *in_b = b->plan->nodes;
    for (int s = 0; s < mm_graph_steps(graph); s++, in_a++, in_b++) {
        const mm_step_info *step = mm_graph_step(graph, s);
        in_a = next_step(in_a);
        in_b = next_step(in_b);
        for (int u = 0; u < step->n_uses; u++) {
            const mm_use *use = &step->uses[u];
            if (use->access == MM_WRITE || mm_graph_tensor(graph, use->tensor)->ownership != MM_MANAGED) continue;
            const int32_t from_a = a->plan->bindings[in_a->first_binding + u];
            const int32_t from_b = b->plan->bindings[in_b->first_binding + u];
            if (a->exact[from_a] != b->exact[from_b]) return false;
        }
    }
    return true;
}

/* Whether each lossy map keeps its codec, no other map becomes lossy, and each step reads exactly (bit for bit) what it
 * read exactly before. */
static mm_status loses_the_same(const mm_planned *a, const mm_planned *b, bool *same_out) {
    const int n = mm_graph_tensors(a->plan->graph);
    const char **lossy = calloc(2 * (size_t)n + 1, sizeof *lossy);
    if (!lossy) return mm_fail(MM_ERR_NOMEM, "out of memory for the maps of %s", mm_graph_name(a->plan->graph));
    find_lossy(a, lossy);
    find_lossy(b, lossy + n);
    *same_out = reads_the_same(a, b);
    for (int t = 0; t < n; t++) *same_out &= same_text(lossy[t], lossy[n + t]);
    free(lossy);
    return MM_OK;
}

static bool is_timed(const mm_graph_facts *facts) {
    for (int v = 0; v < facts->variant_first[facts->n_steps]; v++)
        if (facts->variants[v].ns > 0) return true;
    return false;
}

/* The predicted time of all graphs with known times, added up. */
static mm_status expect_all(mm_prepared *const *prepared, int n, int64_t *ns_out) {
    *ns_out = 0;
    for (int i = 0; i < n; i++) {
        int64_t ns;
        if (prepared[i]->untimed.status != MM_OK || !is_timed(prepared[i]->planned.facts)) continue;
        MM_TRY(mm_planned_expect(&prepared[i]->planned, &ns, NULL));
        *ns_out += ns;
    }
    return MM_OK;
}

static mm_status judge(const mm_manager *m, const mm_draft *draft, mm_again *v) {
    const mm_plan_set *set = &m->plans;
    bool changed = false, left = false, loses = false, cut = false;
    MM_TRY(expect_all(set->prepared, set->n, &v->now_ns));
    MM_TRY(expect_all(draft->prepared, draft->n, &v->next_ns));
    for (int i = 0; i < draft->n; i++) {
        const mm_planned *now = &set->prepared[i]->planned, *next = &draft->prepared[i]->planned;
        const uint64_t digest = mm_plan_digest(next->plan);
        if (digest == mm_plan_digest(now->plan)) continue;
        changed = true;
        cut |= next->plan->cut_short;
        left |= was_left(m, set->prepared[i]->graph, digest);
        bool same;
        MM_TRY(loses_the_same(now, next, &same));
        loses |= !same;
    }
    const bool gains = (double)v->next_ns <= (double)v->now_ns * (1 - GAIN_PERMILLE * 1e-3);
    v->refused = !changed ? "the policy makes the same plan again"
                 : cut    ? "the search for another plan was interrupted"
                 : left   ? "the new plan was left before"
                 : loses  ? "with the new plan, other maps would lose bits"
                 : !gains ? "the new plan gains too little"
                          : NULL;
    return MM_OK;
}

/* ---------------------------------------------------------------- planning again */

/* Makes room to record all plans that the draft replaces, before anything changes. */
static mm_status reserve_left(mm_manager *m) {
    const size_t most = (size_t)m->observed.n_left + (size_t)m->plans.n;
    mm_left_plan *left = realloc(m->observed.left, (most + 1) * sizeof *left);
    if (!left) return mm_fail(MM_ERR_NOMEM, "out of memory for plans that are left");
    m->observed.left = left;
    return MM_OK;
}

static void leave(mm_manager *m, const mm_draft *draft) {
    for (int i = 0; i < m->plans.n; i++) {
        const mm_prepared *now = m->plans.prepared[i];
        const uint64_t digest = mm_plan_digest(now->planned.plan);
        if (digest == mm_plan_digest(draft->prepared[i]->planned.plan) || was_left(m, now->graph, digest)) continue;
        m->observed.left[m->observed.n_left++] = (mm_left_plan){now->graph, digest};
    }
}

static mm_status install_draft(mm_manager *m, mm_draft *draft) {
    MM_TRY(reserve_left(m));
    const int before = m->observed.n_left;
    leave(m, draft);
    mm_status status = mm_manager_install(m, draft);
    if (status != MM_OK) m->observed.n_left = before;
    return status;
}

mm_status mm_plan_again(mm_manager *m, mm_again *again_out) {
    const mm_limits limits = mm_manager_limits(m);
    mm_plan_request again = mm_plan_set_again(&m->plans, &limits);
    mm_draft draft;
    mm_again v;
    again.same_variants = again.homes_stay = true;
    MM_TRY(mm_plan_set_draft(&m->plans, &again, &draft, NULL));
    mm_status status = judge(m, &draft, &v);
    if (status == MM_OK && !v.refused) status = install_draft(m, &draft);
    mm_draft_fini(&draft);
    if (status == MM_OK) *again_out = v;
    return status;
}

void mm_again_note(mm_manager *m, const mm_graph *graph, const mm_again *v) {
    pthread_mutex_lock(&m->lock);
    m->replans++;
    pthread_mutex_unlock(&m->lock);
    const int64_t peak = mm_manager_find(m, graph)->prepared->planned.plan->peak_bytes;
    mm_manager_notify(m, MM_EVENT_REPLAN, mm_graph_name(graph), peak, v->next_ns);
}

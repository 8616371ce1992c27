/* SPDX-License-Identifier: MIT */
#include "mm/manager/observe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/log.h"
#include "mm/core/time/facts_renew.h"
#include "mm/device/contract/clock.h"
#include "mm/manager/install.h"
#include "mm/manager/plan_again.h"
#include "mm/manager/sampling.h"
#include "mm/manager/states.h"

enum {
    WINDOW = 10,    /* iterations. Chosen: few, but enough that one or two disturbed iterations do not move the
                       quartiles */
    INTERVAL = 100, /* iterations between two plannings (mm.h) */
    WINDOW_MOST = INTERVAL,
    PERMILLE_MOST = 10000,
};

/* ---------------------------------------------------------------- what is observed */

bool mm_observe_measures(const mm_manager *m, const mm_ready *r) {
    if (m->observed.permille == 0 || !m->options.facts || r->prepared->untimed.status != MM_OK) return false;
    return r->compared_at < 0 || m->iterations - r->compared_at >= INTERVAL;
}

static mm_status check(const mm_manager *m, const mm_observe_options *o) {
    if (o->replan_permille < 0 || o->replan_permille > PERMILLE_MOST)
        return mm_fail(MM_ERR_INVALID,
                       "mm_observe: replan_permille is %d: must be from 1 to %d, or 0 to observe nothing",
                       o->replan_permille, PERMILLE_MOST);
    if (o->window < 0 || o->window > WINDOW_MOST)
        return mm_fail(MM_ERR_INVALID, "mm_observe: window is %d: must be from 1 to %d iterations, or 0 for %d",
                       o->window, WINDOW_MOST, WINDOW);
    if (o->replan_permille == 0) return MM_OK;
    if (!m->options.facts)
        return mm_fail(MM_ERR_INVALID, "mm_observe: there are no measured times to compare iterations with; give "
                                       "mm_options.facts (mm_facts_load)");
    if (!m->device->ops->always_timed && !m->options.measure_times && m->options.trace_bytes == 0)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "mm_observe: events of device %s have no times here; give mm_options.trace_bytes",
                       m->options.device);
    return MM_OK;
}

static void observe_none(mm_manager *m) {
    for (int i = 0; i < m->n_ready; i++) mm_execution_unobserve(m->ready[i].execution);
    m->observed.permille = 0;
}

mm_status mm_observe(mm_manager *m, const mm_observe_options *options) {
    MM_TRY(mm_manager_check_idle(m, "mm_observe"));
    MM_TRY(mm_check_given(options, "mm_observe", "options"));
    MM_TRY(check(m, options));
    MM_TRY(mm_manager_drain(m, "mm_observe"));
    observe_none(m);
    m->observed.window = options->window > 0 ? options->window : WINDOW;
    m->observed.permille = options->replan_permille;
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && m->observed.permille > 0 && i < m->n_ready; i++) {
        m->ready[i].compared_at = -1;
        status = mm_execution_observe(m->ready[i].execution, m->observed.window);
    }
    if (status != MM_OK) observe_none(m);
    return status;
}

/* ---------------------------------------------------------------- what was measured */

/* A graph's window compared with its plan, by the facts that the plan was made with. */
typedef struct comparison {
    int n; /* iterations */
    mm_quartiles measured;
    int64_t planned_ns;
    int64_t *node_ns, *simulated_ns; /* per node */
} comparison;

static void comparison_fini(comparison *c) {
    free(c->node_ns);
    free(c->simulated_ns);
}

static mm_status compare(const mm_ready *r, comparison *c_out) {
    const mm_planned *planned = &r->prepared->planned;
    const size_t nodes = (size_t)planned->plan->n_nodes + 1;
    comparison c = {.node_ns = calloc(nodes, sizeof *c.node_ns), .simulated_ns = calloc(nodes, sizeof *c.simulated_ns)};
    mm_status status = c.node_ns && c.simulated_ns ? MM_OK
                                                   : mm_fail(MM_ERR_NOMEM, "out of memory for the times of %s",
                                                             mm_graph_name(planned->plan->graph));
    if (status == MM_OK) c.n = mm_execution_window_times(r->execution, &c.measured, c.node_ns);
    if (status == MM_OK) status = mm_planned_expect(planned, &c.planned_ns, c.simulated_ns);
    if (status == MM_OK)
        *c_out = c;
    else
        comparison_fini(&c);
    return status;
}

/* Whether at least three quarters of the iterations differ from the plan by more than `permille`, in the same
 * direction. So a single disturbed iteration does not count. Nor does a window during which the machine changed,
 * because some of its times are from before the change. */
static bool differs(const comparison *c, int permille) {
    const double more = (double)c->planned_ns * (1 + permille * 1e-3),
                 less = (double)c->planned_ns * (1 - permille * 1e-3);
    return (double)c->measured.lower_ns > more || (double)c->measured.upper_ns < less;
}

/* Makes facts of the graph in which measured times replace the times that were known before. */
static mm_status renewed(const mm_plan_set *set, const mm_prepared *p, const comparison *c,
                         mm_graph_facts **facts_out) {
    MM_TRY(mm_plan_set_facts(set, p, facts_out));
    mm_facts_renew(p->planned.program, p->planned.facts, c->simulated_ns, c->node_ns, *facts_out);
    return MM_OK;
}

mm_status mm_observe_facts(const mm_manager *m, const mm_ready *r, mm_graph_facts **facts_out) {
    comparison c;
    MM_TRY(compare(r, &c));
    mm_status status = renewed(&m->plans, r->prepared, &c, facts_out);
    comparison_fini(&c);
    return status;
}

/* Gives the renewed facts to the plan set, and also to the present plan: from now on, the plan's predicted time is by
 * these facts, for comparisons with other plans and with the next measurements. */
static mm_status learn(mm_manager *m, mm_ready *r, const comparison *c) {
    mm_prepared *p = r->prepared;
    mm_graph_facts *all, *own;
    MM_TRY(mm_graph_facts_copy(p->planned.facts, &own));
    mm_facts_renew(p->planned.program, p->planned.facts, c->simulated_ns, c->node_ns, own);
    mm_status status = renewed(&m->plans, p, c, &all);
    if (status == MM_OK) {
        status = mm_plan_set_learn(&m->plans, p->graph, all);
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

/* ---------------------------------------------------------------- planning again */

static double ms(int64_t ns) { return (double)ns * 1e-6; }

static void tell(mm_manager *m, const mm_graph *graph, const comparison *c, const mm_again *v) {
    mm_log_send(
        &m->options.log, MM_LOG_WARNING,
        "%s is planned again: an iteration takes %.3g ms, %.3g ms were planned; by what was measured, the plan that "
        "is left takes %.3g ms, the new one %.3g ms",
        mm_graph_name(graph), ms(c->measured.median_ns), ms(c->planned_ns), ms(v->now_ns), ms(v->next_ns));
    mm_again_note(m, graph, v);
    if (m->timeline)
        mm_timeline_add_replan(m->timeline, mm_graph_name(graph),
                               &(mm_timeline_replan){.at_ns = mm_now_ns(),
                                                     .measured_ns = c->measured.median_ns,
                                                     .planned_ns = c->planned_ns,
                                                     .left_ns = v->now_ns,
                                                     .new_ns = v->next_ns});
}

static mm_status plan_again(mm_manager *m, const mm_graph *graph, const comparison *c) {
    mm_again v;
    MM_TRY(mm_plan_again(m, &v));
    if (!v.refused)
        tell(m, graph, c, &v);
    else
        mm_log_send(&m->options.log, MM_LOG_INFO,
                    "%s keeps its plan, though an iteration takes %.3g ms and not %.3g: %s", mm_graph_name(graph),
                    ms(c->measured.median_ns), ms(c->planned_ns), v.refused);
    return MM_OK;
}

/* Finds a graph whose window is full. A graph that is about to sample is skipped until it has sampled, because the
 * iteration may have been rehearsed under the graph's present plan. */
static mm_ready *find_full(const mm_manager *m) {
    for (int i = 0; i < m->n_ready; i++)
        if (mm_execution_window_is_full(m->ready[i].execution) && !mm_sampling_is_due(&m->ready[i]))
            return &m->ready[i];
    return NULL;
}

static bool is_due(const mm_manager *m) {
    return m->observed.planned_at == 0 || m->iterations - m->observed.planned_at >= INTERVAL;
}

static void report_failure(mm_manager *m, const mm_graph *graph) {
    mm_log_send(&m->options.log, MM_LOG_WARNING, "%s could not be planned again, and keeps its plan: %s",
                mm_graph_name(graph), mm_last_error());
}

/* Call it once all iterations have ended. */
static void act(mm_manager *m, const mm_graph *graph, const comparison *c) {
    m->observed.planned_at = m->iterations;
    mm_policy_thread_interrupt(&m->policy_thread);
    mm_status status = learn(m, mm_manager_find(m, graph), c);
    if (status == MM_OK) status = plan_again(m, graph, c);
    if (status != MM_OK) report_failure(m, graph);
}

mm_status mm_observe_look(mm_manager *m) {
    mm_ready *r = m->observed.permille > 0 ? find_full(m) : NULL;
    if (!r) return MM_OK;
    const mm_graph *graph = r->prepared->graph;
    comparison c;
    r->compared_at = m->iterations;
    mm_execution_window_restart(r->execution);
    if (r->prepared->untimed.status != MM_OK || !is_due(m)) return MM_OK;
    if (compare(r, &c) != MM_OK) {
        report_failure(m, graph);
        return MM_OK;
    }
    mm_status drained = MM_OK;
    if (differs(&c, m->observed.permille)) {
        drained = mm_manager_drain(m, "mm_iteration_begin");
        if (drained == MM_OK) act(m, graph, &c);
    }
    comparison_fini(&c);
    return drained;
}

void mm_observe_forget(mm_manager *m, const mm_graph *graph) {
    int kept = 0;
    for (int i = 0; i < m->observed.n_left; i++)
        if (m->observed.left[i].graph != graph) m->observed.left[kept++] = m->observed.left[i];
    m->observed.n_left = kept;
}

void mm_observe_fini(mm_manager *m) { free(m->observed.left); }

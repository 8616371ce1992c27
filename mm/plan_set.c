#include "mm/plan_set.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- one graph */

static void drop(mm_prepared *p) {
    if (!p) return;
    mm_planned_fini(&p->planned);
    free(p);
}

int mm_prepared_unable(const mm_prepared *p) {
    const mm_plan *plan = p->planned.plan;
    for (int i = 0; !p->recomputes && i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_RECOMPUTE) return plan->nodes[i].step;
    return -1;
}

/* Adds measured times to the facts, if there are any of this graph; else keeps in p->untimed why not. */
static mm_status take_facts(const mm_plan_sources *sources, mm_prepared *p) {
    if (!sources->facts) return MM_OK;
    mm_status status = mm_facts_apply(sources->facts, p->graph, MM_FACTS_TIMES, p->planned.facts);
    if (status != MM_ERR_FORMAT) return status;
    mm_failure_keep(&p->untimed, status);
    return MM_OK;
}

/* Makes the plan within the attempt's limits, with the directory's places of persistent tensors. */
static mm_status make_within(const mm_plan_sources *sources, const mm_attempt *a, mm_prepared *p) {
    int64_t *places;
    MM_TRY(mm_directory_places(sources->directory, p->graph, &places));
    mm_limits limits = a->limits;
    limits.places = places;
    mm_status status = mm_planned_make(&p->planned, a->policy, p->graph, &limits);
    free(places);
    return status;
}

static mm_status make_plan(const mm_plan_sources *sources, const mm_attempt *a, mm_prepared *p, int64_t *need_bytes) {
    MM_TRY(mm_planned_init(&p->planned, a->policy, p->graph, sources->device));
    MM_TRY(take_facts(sources, p));
    mm_planned_tell(&p->planned, &sources->rates);
    if (a->least_workspaces) mm_facts_keep_least_workspaces(p->planned.facts);
    MM_TRY(make_within(sources, a, p));
    const mm_plan *plan = p->planned.plan;
    if (plan->peak_bytes > *need_bytes) *need_bytes = plan->peak_bytes;
    MM_TRY(mm_plan_fits(plan, &a->limits));
    if (a->stands_in && mm_prepared_unable(p) >= 0)
        return mm_fail(MM_ERR_INFEASIBLE, "%s recomputes steps of %s, and nobody said how", MM_BRIEF(plan->policy),
                       mm_graph_name(p->graph));
    return MM_OK;
}

static mm_status prepare(const mm_plan_sources *sources, const mm_attempt *a, const mm_newcomer *graph,
                         int64_t *need_bytes, mm_prepared **prepared_out) {
    mm_prepared *p = calloc(1, sizeof *p);
    if (!p) return mm_fail(MM_ERR_NOMEM, "out of memory for the graph %s", mm_graph_name(graph->graph));
    p->graph = graph->graph;
    p->recomputes = graph->recomputes;
    mm_status status = make_plan(sources, a, p, need_bytes);
    if (status == MM_OK)
        *prepared_out = p;
    else
        drop(p);
    return status;
}

/* ---------------------------------------------------------------- drafts */

/* The i-th graph to draft: one of the set's, or the new one. */
static mm_newcomer graph_at(const mm_plan_set *set, const mm_attempt *a, int i) {
    return i < set->n ? (mm_newcomer){set->prepared[i]->graph, set->prepared[i]->recomputes} : *a->added;
}

static mm_status fill(const mm_plan_set *set, const mm_attempt *a, mm_draft *d, mm_refusal *refusal) {
    int n = set->n + (a->added != NULL);
    d->prepared = calloc((size_t)n + 1, sizeof(mm_prepared *));
    if (!d->prepared) return mm_fail(MM_ERR_NOMEM, "out of memory for %d graphs", n);
    if (a->others_stay) d->n = d->kept = set->n;
    for (int i = 0; i < d->kept; i++) d->prepared[i] = set->prepared[i];
    for (; d->n < n; d->n++) {
        const mm_newcomer graph = graph_at(set, a, d->n);
        mm_status status = prepare(&set->sources, a, &graph, &d->need_bytes, &d->prepared[d->n]);
        if (status == MM_ERR_INFEASIBLE && refusal) {
            *refusal = (mm_refusal){graph.graph, graph.recomputes, d->need_bytes, {0}};
            mm_failure_keep(&refusal->failure, status);
        }
        MM_TRY(status);
    }
    return MM_OK;
}

mm_status mm_plan_set_draft(const mm_plan_set *set, const mm_attempt *a, mm_draft *draft_out, mm_refusal *refusal_out) {
    mm_draft d = {.least_workspaces = a->least_workspaces, .stands_in = a->stands_in, .step = a->step};
    MM_TRY(mm_policy_copy(a->policy, &d.policy));
    mm_status status = fill(set, a, &d, refusal_out);
    if (status == MM_OK)
        *draft_out = d;
    else
        mm_draft_fini(&d);
    return status;
}

mm_attempt mm_plan_set_again(const mm_plan_set *set, const mm_limits *limits) {
    return (mm_attempt){.policy = &set->policy_now,
                        .least_workspaces = set->least_workspaces,
                        .stands_in = !mm_policy_equal(&set->policy_now, &set->policy),
                        .limits = *limits};
}

void mm_plan_set_commit(mm_plan_set *set, mm_draft *d) {
    for (int i = d->kept; i < set->n; i++) drop(set->prepared[i]);
    free(set->prepared);
    mm_policy_fini(&set->policy_now);
    set->prepared = d->prepared;
    set->n = d->n;
    set->policy_now = d->policy;
    set->least_workspaces = d->least_workspaces;
    d->prepared = NULL;
    d->policy = (mm_policy){0};
}

void mm_draft_fini(mm_draft *d) {
    for (int i = d->kept; d->prepared && i < d->n; i++) drop(d->prepared[i]);
    free(d->prepared);
    mm_policy_fini(&d->policy);
    *d = (mm_draft){0};
}

/* ---------------------------------------------------------------- the set */

static int index_of(const mm_plan_set *set, const mm_graph *graph) {
    int i = 0;
    while (i < set->n && set->prepared[i]->graph != graph) i++;
    return i;
}

mm_prepared *mm_plan_set_find(const mm_plan_set *set, const mm_graph *graph) {
    int i = index_of(set, graph);
    return i < set->n ? set->prepared[i] : NULL;
}

void mm_plan_set_forget(mm_plan_set *set, const mm_graph *graph) {
    int i = index_of(set, graph);
    if (i == set->n) return;
    drop(set->prepared[i]);
    set->prepared[i] = set->prepared[--set->n];
}

void mm_plan_set_fini(mm_plan_set *set) {
    while (set->n > 0) drop(set->prepared[--set->n]);
    free(set->prepared);
    mm_policy_fini(&set->policy);
    mm_policy_fini(&set->policy_now);
    memset(set, 0, sizeof *set);
}

/* SPDX-License-Identifier: MIT */
#include "mm/planning/plan_set.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_fits.h"
#include "mm/core/text.h"

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

mm_status mm_prepared_refuse(const mm_prepared *p) {
    const mm_plan *plan = p->planned.plan;
    char name[256];
    return mm_fail(MM_ERR_UNSUPPORTED, "policy %s recomputes %s of %s: set a function for that with mm_recompute_set",
                   MM_BRIEF(plan->policy), mm_graph_step_name(plan->graph, mm_prepared_unable(p), name, sizeof name),
                   mm_graph_name(plan->graph));
}

static mm_observed_facts *learned_of(const mm_plan_set *set, const mm_graph *graph) {
    for (int i = 0; i < set->n_learned; i++)
        if (set->learned[i].graph == graph) return &set->learned[i];
    return NULL;
}

/* Adds measured times to the facts, if there are any of this graph; else saves in p->untimed why not. */
static mm_status take_facts(const mm_plan_set *set, mm_prepared *p) {
    const mm_observed_facts *learned = learned_of(set, p->graph);
    mm_status status = MM_OK;
    if (set->sources.facts) status = mm_facts_apply(set->sources.facts, p->graph, MM_FACTS_TIMES, p->planned.facts);
    if (status == MM_OK && learned)
        status = mm_graph_facts_merge(learned->facts, p->graph, MM_FACTS_TIMES, p->planned.facts);
    if (status != MM_ERR_FORMAT) return status;
    mm_failure_save(&p->untimed, status);
    return MM_OK;
}

/* Removes from the facts, for each step, all variants but the one in which the graph's present plan runs the step. */
static mm_status keep_variants(const mm_plan_set *set, mm_prepared *p) {
    const mm_prepared *now = mm_plan_set_find(set, p->graph);
    if (!now) return MM_OK;
    const mm_plan *plan = now->planned.plan;
    const mm_graph_facts *facts = now->planned.facts;
    int32_t *ids = malloc(((size_t)facts->n_steps + 1) * sizeof *ids);
    if (!ids) return mm_fail(MM_ERR_NOMEM, "out of memory for the graph %s", mm_graph_name(p->graph));
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        if (node->kind == MM_NODE_STEP)
            ids[node->step] = facts->variants[facts->variant_first[node->step] + node->variant].id;
    }
    mm_facts_keep_variants(p->planned.facts, ids);
    free(ids);
    return MM_OK;
}

static bool is_for(const mm_ready_made_plan *o, const mm_plan_request *a, const mm_graph *graph) {
    return o->plan && o->device_bytes == a->limits.device_bytes && o->plan->pinned_bytes <= a->limits.pinned_bytes &&
           o->plan->disk_bytes <= a->limits.disk_bytes && strcmp(o->plan->policy, a->policy->spec) == 0 &&
           strcmp(o->graph, mm_graph_name(graph)) == 0 && o->steps == mm_graph_steps(graph) &&
           o->tensors == mm_graph_tensors(graph) && o->tensor_bytes == mm_facts_tensor_bytes(graph);
}

/* Takes an offered plan, if one matches the request. */
static bool take_offered(const mm_plan_set *set, const mm_plan_request *a, const mm_limits *limits, mm_prepared *p) {
    if (a->least_workspaces || a->stands_in || a->same_variants || learned_of(set, p->graph)) return false;
    for (int i = 0; i < set->n_offered; i++)
        if (is_for(&set->offered[i], a, p->graph) &&
            mm_planned_take(&p->planned, &set->offered[i].plan, p->graph, limits) == MM_OK)
            return true;
    return false;
}

/* Whether a plan that recomputes without a function (mm_recompute_set) is refused. */
static bool must_be_able(const mm_plan_set *set, const mm_plan_request *a, const mm_prepared *p) {
    const mm_prepared *now = mm_plan_set_find(set, p->graph);
    if (a->stands_in || a->runs_at_once) return true;
    return now && mm_prepared_unable(now) < 0 && (now->has_begun || !a->added);
}

/* Makes the plan within the request's limits, with these homes of persistent tensors. */
static mm_status make_within(const mm_plan_set *set, const mm_plan_request *a, const mm_homes *homes, mm_prepared *p) {
    mm_limits limits = a->limits;
    mm_place *places;
    MM_TRY(mm_persistent_table_places(set->sources.persistents, homes, p->graph, &limits, &places));
    mm_homes_make_room(&limits);
    limits.no_recompute = !p->recomputes && must_be_able(set, a, p);
    mm_status status = MM_OK;
    if (!take_offered(set, a, &limits, p)) status = mm_planned_make(&p->planned, a->policy, p->graph, &limits);
    free(places);
    return status;
}

static mm_status make_plan(const mm_plan_set *set, const mm_plan_request *a, const mm_homes *homes, mm_prepared *p) {
    const mm_plan_sources *sources = &set->sources;
    MM_TRY(mm_planned_init(&p->planned, a->policy, p->graph, sources->device));
    MM_TRY(take_facts(set, p));
    mm_planned_set_rates(&p->planned, &sources->rates);
    if (a->same_variants)
        MM_TRY(keep_variants(set, p));
    else if (a->least_workspaces)
        mm_facts_keep_least_workspaces(p->planned.facts);
    return make_within(set, a, homes, p);
}

/* Whether the plan can run, and fits. */
static mm_status judge(const mm_plan_set *set, const mm_plan_request *a, const mm_prepared *p) {
    if (mm_prepared_unable(p) < 0 || !must_be_able(set, a, p)) return mm_plan_fits(p->planned.plan, &a->limits);
    const mm_status status = mm_prepared_refuse(p);
    return a->stands_in ? mm_fail(MM_ERR_INFEASIBLE, "%s", mm_last_error()) : status;
}

/* Sets what the plan needs. */
static mm_status describe_need(const mm_plan *plan, mm_misfit *misfit) {
    mm_account account;
    MM_TRY(mm_account_init(plan, &account));
    memcpy(misfit->held, account.at_peak, sizeof misfit->held);
    mm_account_fini(&account);
    misfit->need_bytes = plan->peak_bytes;
    misfit->pinned_bytes = plan->pinned_bytes;
    misfit->disk_bytes = plan->disk_bytes;
    misfit->held_step = plan->peak_step;
    return MM_OK;
}

/* Keeps a failure in *misfit, if it is the first, or the graph needs more than that of the one before. There may be no
 * plan; and it is no lack of memory that a policy cannot run, with however much memory: then there is no need. */
static mm_status note_misfit(const mm_plan_set *set, const mm_plan_request *a, const mm_prepared *p, mm_status status,
                             mm_misfit *misfit) {
    mm_misfit m = {.graph = p->graph, .recomputes = p->recomputes, .held_step = -1};
    mm_failure_save(&m.failure, status);
    if (p->planned.plan && (mm_prepared_unable(p) < 0 || !must_be_able(set, a, p)))
        MM_TRY(describe_need(p->planned.plan, &m));
    if (!misfit->graph || m.need_bytes > misfit->need_bytes) *misfit = m;
    return mm_failure_restore(&m.failure);
}

static mm_status prepare(const mm_plan_set *set, const mm_plan_request *a, const mm_homes *homes,
                         const mm_new_graph *graph, mm_misfit *misfit, mm_prepared **prepared_out) {
    mm_prepared *p = calloc(1, sizeof *p);
    if (!p) return mm_fail(MM_ERR_NOMEM, "out of memory for the graph %s", mm_graph_name(graph->graph));
    p->graph = graph->graph;
    p->recomputes = graph->recomputes;
    const mm_prepared *now = mm_plan_set_find(set, p->graph);
    p->has_begun = now && now->has_begun;
    mm_status status = make_plan(set, a, homes, p);
    if (status == MM_OK) status = judge(set, a, p);
    if (misfit && (status == MM_ERR_INFEASIBLE || status == MM_ERR_UNSUPPORTED))
        status = note_misfit(set, a, p, status, misfit);
    if (status == MM_OK)
        *prepared_out = p;
    else
        drop(p);
    return status;
}

/* ---------------------------------------------------------------- drafts */

/* The i-th graph to draft: one of the set's, or the new one. */
static mm_new_graph graph_at(const mm_plan_set *set, const mm_plan_request *a, int i) {
    return i < set->n ? (mm_new_graph){set->prepared[i]->graph, set->prepared[i]->recomputes} : *a->added;
}

/* A graph that does not fit ends it, unless a misfit is to be found: then that of the graph that needs most. */
static mm_status fill(const mm_plan_set *set, const mm_plan_request *a, const mm_homes *homes, mm_draft *d,
                      mm_misfit *misfit) {
    int n = set->n + (a->added != NULL);
    d->prepared = calloc((size_t)n + 1, sizeof(mm_prepared *));
    if (!d->prepared) return mm_fail(MM_ERR_NOMEM, "out of memory for %d graphs", n);
    if (a->others_stay) d->n = d->kept = set->n;
    for (int i = 0; i < d->kept; i++) d->prepared[i] = set->prepared[i];
    for (; d->n < n; d->n++) {
        const mm_new_graph graph = graph_at(set, a, d->n);
        const mm_status status = prepare(set, a, homes, &graph, misfit, &d->prepared[d->n]);
        if (status != MM_OK && (status != MM_ERR_INFEASIBLE || !misfit || a->stands_in)) return status;
        if (status == MM_OK && d->prepared[d->n]->planned.plan->peak_bytes > d->need_bytes)
            d->need_bytes = d->prepared[d->n]->planned.plan->peak_bytes;
    }
    if (!misfit || !misfit->graph) return MM_OK;
    /* A graph that lacks pinned memory alone may need less on the device than one that fits. */
    if (misfit->need_bytes > 0 && misfit->need_bytes < d->need_bytes) misfit->need_bytes = d->need_bytes;
    return mm_failure_restore(&misfit->failure);
}

mm_status mm_plan_set_draft_with(const mm_plan_set *set, const mm_plan_request *a, const mm_homes *homes,
                                 mm_draft *draft_out, mm_misfit *misfit_out) {
    mm_draft d = {.least_workspaces = a->least_workspaces, .stands_in = a->stands_in, .step = a->step};
    if (misfit_out) *misfit_out = (mm_misfit){.held_step = -1};
    uint8_t *memory = calloc((size_t)homes->n + 1, 1);
    if (!memory) return mm_fail(MM_ERR_NOMEM, "out of memory for the homes of %d tensors", homes->n);
    if (homes->memory) memcpy(memory, homes->memory, (size_t)homes->n);
    d.homes = (mm_homes){.memory = memory, .n = homes->n};
    mm_status status = mm_policy_copy(a->policy, &d.policy);
    if (status == MM_OK) status = fill(set, a, homes, &d, misfit_out);
    if (status == MM_OK)
        *draft_out = d;
    else
        mm_draft_fini(&d);
    return status;
}

mm_plan_request mm_plan_set_again(const mm_plan_set *set, const mm_limits *limits) {
    return (mm_plan_request){.policy = &set->policy_now,
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
    free((void *)set->homes.memory);
    set->homes = d->homes;
    d->homes = (mm_homes){0};
    d->prepared = NULL;
    d->policy = (mm_policy){0};
}

void mm_draft_fini(mm_draft *d) {
    for (int i = d->kept; d->prepared && i < d->n; i++) drop(d->prepared[i]);
    free(d->prepared);
    free((void *)d->homes.memory);
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

mm_status mm_plan_set_facts(const mm_plan_set *set, const mm_prepared *p, mm_graph_facts **facts_out) {
    const mm_graph_facts *from = p->planned.facts;
    const mm_observed_facts *learned = learned_of(set, p->graph);
    mm_graph_facts *facts;
    MM_TRY(mm_graph_facts_create(p->graph, from->n_codecs, &facts));
    memcpy(facts->codecs, from->codecs, (size_t)from->n_codecs * sizeof *from->codecs);
    memcpy(facts->codes, from->codes, (size_t)from->n_codecs * (size_t)from->n_tensors * sizeof *from->codes);
    mm_status status = MM_OK;
    if (set->sources.facts) status = mm_facts_apply(set->sources.facts, p->graph, MM_FACTS_TIMES, facts);
    if (status == MM_ERR_FORMAT) status = MM_OK; /* measured on another graph */
    if (status == MM_OK && learned) status = mm_graph_facts_merge(learned->facts, p->graph, MM_FACTS_ALL, facts);
    if (status == MM_OK)
        *facts_out = facts;
    else
        mm_graph_facts_destroy(facts);
    return status;
}

mm_status mm_plan_set_learn(mm_plan_set *set, const mm_graph *graph, mm_graph_facts *facts) {
    mm_observed_facts *learned = learned_of(set, graph);
    if (!learned) {
        mm_observed_facts *more = realloc(set->learned, ((size_t)set->n_learned + 1) * sizeof *more);
        if (!more) return mm_fail(MM_ERR_NOMEM, "out of memory for the facts of %s", mm_graph_name(graph));
        set->learned = more;
        learned = &more[set->n_learned++];
        *learned = (mm_observed_facts){.graph = graph};
    }
    mm_graph_facts_destroy(learned->facts);
    learned->facts = facts;
    return MM_OK;
}

static void unlearn(mm_plan_set *set, const mm_graph *graph) {
    mm_observed_facts *learned = learned_of(set, graph);
    if (!learned) return;
    mm_graph_facts_destroy(learned->facts);
    *learned = set->learned[--set->n_learned];
}

mm_status mm_plan_set_offer(mm_plan_set *set, mm_plan *plan, int64_t device_bytes) {
    mm_ready_made_plan *more = realloc(set->offered, ((size_t)set->n_offered + 1) * sizeof *more);
    if (more) set->offered = more;
    char *name = more ? strdup(mm_graph_name(plan->graph)) : NULL;
    if (!name) {
        mm_plan_destroy(plan);
        return mm_fail(MM_ERR_NOMEM, "out of memory to store an offered plan");
    }
    more[set->n_offered++] = (mm_ready_made_plan){.plan = plan,
                                                  .graph = name,
                                                  .steps = mm_graph_steps(plan->graph),
                                                  .tensors = mm_graph_tensors(plan->graph),
                                                  .tensor_bytes = mm_facts_tensor_bytes(plan->graph),
                                                  .device_bytes = device_bytes};
    return MM_OK;
}

void mm_plan_set_forget(mm_plan_set *set, const mm_graph *graph) {
    int i = index_of(set, graph);
    unlearn(set, graph);
    if (i == set->n) return;
    drop(set->prepared[i]);
    set->prepared[i] = set->prepared[--set->n];
}

void mm_plan_set_fini(mm_plan_set *set) {
    while (set->n > 0) drop(set->prepared[--set->n]);
    while (set->n_learned > 0) mm_graph_facts_destroy(set->learned[--set->n_learned].facts);
    for (int i = 0; i < set->n_offered; i++) {
        mm_plan_destroy(set->offered[i].plan);
        free(set->offered[i].graph);
    }
    free(set->offered);
    free(set->learned);
    free(set->prepared);
    free((void *)set->homes.memory);
    mm_policy_fini(&set->policy);
    mm_policy_fini(&set->policy_now);
    memset(set, 0, sizeof *set);
}

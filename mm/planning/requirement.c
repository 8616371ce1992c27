/* SPDX-License-Identifier: MIT */
#include "mm/planning/requirement.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/account/account_stash.h"
#include "mm/core/plan/plan_fits.h"
#include "mm/core/text.h"
#include "mm/core/time/simulate.h"
#include "mm/core/time/time_bound.h"
#include "mm/core/time/untimed.h"
#include "mm/planning/plan_set.h"
#include "mm/planning/refusal.h"
#include "mm/planning/together.h"

/* A kind that bytes are held for is a kind of the account, under another name. */
#define SAME(kind) _Static_assert((int)MM_HELD_##kind == (int)MM_ACCOUNT_##kind, "the enums differ")
SAME(WEIGHT);
SAME(WEIGHT_GRADIENT);
SAME(OPTIMIZER);
SAME(STATE);
SAME(STASH);
SAME(CODE);
SAME(BUFFER);
SAME(FEATURE_MAP);
SAME(GRADIENT_MAP);
SAME(WORKSPACE);
SAME(KINDS);
#undef SAME
_Static_assert((int)MM_HELD_OTHER == (int)MM_ACCOUNT_REST, "the enums differ");

const char *mm_held_kind_name(mm_held_kind kind) { return mm_account_kind_name((mm_account_kind)kind); }

/* The requirement with what it owns. */
typedef struct made {
    mm_requirement r; /* the first member: mm_requirement_destroy gets its address */
    char *policy, *refusal;
    mm_graph_requirement *graphs;
    mm_held_step **timelines;
    mm_stashed **stashes;
    mm_housed **homes;
} made;

typedef struct maker {
    const mm_requirement_request *request;
    mm_policy policy;
    mm_persistent_table persistents;   /* of all graphs */
    mm_planned *planned, **planned_at; /* of each graph */
    bool *timed;                       /* per graph: there are measured times of it */
    made *made;
    mm_failure misfit; /* of the graph that needs most of those that do not fit; MM_OK: all fit */
    int misfit_graph;
    bool short_of_device; /* the misfit is one of device memory */
} maker;

/* ---------------------------------------------------------------- one graph */

/* Adds measured times, if there are any of this graph. */
static mm_status add_facts(const maker *m, const mm_graph *graph, mm_planned *planned, bool *timed_out) {
    *timed_out = false;
    if (m->request->facts) {
        const mm_status status = mm_facts_apply(m->request->facts, graph, MM_FACTS_TIMES, planned->facts);
        if (status != MM_OK && status != MM_ERR_FORMAT) return status;
        *timed_out = status == MM_OK;
    }
    mm_planned_set_rates(planned, &m->request->rates);
    return MM_OK;
}

static mm_limits limits_of(const maker *m, int64_t device_bytes) {
    return (mm_limits){.device_bytes = device_bytes,
                       .pinned_bytes = m->request->limits.pinned_bytes,
                       .disk_bytes = m->request->limits.disk_bytes,
                       .base_bytes = m->persistents.bytes,
                       .stop = m->request->limits.stop_search,
                       .no_recompute = m->request->limits.no_recompute};
}

/* Predicts the plan's time, and, if it fits the budget, a bound of what any plan takes. */
static mm_status predict(const maker *m, const mm_planned *planned, bool timed, mm_graph_requirement *g) {
    const mm_plan *plan = planned->plan;
    const mm_plan_limits *limits = &m->request->limits;
    mm_simulation simulation;
    if (!timed || mm_plan_untimed(plan, planned->facts)) return MM_OK;
    MM_TRY(mm_program_simulate(planned->program, planned->facts, &simulation));
    g->iteration_ns = simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    const int64_t budget = limits->device_bytes > 0 ? limits->device_bytes : plan->peak_bytes;
    if (plan->heap_bytes > 0 || plan->peak_bytes > budget || plan->pinned_bytes > limits->pinned_bytes ||
        plan->disk_bytes > limits->disk_bytes)
        return MM_OK;
    mm_time_bound bound;
    int64_t away_bytes; /* what is on the disk counts as if it stayed in more pinned memory: so the bound holds */
    if (__builtin_add_overflow(limits->pinned_bytes, limits->disk_bytes, &away_bytes)) away_bytes = INT64_MAX;
    MM_TRY(mm_time_bound_beside(plan, planned->facts, budget, away_bytes, &bound));
    if (bound.ns < INT64_MAX) g->bound_ns = bound.ns;
    return MM_OK;
}

mm_status mm_requirement_timeline(const mm_account *account, mm_held_step **timeline_out) {
    mm_held_step *steps = malloc(((size_t)account->n_steps + 1) * sizeof *steps);
    if (!steps) return mm_fail(MM_ERR_NOMEM, "out of memory for a requirement of %d steps", account->n_steps);
    for (int i = 0; i < account->n_steps; i++) {
        const mm_account_step *step = &account->steps[i];
        steps[i] = (mm_held_step){.step = step->step,
                                  .phase = mm_graph_step(account->plan->graph, step->step)->phase,
                                  .live_bytes = step->live_bytes};
        memcpy(steps[i].held, step->bytes, sizeof steps[i].held);
    }
    *timeline_out = steps;
    return MM_OK;
}

#define SAME(action) _Static_assert((int)MM_MAP_##action == (int)MM_REMEDY_##action, "the enums differ")
SAME(KEEP);
SAME(MASK);
SAME(COMPRESS);
SAME(RECOMPUTE);
SAME(SWAP);
SAME(COMPRESS_SWAP);
#undef SAME
_Static_assert((int)MM_MAP_ACTIONS == (int)MM_REMEDY_KINDS, "the enums differ");

const char *mm_map_action_name(mm_map_action action) { return mm_remedy_kind_name((mm_remedy_kind)action); }

/* Lists what the plan does with each map that waits for the backward pass. */
static mm_status list_stashed(const mm_planned *planned, mm_stashed **stashed_out, int *n_out) {
    const mm_graph_facts *facts = planned->facts;
    mm_stash_account stash;
    mm_decision *decisions = NULL;
    MM_TRY(mm_stash_account_init(planned->plan, facts, &stash));
    mm_stashed *list = calloc((size_t)stash.n_maps + 1, sizeof *list);
    mm_status status = list ? mm_account_decide(planned->plan, facts, &stash, &decisions)
                            : mm_fail(MM_ERR_NOMEM, "out of memory for a requirement of %d maps", stash.n_maps);
    for (int i = 0; status == MM_OK && i < stash.n_maps; i++) {
        const mm_stash_map *map = &stash.maps[i];
        const mm_decision *made = &decisions[i];
        list[i] = (mm_stashed){.tensor = map->tensor,
                               .bytes = map->bytes,
                               .held_bytes = map->held_bytes,
                               .actions = made->kinds,
                               .ns = made->ns};
        mm_refused_put(list[i].name, mm_graph_tensor(planned->plan->graph, map->tensor)->name);
        if (made->codec >= 0) memcpy(list[i].codec, facts->codecs[made->codec].spec, sizeof list[i].codec);
    }
    *n_out = stash.n_maps;
    free(decisions);
    mm_stash_account_fini(&stash);
    if (status == MM_OK)
        *stashed_out = list;
    else
        free(list);
    return status;
}

static void describe(const mm_plan *plan, const mm_account *account, mm_graph_requirement *g) {
    char step[MM_PLAN_NAME_CAPACITY];
    mm_refused_put(g->graph, mm_graph_name(plan->graph));
    mm_refused_put(g->held_by, mm_graph_step_name(plan->graph, plan->peak_step, step, sizeof step));
    memcpy(g->held, account->at_peak, sizeof g->held);
    g->planned_bytes = plan->peak_bytes;
    const mm_moves moves = mm_account_moves(plan);
    g->pinned_bytes = plan->pinned_bytes;
    g->disk_bytes = plan->disk_bytes;
    g->moved_bytes = moves.bytes;
    g->stored_bytes = moves.disk_bytes;
    g->stash_bytes = plan->stash_bytes;
    g->steps = mm_graph_steps(plan->graph);
    g->steps_again = mm_account_steps_again(plan);
    g->held_step = plan->peak_step;
    g->live_bytes = plan->live_peak_bytes;
}

/* Keeps why a plan does not fit, or cannot run: of several graphs, for the one that needs most. */
static void judge(maker *m, int i, const mm_planned *planned, int64_t least_bytes) {
    const mm_plan_limits *limits = &m->request->limits;
    const int64_t budget = limits->device_bytes > 0 ? limits->device_bytes : INT64_MAX;
    const mm_limits within = limits_of(m, budget);
    const mm_prepared prepared = {.graph = planned->plan->graph, .planned = *planned};
    const bool unable = limits->no_recompute && mm_prepared_unable(&prepared) >= 0;
    const mm_status status = unable ? mm_prepared_refuse(&prepared) : mm_plan_fits(planned->plan, &within);
    const bool of_device = !unable && least_bytes > budget;
    const bool more = m->misfit.status == MM_OK || of_device > m->short_of_device ||
                      (of_device && least_bytes > m->made->graphs[m->misfit_graph].least_bytes);
    if (status == MM_OK || !more) return;
    mm_failure_save(&m->misfit, status);
    m->misfit_graph = i;
    m->short_of_device = of_device;
}

static mm_status fill_graph(maker *m, int i) {
    const mm_planned *planned = &m->planned[i];
    mm_graph_requirement *g = &m->made->graphs[i];
    mm_account account;
    MM_TRY(mm_account_init(planned->plan, &account));
    describe(planned->plan, &account, g);
    mm_status status = mm_requirement_timeline(&account, &m->made->timelines[i]);
    g->timeline = m->made->timelines[i];
    g->n_timeline = account.n_steps;
    mm_account_fini(&account);
    MM_TRY(status);
    MM_TRY(list_stashed(planned, &m->made->stashes[i], &g->n_stashed));
    g->stashed = m->made->stashes[i];
    MM_TRY(mm_requirement_housed(planned->plan, &m->made->homes[i], &g->n_housed));
    g->housed = m->made->homes[i];
    g->other_bytes = mm_persistent_table_beside(&m->persistents, m->request->graphs[i]);
    judge(m, i, planned, g->least_bytes);
    return predict(m, planned, m->timed[i], g);
}

static mm_status init_graph(maker *m, int i) {
    mm_planned *planned = &m->planned[i];
    m->planned_at[i] = planned;
    MM_TRY(mm_planned_init(planned, &m->policy, m->request->graphs[i], m->request->limits.device));
    for (int c = 0; c < planned->facts->n_codecs; c++) m->made->r.lossy |= !planned->facts->codecs[c].lossless;
    return add_facts(m, m->request->graphs[i], planned, &m->timed[i]);
}

/* ---------------------------------------------------------------- all graphs */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static mm_status plan_within(const maker *m, int64_t device_bytes) {
    const mm_limits limits = limits_of(m, device_bytes);
    return mm_together_plan(&(mm_together){m->request->graphs, m->planned_at, m->request->n, &m->persistents},
                            &m->policy, &limits);
}

/* Makes the smallest plans, and then, if the budget has room for them, the plans within the budget. */
static mm_status plan(maker *m) {
    const int64_t budget = m->request->limits.device_bytes;
    int64_t least = 0;
    MM_TRY(plan_within(m, 0));
    for (int i = 0; i < m->request->n; i++) {
        m->made->graphs[i].least_bytes = m->planned[i].plan->peak_bytes;
        least = larger(least, m->made->graphs[i].least_bytes);
    }
    /* with homes in limited pinned memory, a budget may have plans that the smallest ones say nothing of */
    const bool homes_move = m->policy.config.resident != MM_RESIDENT_ALL;
    if (budget == 0 || (least > budget && !homes_move)) return MM_OK;
    MM_TRY(plan_within(m, budget));
    for (int i = 0; i < m->request->n; i++) {
        int64_t *own = &m->made->graphs[i].least_bytes;
        if (m->planned[i].plan->peak_bytes < *own) *own = m->planned[i].plan->peak_bytes;
    }
    return MM_OK;
}

static void sum_up(maker *m) {
    mm_requirement *r = &m->made->r;
    bool timed = true;
    for (int i = 0; i < r->n_graphs; i++) {
        const mm_graph_requirement *g = &r->graphs[i];
        if (g->least_bytes > r->graphs[r->most].least_bytes) r->most = i;
        r->planned_bytes = larger(r->planned_bytes, g->planned_bytes);
        r->pinned_bytes = larger(r->pinned_bytes, g->pinned_bytes);
        r->disk_bytes = larger(r->disk_bytes, g->disk_bytes);
        r->needs_recompute_set |= g->steps_again > 0;
        r->iteration_ns += g->iteration_ns;
        timed &= g->iteration_ns > 0;
    }
    r->least_bytes = r->graphs[r->most].least_bytes;
    r->persistent_bytes = m->persistents.bytes;
    if (!timed) r->iteration_ns = 0;
    r->fits = m->misfit.status == MM_OK;
}

/* Sets the message of a misfit, and finds a policy that would fit. */
static mm_status advise(maker *m) {
    const mm_requirement_request *q = m->request;
    mm_requirement *r = &m->made->r;
    const mm_graph *graph = q->graphs[m->misfit_graph];
    const int64_t budget = q->limits.device_bytes > 0 ? q->limits.device_bytes : INT64_MAX;
    char told[MM_MESSAGE_CAPACITY];
    mm_new_graph *others = malloc((size_t)q->n * sizeof *others);
    int n = 0;
    if (!others) return mm_fail(MM_ERR_NOMEM, "out of memory for %d graphs", q->n);
    for (int i = 0; i < q->n; i++)
        if (i != m->misfit_graph) others[n++] = (mm_new_graph){q->graphs[i], !q->limits.no_recompute};
    const mm_graph *other = mm_refused_beside(graph, others, n);
    const mm_refused refused = {.graph = graph,
                                .others = others,
                                .n_others = n,
                                .persistents = &m->persistents,
                                .device = q->limits.device,
                                .limits = limits_of(m, budget),
                                .rates = q->rates,
                                .policy = &m->policy,
                                .needs_bytes = m->short_of_device ? r->least_bytes : 0,
                                .add_times = q->facts ? mm_times_measured : NULL,
                                .times = q->facts,
                                .may_be_set = !q->limits.no_recompute,
                                .advised = &r->advised,
                                .recomputing = &r->recomputing};
    const char *message =
        mm_refused_tell_others(m->misfit.message, m->short_of_device ? r->graphs[m->misfit_graph].other_bytes : 0,
                               other ? mm_graph_name(other) : "", told);
    mm_status status = q->limits.no_advice ? mm_fail(MM_ERR_INFEASIBLE, "%s", message) : mm_advise(&refused, message);
    free(others);
    if (status != MM_ERR_INFEASIBLE) return status;
    m->made->refusal = strdup(mm_last_error());
    return m->made->refusal ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a refusal");
}

/* Places the persistent tensors of all graphs, as a manager that prepares them in this order. */
static mm_status place(maker *m) {
    const mm_persistent_table *beside = m->request->beside;
    for (int i = 0; beside && i < beside->n; i++)
        MM_TRY(mm_persistent_table_append(&m->persistents, beside->entries[i].name, beside->entries[i].bytes));
    for (int i = 0; i < m->request->n; i++) MM_TRY(mm_persistent_table_add(&m->persistents, m->request->graphs[i]));
    mm_persistent_table_settle(&m->persistents, &(mm_homes){0});
    return MM_OK;
}

static mm_status make(maker *m) {
    made *made = m->made;
    const int n = m->request->n;
    made->policy = strdup(m->policy.spec);
    made->graphs = calloc((size_t)n, sizeof *made->graphs);
    made->timelines = calloc((size_t)n, sizeof *made->timelines);
    made->stashes = calloc((size_t)n, sizeof *made->stashes);
    made->homes = calloc((size_t)n, sizeof *made->homes);
    m->planned = calloc((size_t)n, sizeof *m->planned);
    m->planned_at = calloc((size_t)n, sizeof *m->planned_at);
    m->timed = calloc((size_t)n, sizeof *m->timed);
    if (!made->policy || !made->graphs || !made->timelines || !made->stashes || !made->homes || !m->planned ||
        !m->planned_at || !m->timed)
        return mm_fail(MM_ERR_NOMEM, "out of memory for a requirement of %d graphs", n);
    made->r = (mm_requirement){.policy = made->policy,
                               .device_bytes = m->request->limits.device_bytes,
                               .pinned_limit_bytes = m->request->limits.pinned_bytes,
                               .disk_limit_bytes = m->request->limits.disk_bytes,
                               .n_graphs = n,
                               .graphs = made->graphs,
                               .refusal = ""};
    MM_TRY(place(m));
    for (int i = 0; i < n; i++) MM_TRY(init_graph(m, i));
    MM_TRY(plan(m));
    for (int i = 0; i < n; i++) MM_TRY(fill_graph(m, i));
    sum_up(m);
    if (made->r.fits) return MM_OK;
    MM_TRY(advise(m));
    made->r.refusal = made->refusal;
    return MM_OK;
}

mm_status mm_requirement_make(const mm_requirement_request *request, mm_requirement **requirement_out) {
    maker m = {.request = request};
    MM_TRY(mm_policy_parse(request->policy, &m.policy));
    m.made = calloc(1, sizeof *m.made);
    mm_status status = m.made ? make(&m) : mm_fail(MM_ERR_NOMEM, "out of memory for a requirement");
    for (int i = 0; m.planned && i < request->n; i++) mm_planned_fini(&m.planned[i]);
    free(m.planned);
    free((void *)m.planned_at);
    free(m.timed);
    mm_persistent_table_fini(&m.persistents);
    mm_policy_fini(&m.policy);
    if (status == MM_OK)
        *requirement_out = &m.made->r;
    else if (m.made)
        mm_requirement_destroy(&m.made->r);
    return status;
}

void mm_requirement_destroy(mm_requirement *requirement) {
    made *own = (made *)requirement;
    if (!own) return;
    for (int i = 0; own->timelines && i < own->r.n_graphs; i++) free(own->timelines[i]);
    for (int i = 0; own->stashes && i < own->r.n_graphs; i++) free(own->stashes[i]);
    free(own->timelines);
    free(own->stashes);
    for (int i = 0; own->homes && i < own->r.n_graphs; i++) free(own->homes[i]);
    free(own->homes);
    free(own->graphs);
    free(own->policy);
    free(own->refusal);
    free(own);
}

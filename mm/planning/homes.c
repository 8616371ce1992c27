/* SPDX-License-Identifier: MIT */
#include "mm/planning/homes.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/time/simulate.h"
#include "mm/core/time/untimed.h"

/* ---------------------------------------------------------------- the order */

/* Tensors with less than this part of all persistent bytes stay. Chosen. */
enum { LEAST_PART = 4096 };

typedef struct candidate {
    mm_tensor tensor;
    int forward; /* 1: a forward step reads it, so it is fetched more often */
    int step;    /* the last that uses it */
    uint32_t turn;
} candidate;

/* Whether a forward step writes or modifies the tensor. */
static bool *find_written(const mm_graph *graph) {
    bool *written = calloc((size_t)mm_graph_tensors(graph) + 1, sizeof *written);
    for (int s = 0; written && s < mm_graph_steps(graph); s++) {
        const mm_step_info *step = mm_graph_step(graph, s);
        for (int u = 0; step->phase == MM_FORWARD && u < step->n_uses; u++)
            written[step->uses[u].tensor] |= step->uses[u].access != MM_READ;
    }
    return written;
}

static bool may_leave(const mm_tensor_info *info, int64_t least) {
    const bool kind = info->kind == MM_WEIGHT || info->kind == MM_OPTIMIZER || info->kind == MM_WEIGHT_GRADIENT;
    return info->persistent >= 0 && kind && !info->on_host && info->shared == MM_ALLREDUCE_NOT && info->first_use > 0 &&
           info->bytes >= least;
}

static int by_step(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->forward != y->forward) return x->forward - y->forward;
    return x->step != y->step ? (x->step > y->step) - (x->step < y->step) : x->tensor - y->tensor;
}

static int by_turn(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->forward != y->forward) return x->forward - y->forward;
    return x->turn != y->turn ? (x->turn > y->turn) - (x->turn < y->turn) : x->tensor - y->tensor;
}

/* The bits of a number in reverse: 0, 1, 2, 3 ... become points that divide a range ever more finely. */
static uint32_t reversed(uint32_t number) {
    uint32_t turned = 0;
    for (int bit = 0; bit < 32; bit++) turned |= (number >> bit & 1u) << (31 - bit);
    return turned;
}

/* Gives turns to the candidates of one kind, which are sorted by their steps: those at one step get one turn. */
static void give_turns(candidate *list, int n) {
    uint32_t place = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (list[i].forward != list[i - 1].forward)) place = 0;
        if (i > 0 && list[i].forward == list[i - 1].forward && list[i].step != list[i - 1].step) place++;
        list[i].turn = reversed(place);
    }
}

static int list_candidates(const mm_graph *graph, const bool *written, candidate *list) {
    int64_t bytes = 0;
    int n = 0;
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->persistent >= 0) bytes += mm_graph_tensor(graph, t)->bytes;
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *info = mm_graph_tensor(graph, t);
        if (written[t] || !may_leave(info, bytes / LEAST_PART)) continue;
        list[n++] = (candidate){.tensor = t, .forward = info->last_forward >= 0, .step = info->last_use};
    }
    return n;
}

mm_status mm_home_order_init(const mm_graph *graph, mm_home_order *order_out) {
    const size_t n = (size_t)mm_graph_persistents(graph) + 1;
    candidate *list = malloc(n * sizeof *list);
    bool *written = find_written(graph);
    mm_home_order order = {.tensors = malloc(n * sizeof *order.tensors)};
    mm_status status = MM_OK;
    if (!list || !written || !order.tensors)
        status = mm_fail(MM_ERR_NOMEM, "out of memory for the homes of %s", mm_graph_name(graph));
    else {
        order.n = list_candidates(graph, written, list);
        qsort(list, (size_t)order.n, sizeof *list, by_step);
        give_turns(list, order.n);
        qsort(list, (size_t)order.n, sizeof *list, by_turn);
        for (int i = 0; i < order.n; i++) order.tensors[i] = list[i].tensor;
        *order_out = order;
    }
    free(list);
    free(written);
    if (status != MM_OK) free(order.tensors);
    return status;
}

void mm_home_order_fini(mm_home_order *order) {
    free(order->tensors);
    *order = (mm_home_order){0};
}

/* ---------------------------------------------------------------- the search */

/* Parts of the budget that copies may hold ahead of their steps: the first with which a plan fits is taken. Chosen. */
static const int AHEAD_PARTS[] = {8, 16, 0};
enum { AHEADS = sizeof AHEAD_PARTS / sizeof *AHEAD_PARTS };

typedef struct search {
    mm_home_try try;
    void *ctx;
    int64_t device_bytes;
    bool pinned_free; /* of all trials */
    bool copies;      /* tensors that steps on the host use are copied even if no other leaves */
    mm_home_trial last;
} search;

static mm_status attempt(search *s, mm_home_trial trial, mm_home_result *result_out) {
    trial.pinned_free = s->pinned_free;
    s->last = trial;
    *result_out = (mm_home_result){0};
    return s->try(s->ctx, &trial, result_out);
}

/* Finds the most that fit into pinned memory, roughly; 0: none found. */
static mm_status find_most(search *s, int n, int *most_out, mm_home_result *result_out) {
    for (*most_out = n; *most_out > 0; *most_out /= 2) {
        MM_TRY(attempt(s, (mm_home_trial){.n = *most_out, .first_fit = true}, result_out));
        if (result_out->fits) return MM_OK;
        if (!result_out->lacks_pinned) break;
    }
    *most_out = 0;
    return MM_OK;
}

/* Finds the least number that fits, to within a sixteenth; `most` do. */
static mm_status find_least(search *s, int most, int *least_out) {
    int fits = most, misfit = 0;
    while (fits - misfit > 1 + most / 16) {
        const int middle = misfit + (fits - misfit) / 2;
        mm_home_result r;
        MM_TRY(attempt(s, (mm_home_trial){.n = middle, .first_fit = true}, &r));
        *(r.fits ? &fits : &misfit) = middle;
    }
    *least_out = fits;
    return MM_OK;
}

/* Of the least number that fits and two larger ones, with copies that come early and with such that do not, tries the
 * fastest last. */
static mm_status find_fastest(search *s, int least, int most, mm_home_result *result_out) {
    const int numbers[] = {least + (most - least) / 2, least + (most - least) / 4, least};
    mm_home_trial best = {.n = least};
    int64_t best_ns = INT64_MAX;
    mm_home_result r;
    for (int i = 0; i < 3; i++)
        for (int a = 0; a < AHEADS; a++) {
            const int part = AHEAD_PARTS[a];
            const mm_home_trial trial = {.n = numbers[i], .ahead_bytes = part ? s->device_bytes / part : 0};
            if ((i > 0 && numbers[i] == numbers[i - 1]) || (part && trial.ahead_bytes == 0)) continue;
            MM_TRY(attempt(s, trial, &r));
            if (r.fits && r.ns < best_ns) { /* without times the last one is taken, which has the least number */
                best = trial;
                best_ns = r.ns > 0 ? r.ns : INT64_MAX;
            }
            if (r.fits) break;
        }
    const bool is_last = s->last.n == best.n && s->last.ahead_bytes == best.ahead_bytes && r.fits;
    if (!is_last) MM_TRY(attempt(s, best, &r));
    *result_out = r;
    return MM_OK;
}

/* Tries with no tensor of the order in pinned memory. What is there anyway comes as early as fits. */
static mm_status attempt_none(search *s, mm_home_result *result_out) {
    for (int a = s->copies && s->device_bytes > 0 ? 0 : AHEADS - 1; a < AHEADS; a++) {
        const int part = AHEAD_PARTS[a];
        MM_TRY(attempt(s, (mm_home_trial){.ahead_bytes = part ? s->device_bytes / part : 0}, result_out));
        if (result_out->fits) break;
    }
    return MM_OK;
}

/* Searches among plans with at least one tensor in pinned memory. *result_out: of the last try. */
static mm_status find(search *s, mm_resident resident, int n, mm_home_result *result_out) {
    int least = n, most = n;
    if (resident == MM_RESIDENT_NONE) {
        MM_TRY(attempt(s, (mm_home_trial){.n = n, .first_fit = true}, result_out));
        return result_out->fits ? find_fastest(s, n, n, result_out) : MM_OK;
    }
    MM_TRY(find_most(s, n, &most, result_out));
    if (most == 0) return MM_OK;
    MM_TRY(find_least(s, most, &least));
    return find_fastest(s, least, most, result_out);
}

mm_status mm_homes_search(mm_resident resident, int n, bool on_host, const mm_limits *limits, mm_home_try try,
                          void *ctx) {
    search s = {.try = try, .ctx = ctx, .device_bytes = limits->device_bytes, .copies = on_host};
    mm_home_result r = {0};
    if (resident != MM_RESIDENT_NONE || n == 0) MM_TRY(attempt_none(&s, &r));
    if (r.fits || resident == MM_RESIDENT_ALL || n == 0) return MM_OK;
    const bool lacks_pinned = r.lacks_pinned;
    s.pinned_free = true;
    MM_TRY(find(&s, resident, n, &r));
    if (!r.fits || r.pinned_bytes <= limits->pinned_bytes) return MM_OK;
    s.pinned_free = false;
    MM_TRY(find(&s, resident, n, &r));
    return r.fits || !lacks_pinned ? MM_OK : attempt_none(&s, &r);
}

/* ---------------------------------------------------------------- a graph alone */

typedef struct lone {
    mm_planned *planned;
    const mm_policy *policy;
    const mm_graph *graph;
    const mm_limits *limits;
    mm_home_order order;
    mm_place *places;
} lone;

/* Puts the first n tensors of the order into pinned memory. */
static mm_limits place(const lone *l, int n) {
    mm_limits limits = *l->limits;
    int64_t end = 0;
    memset(l->places, 0, (size_t)mm_graph_persistents(l->graph) * sizeof *l->places);
    for (int i = 0; i < n; i++) l->places[mm_graph_tensor(l->graph, l->order.tensors[i])->persistent].pinned = true;
    for (int t = 0; t < mm_graph_tensors(l->graph); t++) {
        const mm_tensor_info *info = mm_graph_tensor(l->graph, t);
        if (info->persistent < 0) continue;
        mm_place *at = &l->places[info->persistent];
        at->pinned |= info->on_host;
        int64_t *next = at->pinned ? &limits.pinned_base_bytes : &end;
        at->offset = *next;
        *next += mm_align(info->bytes);
        if (at->pinned) limits.base_bytes -= mm_align(info->bytes);
    }
    limits.places = l->places;
    mm_homes_make_room(&limits);
    return limits;
}

/* The predicted time of an iteration; 0: times are not known. */
static mm_status predict(const mm_planned *planned, int64_t *ns_out) {
    mm_simulation simulation;
    *ns_out = 0;
    if (mm_plan_untimed(planned->plan, planned->facts)) return MM_OK;
    MM_TRY(mm_program_simulate(planned->program, planned->facts, &simulation));
    *ns_out = simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    return MM_OK;
}

static mm_status try_alone(void *ctx, const mm_home_trial *trial, mm_home_result *result_out) {
    const lone *l = ctx;
    mm_limits limits = place(l, trial->n);
    limits.first_fit |= trial->first_fit;
    limits.ahead_bytes = trial->ahead_bytes;
    if (trial->pinned_free) limits.pinned_bytes = INT64_MAX;
    MM_TRY(mm_planned_make(l->planned, l->policy, l->graph, &limits));
    const mm_plan *plan = l->planned->plan;
    result_out->pinned_bytes = plan->pinned_bytes;
    result_out->lacks_pinned = !trial->pinned_free && plan->pinned_bytes > l->limits->pinned_bytes;
    result_out->fits = !result_out->lacks_pinned && plan->peak_bytes <= limits.device_bytes;
    return result_out->fits && !trial->first_fit ? predict(l->planned, &result_out->ns) : MM_OK;
}

/* Plans with the homes that the policy gives. If some are in pinned memory, the base is as low as the others allow. */
static mm_status make_given(mm_planned *planned, const mm_policy *policy, const mm_graph *graph,
                            const mm_limits *limits) {
    mm_limits own = *limits;
    int64_t ends[2] = {0, limits->pinned_base_bytes}; /* on the device, in pinned memory */
    mm_place *places = calloc((size_t)mm_graph_persistents(graph) + 1, sizeof *places);
    if (!places) return mm_fail(MM_ERR_NOMEM, "out of memory for the homes of %s", mm_graph_name(graph));
    mm_status status = policy->ops->places(graph, &policy->config, places);
    for (int t = 0; status == MM_OK && t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *info = mm_graph_tensor(graph, t);
        if (info->persistent < 0) continue;
        const mm_place *place = &places[info->persistent];
        const int64_t end = place->offset + mm_align(info->bytes);
        if (ends[place->pinned] < end) ends[place->pinned] = end;
    }
    if (policy->config.resident != MM_RESIDENT_ALL) own.base_bytes = ends[0];
    own.pinned_base_bytes = ends[1];
    own.places = places;
    mm_homes_make_room(&own);
    if (status == MM_OK) status = mm_planned_make(planned, policy, graph, &own);
    free(places);
    return status;
}

mm_status mm_planned_make_housed(mm_planned *planned, const mm_policy *policy, const mm_graph *graph,
                                 const mm_limits *limits) {
    if (policy->ops->places) return make_given(planned, policy, graph, limits);
    const mm_resident resident = policy->config.resident;
    const bool on_host = mm_graph_uses_host(graph);
    if (resident == MM_RESIDENT_ALL && !on_host) return mm_planned_make(planned, policy, graph, limits);
    lone l = {.planned = planned,
              .policy = policy,
              .graph = graph,
              .limits = limits,
              .places = calloc((size_t)mm_graph_persistents(graph) + 1, sizeof *l.places)};
    if (!l.places) return mm_fail(MM_ERR_NOMEM, "out of memory for the homes of %s", mm_graph_name(graph));
    mm_status status = mm_home_order_init(graph, &l.order);
    if (status == MM_OK) status = mm_homes_search(resident, l.order.n, on_host, limits, try_alone, &l);
    mm_home_order_fini(&l.order);
    free(l.places);
    return status;
}

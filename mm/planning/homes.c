/* SPDX-License-Identifier: MIT */
#include "mm/planning/homes.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_fits.h"
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
    return info->persistent >= 0 && kind && info->shared == MM_ALLREDUCE_NOT && info->first_use > 0 &&
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

/* Finds the least number that fits, to within a sixteenth; all n do. */
static mm_status find_least(int n, mm_home_try try, void *ctx, int *least_out) {
    int fits = n, misfit = 0;
    while (fits - misfit > 1 + n / 16) {
        const int middle = misfit + (fits - misfit) / 2;
        bool fit;
        int64_t ns;
        MM_TRY(try(ctx, middle, true, &fit, &ns));
        *(fit ? &fits : &misfit) = middle;
    }
    *least_out = fits;
    return MM_OK;
}

/* Of the least number that fits and two larger ones, tries the fastest last. */
static mm_status find_fastest(int least, int n, mm_home_try try, void *ctx) {
    const int numbers[] = {least + (n - least) / 2, least + (n - least) / 4, least};
    int best = least, last = -1;
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < 3; i++) {
        bool fit;
        int64_t ns;
        if (numbers[i] == last) continue;
        MM_TRY(try(ctx, last = numbers[i], false, &fit, &ns));
        if (ns == 0 || !fit || ns > best_ns) continue;
        best_ns = ns;
        best = numbers[i];
    }
    bool fit;
    int64_t ns;
    return best == last ? MM_OK : try(ctx, best, false, &fit, &ns);
}

mm_status mm_homes_search(mm_resident resident, int n, mm_home_try try, void *ctx) {
    bool fits;
    int64_t ns;
    int least;
    if (resident == MM_RESIDENT_ALL || n == 0) return try(ctx, 0, false, &fits, &ns);
    if (resident == MM_RESIDENT_NONE) return try(ctx, n, false, &fits, &ns);
    MM_TRY(try(ctx, 0, false, &fits, &ns));
    if (fits) return MM_OK;
    MM_TRY(try(ctx, n, true, &fits, &ns));
    if (!fits) return MM_OK;
    MM_TRY(find_least(n, try, ctx, &least));
    return find_fastest(least, n, try, ctx);
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
        int64_t *next = at->pinned ? &limits.pinned_base_bytes : &end;
        at->offset = *next;
        *next += mm_align(info->bytes);
        if (at->pinned) limits.base_bytes -= mm_align(info->bytes);
    }
    limits.places = l->places;
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

static mm_status try_alone(void *ctx, int n, bool first_fit, bool *fits_out, int64_t *ns_out) {
    const lone *l = ctx;
    mm_limits limits = place(l, n);
    limits.first_fit |= first_fit;
    *ns_out = 0;
    MM_TRY(mm_planned_make(l->planned, l->policy, l->graph, &limits));
    *fits_out = mm_plan_fits(l->planned->plan, &limits) == MM_OK;
    return *fits_out && !first_fit ? predict(l->planned, ns_out) : MM_OK;
}

mm_status mm_planned_make_housed(mm_planned *planned, const mm_policy *policy, const mm_graph *graph,
                                 const mm_limits *limits) {
    const mm_resident resident = policy->config.resident;
    if (resident == MM_RESIDENT_ALL) return mm_planned_make(planned, policy, graph, limits);
    lone l = {.planned = planned,
              .policy = policy,
              .graph = graph,
              .limits = limits,
              .places = calloc((size_t)mm_graph_persistents(graph) + 1, sizeof *l.places)};
    if (!l.places) return mm_fail(MM_ERR_NOMEM, "out of memory for the homes of %s", mm_graph_name(graph));
    mm_status status = mm_home_order_init(graph, &l.order);
    if (status == MM_OK) status = mm_homes_search(resident, l.order.n, try_alone, &l);
    mm_home_order_fini(&l.order);
    free(l.places);
    return status;
}

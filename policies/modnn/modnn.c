/* SPDX-License-Identifier: MIT */
/* modnn: moDNN (Chen et al., TPDS 2019), section 5.2. Trains in whatever memory there is: what does not fit leaves for
 * pinned memory when an allocation fails, and comes back ahead of its use.
 *
 * Where all maps fit, they stay. Otherwise it compares a plan that keeps all maps, with algorithms of less workspace,
 * with plans of Algorithm 1 (modnn.h), and takes the one that is predicted to be fastest. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "mm/core/status.h"
#include "mm/core/time/simulate.h"
#include "policies/modnn/modnn.h"
#include "policies/option_tables.h"
#include "policies/policy_table.h"
#include "policies/schedule/nominal.h"

enum { OFFLOAD }; /* elements of mm_engine_config.own */

static const mm_sharing sharing = {0}; /* the lean choices */

/* ---------------------------------------------------------------- plans that keep all maps */

/* variant: per step; the schedule owns it from here on, also on a failure. */
static mm_status plan_kept(const modnn *m, const mm_limits *limits, int32_t *variant, mm_plan **plan_out) {
    mm_schedule s;
    mm_bounds ignored;
    mm_status status = mm_schedule_init(&s, m->graph, m->facts, limits, &sharing);
    if (status != MM_OK) {
        free(variant);
        return status;
    }
    s.variant = variant;
    for (int step = 0; status == MM_OK && step < m->n_steps; step++)
        if (mm_schedule_step(&s, step, NULL) < 0) status = MM_ERR_NOMEM;
    if (status == MM_OK) status = mm_schedule_close(&s, 0, false, &ignored);
    if (status == MM_OK) status = mm_schedule_finish(&s, plan_out);
    mm_schedule_fini(&s);
    return status;
}

/* For each step the first of its variants whose workspace takes at most room[step]; where none does, the one with the
 * least. NULL: out of memory. */
static int32_t *variants_within(const modnn *m, const int64_t *room) {
    int32_t *variant = calloc((size_t)m->n_steps + 1, sizeof *variant);
    for (int step = 0; variant && step < m->n_steps; step++) {
        int from, to;
        mm_modnn_choice(m, step, &from, &to);
        variant[step] = from;
        while (variant[step] < to - 1 && mm_modnn_variant(m, step, variant[step])->workspace_bytes > room[step])
            variant[step]++;
    }
    return variant;
}

static mm_status plan_within(const modnn *m, const mm_limits *limits, const int64_t *room, mm_plan **plan_out) {
    int32_t *variant = variants_within(m, room);
    if (!variant) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(m->graph));
    return plan_kept(m, limits, variant, plan_out);
}

/* Per step, the bytes that are left beside the maps that are alive then. Returns whether the least workspaces fit. */
static bool find_room(const modnn *m, const mm_plan *kept, const mm_limits *limits, int64_t *room) {
    bool enough = true;
    for (int i = 0; i < kept->n_nodes; i++) {
        int64_t live[MM_CATEGORIES];
        mm_plan_live_at(kept, i, live);
        room[kept->nodes[i].step] = limits->device_bytes + live[MM_CAT_WORKSPACE];
        for (int c = 0; c < MM_CATEGORIES; c++) room[kept->nodes[i].step] -= live[c];
        enough &= mm_modnn_least_work(m, kept->nodes[i].step) <= mm_align(room[kept->nodes[i].step]);
    }
    return enough;
}

static bool has_choice(const modnn *m) {
    for (int step = 0; step < m->n_steps; step++) {
        int from, to;
        mm_modnn_choice(m, step, &from, &to);
        if (to - from > 1) return true;
    }
    return false;
}

/* If the plan that keeps all maps does not fit, replaces it by one with algorithms of less workspace: one that fits, or
 * the smallest. */
static mm_status trim(const modnn *m, const mm_limits *limits, int64_t *room, mm_plan **kept) {
    enum { TRIES = 4 }; /* chosen: a placement seldom exceeds by much what is alive at once, so few tries are enough */
    if ((*kept)->peak_bytes <= limits->device_bytes || !has_choice(m)) return MM_OK;
    for (int i = find_room(m, *kept, limits, room) ? 0 : TRIES;
         i <= TRIES && (*kept)->peak_bytes > limits->device_bytes; i++) {
        mm_plan *plan;
        const int64_t less = (*kept)->peak_bytes - limits->device_bytes;
        for (int s = 0; s < m->n_steps && i > 0; s++) room[s] = i < TRIES ? room[s] - less : 0;
        MM_TRY(plan_within(m, limits, room, &plan));
        mm_plan_destroy(*kept);
        *kept = plan;
    }
    return MM_OK;
}

/* Makes a plan that keeps all maps: with each step's first algorithm, or (GAIN) with algorithms for which the plan
 * fits, if there are any. */
static mm_status keep_all(const modnn *m, const mm_limits *limits, mm_plan **plan_out) {
    int64_t *room = malloc(((size_t)m->n_steps + 1) * sizeof *room);
    if (!room) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(m->graph));
    mm_plan *kept = NULL;
    for (int s = 0; s < m->n_steps; s++) room[s] = INT64_MAX;
    mm_status status = plan_within(m, limits, room, &kept);
    if (status == MM_OK && m->algorithms == MM_ALGORITHMS_GAIN) status = trim(m, limits, room, &kept);
    free(room);
    if (status == MM_OK)
        *plan_out = kept;
    else
        mm_plan_destroy(kept);
    return status;
}

/* ---------------------------------------------------------------- Algorithm 1 */

/* A schedule, and what the simulation knows of the graph. */
typedef struct work {
    mm_schedule schedule;
    modnn m;
    int64_t least_bytes;
} work;

static void work_fini(work *w) {
    mm_modnn_fini(&w->m);
    mm_schedule_fini(&w->schedule);
}

static mm_status work_init(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                           mm_algorithms algorithms, work *w) {
    MM_TRY(mm_schedule_init(&w->schedule, graph, facts, limits, &sharing));
    const mm_status status = mm_modnn_init(&w->m, &w->schedule, facts, algorithms, &w->least_bytes);
    if (status != MM_OK) work_fini(w);
    return status;
}

/* Plans with Algorithm 1 in `bytes` above the base, or in the least that it needs if that is more. */
static mm_status plan_in(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                         mm_algorithms algorithms, modnn_way way, int64_t bytes, mm_plan **plan_out) {
    work w;
    MM_TRY(work_init(graph, facts, limits, algorithms, &w));
    mm_status status = mm_modnn_run(&w.m, bytes > w.least_bytes ? bytes : w.least_bytes, way);
    if (status == MM_OK) status = mm_modnn_write(&w.m, plan_out);
    work_fini(&w);
    return status;
}

static bool fits(const mm_plan *plan, const mm_limits *limits) {
    return plan->peak_bytes <= limits->device_bytes && plan->pinned_bytes <= limits->pinned_bytes;
}

/* Blocks are aligned, so the last one may end beyond its tensor. A limit that is not aligned is first rounded up, and
 * then down if the plan exceeds it. */
static mm_status plan_offloading(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                 mm_algorithms algorithms, modnn_way way, int64_t external_bytes, mm_plan **plan_out) {
    const int64_t bytes = limits->device_bytes - mm_align(limits->base_bytes) - external_bytes;
    MM_TRY(plan_in(graph, facts, limits, algorithms, way, bytes > 0 ? mm_align(bytes) : 0, plan_out));
    if (bytes <= 0 || bytes % MM_ALIGN == 0 || (*plan_out)->peak_bytes <= limits->device_bytes) return MM_OK;
    mm_plan_destroy(*plan_out);
    return plan_in(graph, facts, limits, algorithms, way, bytes / MM_ALIGN * MM_ALIGN, plan_out);
}

/* ---------------------------------------------------------------- the policy */

static mm_status time_of(const mm_plan *plan, const mm_graph_facts *facts, int64_t *ns_out) {
    mm_simulation simulation;
    MM_TRY(mm_simulate(plan, facts, &simulation));
    *ns_out = simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    return MM_OK;
}

/* Whether the plan that offloads is better. One that fits is better than one that does not; of two that fit, the
 * faster; of two that do not, the smaller, if the one that offloads is within the pinned memory. */
static mm_status is_better(const mm_plan *offloading, const mm_plan *kept, const mm_graph_facts *facts,
                           const mm_limits *limits, bool *better_out) {
    int64_t ns, kept_ns;
    if (fits(offloading, limits) != fits(kept, limits)) {
        *better_out = fits(offloading, limits);
        return MM_OK;
    }
    if (!fits(kept, limits)) {
        *better_out = offloading->pinned_bytes <= limits->pinned_bytes && offloading->peak_bytes < kept->peak_bytes;
        return MM_OK;
    }
    MM_TRY(time_of(offloading, facts, &ns));
    MM_TRY(time_of(kept, facts, &kept_ns));
    *better_out = ns < kept_ns;
    return MM_OK;
}

/* Whether the plan fits, and runs each step by its first variant: nothing is faster. */
static bool keeps_fastest(const mm_plan *kept, const mm_limits *limits) {
    for (int i = 0; i < kept->n_nodes; i++)
        if (kept->nodes[i].variant > 0) return false;
    return fits(kept, limits);
}

/* Plans with Algorithm 1 in one way, with less_bytes less device memory than the limit. *best: replaced if the new plan
 * is better. *enough_out: whether the new plan fits in the reduced memory. */
static mm_status compare(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                         mm_algorithms algorithms, modnn_way way, int64_t less_bytes, mm_plan **best,
                         bool *enough_out) {
    bool better = false;
    mm_plan *plan;
    mm_limits tighter = *limits;
    tighter.device_bytes -= less_bytes;
    MM_TRY(plan_offloading(graph, facts, &tighter, algorithms, way, (*best)->external_bytes, &plan));
    *enough_out = plan->peak_bytes <= tighter.device_bytes;
    const mm_status status = is_better(plan, *best, facts, limits, &better);
    mm_plan_destroy(better ? *best : plan);
    if (better) *best = plan;
    return status;
}

/* How many plans to compare: the more steps, the fewer. A plan of 80 steps takes some ms, one of 10000 a second. */
static int affordable_plans(const mm_graph *graph) {
    enum { PLANS = 32, PLAN_STEPS = 4000 }; /* chosen */
    const int affordable = PLAN_STEPS / (mm_graph_steps(graph) + 1);
    return affordable < 1 ? 1 : affordable < PLANS ? affordable : PLANS;
}

/* Compares the plan that keeps all maps with those of Algorithm 1: in each way, and also with a little less memory,
 * because other maps then leave, which may be better. */
static mm_status choose(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                        mm_algorithms algorithms, mm_plan **best) {
    enum { SHARES = 16 }; /* chosen: the memory is reduced by multiples of a sixteenth */
    static const modnn_way ways[] = {{0}, {.closest = true}, {.fewest = true}, {.closest = true, .fewest = true}};
    const int n_ways = sizeof ways / sizeof *ways, n = affordable_plans(graph);
    const int64_t share = (limits->device_bytes - limits->base_bytes) / SHARES;
    bool enough = true;
    for (int i = 0; i < n && enough; i++)
        MM_TRY(compare(graph, facts, limits, algorithms, ways[i % n_ways], i / n_ways * share, best, &enough));
    return MM_OK;
}

/* For when plans need more pinned memory than there is: finds a plan with a low peak that does not. The more device
 * memory a plan has, the less it copies to pinned memory; so this function bisects between the least memory that a plan
 * takes and what `best`, the plan that keeps all maps, takes. limits->device_bytes does not matter, so the minimum that
 * is found fits every larger budget, too. The more steps, the fewer plans. */
static mm_status find_within_pinned(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                    mm_algorithms algorithms, int64_t least_bytes, mm_plan **best) {
    enum { PLANS = 12, FEWEST = 3, PLAN_STEPS = 24000 }; /* chosen */
    const int affordable = PLAN_STEPS / (mm_graph_steps(graph) + 1);
    const int n = affordable < FEWEST ? FEWEST : affordable < PLANS ? affordable : PLANS;
    const modnn_way way = {0};
    int64_t low = least_bytes - MM_ALIGN, high = (*best)->peak_bytes, at = least_bytes;
    for (int i = 0; i <= n && at > low && at < high; i++) {
        mm_plan *plan;
        mm_limits other = *limits;
        other.device_bytes = at;
        MM_TRY(plan_offloading(graph, facts, &other, algorithms, way, (*best)->external_bytes, &plan));
        const bool within = plan->pinned_bytes <= limits->pinned_bytes;
        const bool better = within && plan->peak_bytes < (*best)->peak_bytes;
        mm_plan_destroy(better ? *best : plan);
        if (better) *best = plan;
        *(within ? &high : &low) = at;
        at = low + (high - low) / 2 / MM_ALIGN * MM_ALIGN;
    }
    return MM_OK;
}

/* For when no plan fits: chooses again as in a budget of just the lowest peak, so that the minimum that is reported is
 * that of the plan that runs there. If only one plan is compared, in the least memory, the result is the plan at
 * hand. */
static mm_status choose_within(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                               mm_algorithms algorithms, int64_t least_bytes, mm_plan **best) {
    mm_limits own = *limits;
    own.device_bytes = (*best)->peak_bytes;
    if (affordable_plans(graph) == 1 && mm_align(own.device_bytes) <= least_bytes) return MM_OK;
    return fits(*best, &own) ? choose(graph, facts, &own, algorithms, best) : MM_OK;
}

static mm_status plan_timed(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                            const mm_engine_config *config, mm_plan **plan_out) {
    work w;
    mm_plan *plan;
    const mm_algorithms algorithms = config->algorithms;
    MM_TRY(work_init(graph, facts, limits, algorithms, &w));
    mm_status status = keep_all(&w.m, limits, &plan);
    const int64_t least_bytes = w.least_bytes;
    work_fini(&w);
    if (status != MM_OK) return status;
    const bool best = algorithms == MM_ALGORITHMS_GAIN ? keeps_fastest(plan, limits) : fits(plan, limits);
    if (config->own[OFFLOAD] && !best) {
        status = mm_nominal_check_times(graph, facts);
        if (status == MM_OK) status = choose(graph, facts, limits, algorithms, &plan);
        const int64_t around = mm_align(limits->base_bytes) + plan->external_bytes;
        if (status == MM_OK && !fits(plan, limits) && plan->pinned_bytes == 0 && limits->pinned_bytes > 0)
            status = find_within_pinned(graph, facts, limits, algorithms, around + least_bytes, &plan);
        if (status == MM_OK && !fits(plan, limits))
            status = choose_within(graph, facts, limits, algorithms, around + least_bytes, &plan);
    }
    if (status == MM_OK)
        *plan_out = plan;
    else
        mm_plan_destroy(plan);
    return status;
}

static mm_status modnn_plan(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                            const mm_engine_config *config, mm_plan **plan_out) {
    if (mm_graph_uses_host(graph))
        return mm_fail(MM_ERR_UNSUPPORTED, "policy modnn keeps weights on the device, but steps of %s run on the host",
                       mm_graph_name(graph));
    mm_graph_facts nominal = {0};
    mm_status status = MM_OK;
    const bool due = mm_nominal_is_due(facts);
    if (due) status = mm_nominal_init(graph, facts, &nominal);
    if (status == MM_OK) status = plan_timed(graph, due ? &nominal : facts, limits, config, plan_out);
    mm_nominal_fini(&nominal);
    return status;
}
static const mm_option_desc modnn_options[] = {
    MM_OPTION_SUB_BATCH("auto"),
    {.key = "algorithms",
     .fallback = "gain",
     .type = MM_OPTION_CHOICE,
     .field = offsetof(mm_engine_config, algorithms),
     .choices = "gain|fastest|least",
     .values = {MM_ALGORITHMS_GAIN, MM_ALGORITHMS_FASTEST, MM_ALGORITHMS_LEAST},
     .help = "of a layer's algorithms, the one that pays in the memory that there is, the fastest, or the one with the "
             "least workspace. Another algorithm rounds otherwise"},
    {.key = "offload",
     .fallback = "on",
     .type = MM_OPTION_CHOICE,
     .field = offsetof(mm_engine_config, own[OFFLOAD]),
     .choices = "on|off",
     .values = {1, 0},
     .help = "copy maps to host memory and back, or keep all on the device"},
    {0},
};

const mm_policy_ops mm_policy_modnn = {
    .name = "modnn",
    .summary = "maps that do not fit leave when their bytes are needed, and come back in time (moDNN)",
    .options = modnn_options,
    .config = {.sub_batch = MM_SUB_BATCH_AUTO, .algorithms = MM_ALGORITHMS_GAIN, .own = {[OFFLOAD] = 1}},
    .plan = modnn_plan,
};

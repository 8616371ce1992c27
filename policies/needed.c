/* when=needed: no more than the budget forces. */
#include "mm/core/simulate.h"
#include "mm/core/status.h"
#include "policies/engine.h"

/* How many plans are compared at the most. */
enum { CANDIDATES = 64, CANDIDATES_LARGE = 16, LARGE_STEPS = 4000 };

static bool fits(const mm_plan *plan, const mm_limits *limits) {
    return plan->peak_bytes <= limits->device_bytes && plan->pinned_bytes <= limits->pinned_bytes;
}

static mm_status step_time(const mm_plan *plan, const mm_facts *facts, int64_t *ns_out) {
    mm_simulation simulation;
    MM_TRY(mm_simulate(plan, facts, &simulation));
    *ns_out = simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    return MM_OK;
}

typedef struct contest {
    const mm_facts *facts;
    const mm_limits *limits;
    mm_plan *best;
    bool best_fits;
    int64_t best_ns;
} contest;

/* What fits is better than what does not, then what is faster; of plans that do not fit, what is within the pinned
 * memory, then what needs less. Takes the plan. */
static mm_status enter(contest *c, mm_plan *plan) {
    int64_t ns = 0;
    bool is_fit = fits(plan, c->limits), better = !c->best;
    mm_status status = is_fit ? step_time(plan, c->facts, &ns) : MM_OK;
    if (status == MM_OK && c->best) {
        bool pinned = plan->pinned_bytes <= c->limits->pinned_bytes;
        bool best_pinned = c->best->pinned_bytes <= c->limits->pinned_bytes;
        if (is_fit != c->best_fits)
            better = is_fit;
        else if (is_fit)
            better = ns < c->best_ns;
        else
            better = pinned != best_pinned ? pinned : plan->peak_bytes < c->best->peak_bytes;
    }
    if (status != MM_OK || !better) {
        mm_plan_destroy(plan);
        return status;
    }
    mm_plan_destroy(c->best);
    c->best = plan;
    c->best_fits = is_fit;
    c->best_ns = ns;
    return MM_OK;
}

/* Enters the plan for the first `limit` maps. */
static mm_status enter_maps(contest *c, const mm_graph *graph, const mm_engine_config *config, int limit,
                            int *eligible_out) {
    mm_plan *plan;
    mm_status status = mm_engine_plan_maps(graph, c->facts, c->limits, config, limit, eligible_out, &plan);
    return status == MM_OK ? enter(c, plan) : status;
}

static mm_status compare(contest *c, const mm_graph *graph, const mm_engine_config *config) {
    int eligible = 0, ignored;
    MM_TRY(enter_maps(c, graph, config, 0, &eligible));
    if (c->best_fits) return MM_OK;
    int candidates = mm_graph_steps(graph) > LARGE_STEPS ? CANDIDATES_LARGE : CANDIDATES;
    if (candidates > eligible) candidates = eligible;
    /* Without times the first that fits is as good as any. */
    for (int i = 1; i <= candidates && !(c->best_fits && c->best_ns == 0); i++) {
        int limit = i < candidates ? (int)((int64_t)eligible * i / candidates) : INT32_MAX;
        mm_status status = enter_maps(c, graph, config, limit, &ignored);
        if (status != MM_OK && status != MM_ERR_INFEASIBLE) return status; /* too few buffers for so many maps */
    }
    return MM_OK;
}

mm_status mm_engine_plan_needed(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                                const mm_engine_config *config, mm_plan **plan_out) {
    contest c = {.facts = facts, .limits = limits};
    mm_status status = compare(&c, graph, config);
    if (status == MM_OK)
        *plan_out = c.best;
    else
        mm_plan_destroy(c.best);
    return status;
}

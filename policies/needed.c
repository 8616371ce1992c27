/* when=needed: no more than the budget forces. */
#include "mm/core/simulate.h"
#include "mm/core/status.h"
#include "policies/engine.h"

/* Numbers of maps that are tried in each way. */
enum { LIMITS = 32, LIMITS_LARGE = 8, LARGE_STEPS = 4000, DEEPER = 4 };

/* A way to act on some of the maps. What goes beside the computation is best spread over it: the first maps alone leave
 * one right after the other, and come back so. A slow link wants to begin earlier; buffers for all maps may take more
 * than placing each by its life. */
typedef struct way {
    bool spread, deeper, placed;
} way;

static const way ways[] = {
    {.spread = true},
    {.spread = false},
    {.spread = true, .deeper = true},
    {.spread = true, .placed = true},
    {.spread = true, .deeper = true, .placed = true},
};

/* Whether the way is another than those before it. */
static bool makes_a_difference(const way *w, const mm_engine_config *config) {
    if (w->spread && config->fetch == MM_FETCH_DEMAND) return false; /* nothing goes beside the computation */
    if (w->deeper && config->fetch != MM_FETCH_DEPTH) return false;
    return !w->placed || (config->buffers == MM_REGION_BUFFERS && config->k == 0);
}

static mm_status step_time(const mm_plan *plan, const mm_facts *facts, int64_t *ns_out) {
    mm_simulation simulation;
    MM_TRY(mm_simulate(plan, facts, &simulation));
    *ns_out = simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    return MM_OK;
}

/* One of the plans that are compared. */
typedef struct candidate {
    mm_engine_config config;
    mm_selection selection;
    mm_plan *plan;
    bool fits, fits_pinned;
    int64_t ns; /* of what fits */
} candidate;

typedef struct contest {
    const mm_graph *graph;
    const mm_facts *facts;
    const mm_limits *limits;
    int eligible;
    candidate best;
    candidate least; /* the one with the lowest peak of those within the pinned memory; its plan is not kept */
    int64_t least_bytes;
} contest;

/* What fits is better than what does not, then what is faster; of plans that do not fit, what is within the pinned
 * memory, then what needs less. */
static bool is_better(const candidate *a, const candidate *b) {
    if (a->fits != b->fits) return a->fits;
    if (a->fits) return a->ns < b->ns;
    if (a->fits_pinned != b->fits_pinned) return a->fits_pinned;
    return a->plan->peak_bytes < b->plan->peak_bytes;
}

static mm_status enter(contest *c, const mm_engine_config *config, const mm_selection *selection, int *eligible_out) {
    candidate new = {.config = *config, .selection = *selection};
    MM_TRY(mm_engine_plan_maps(c->graph, c->facts, c->limits, config, selection, eligible_out, &new.plan));
    int64_t peak = new.plan->peak_bytes;
    new.fits_pinned = new.plan->pinned_bytes <= c->limits->pinned_bytes;
    new.fits = new.fits_pinned &&peak <= c->limits->device_bytes;
    mm_status status = new.fits ? step_time(new.plan, c->facts, &new.ns) : MM_OK;
    if (status == MM_OK && new.fits_pinned && peak < c->least_bytes) {
        c->least = new;
        c->least_bytes = peak;
    }
    bool better = status == MM_OK && (!c->best.plan || is_better(&new, &c->best));
    mm_plan_destroy(better ? c->best.plan : new.plan);
    if (better) c->best = new;
    return status;
}

/* Without times the first that fits is as good as any. */
static bool is_decided(const contest *c) { return c->best.fits && c->best.ns == 0; }

/* As `enter`; a plan that takes more buffers than it may have is passed over. */
static mm_status enter_if_possible(contest *c, const mm_engine_config *config, const mm_selection *selection) {
    int ignored;
    mm_status status = enter(c, config, selection, &ignored);
    return status == MM_ERR_INFEASIBLE ? MM_OK : status;
}

static mm_status try_way(contest *c, const mm_engine_config *config, const way *w) {
    mm_engine_config changed = *config;
    if (w->deeper) changed.depth *= DEEPER;
    if (w->placed) changed.buffers = MM_REGION_GENERAL;
    int limits = mm_graph_steps(c->graph) > LARGE_STEPS ? LIMITS_LARGE : LIMITS;
    if (limits > c->eligible) limits = c->eligible;
    for (int i = 1; i <= limits && !is_decided(c); i++) {
        mm_selection some = {.limit = (int)((int64_t)c->eligible * i / limits), .quick = true};
        if (w->spread) some.of = c->eligible;
        if (i == limits) some = (mm_selection){.limit = INT32_MAX};
        MM_TRY(enter_if_possible(c, &changed, &some));
    }
    return MM_OK;
}

static mm_status compare(contest *c, const mm_engine_config *config) {
    const mm_selection none = {.limit = 0};
    MM_TRY(enter(c, config, &none, &c->eligible));
    if (c->best.fits) return MM_OK;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (makes_a_difference(&ways[i], config)) MM_TRY(try_way(c, config, &ways[i]));
    if (is_decided(c)) return MM_OK;
    /* What needs least is worth a search. Which that is does not depend on the budget either. */
    candidate least = c->least;
    if (c->least_bytes == INT64_MAX || !least.selection.quick) return MM_OK;
    least.selection.quick = false;
    return enter_if_possible(c, &least.config, &least.selection);
}

mm_status mm_engine_plan_needed(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                                const mm_engine_config *config, mm_plan **plan_out) {
    contest c = {.graph = graph, .facts = facts, .limits = limits, .least_bytes = INT64_MAX};
    mm_status status = compare(&c, config);
    if (status == MM_OK)
        *plan_out = c.best.plan;
    else
        mm_plan_destroy(c.best.plan);
    return status;
}

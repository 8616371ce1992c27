/* when=needed: no more than the budget forces. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/simulate.h"
#include "mm/core/status.h"
#include "policies/engine.h"
#include "policies/nominal.h"

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
    const mm_facts *facts; /* with times, measured or nominal */
    const mm_limits *limits;
    int eligible;
    bool refused; /* some that would take more buffers than they may have */
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
    candidate entry = {.config = *config, .selection = *selection};
    MM_TRY(mm_engine_plan_maps(c->graph, c->facts, c->limits, config, selection, eligible_out, &entry.plan));
    int64_t peak = entry.plan->peak_bytes;
    entry.fits_pinned = entry.plan->pinned_bytes <= c->limits->pinned_bytes;
    entry.fits = entry.fits_pinned && peak <= c->limits->device_bytes;
    mm_status status = entry.fits ? step_time(entry.plan, c->facts, &entry.ns) : MM_OK;
    if (status == MM_OK && entry.fits_pinned && peak < c->least_bytes) {
        c->least = entry;
        c->least_bytes = peak;
    }
    bool better = status == MM_OK && (!c->best.plan || is_better(&entry, &c->best));
    mm_plan_destroy(better ? c->best.plan : entry.plan);
    if (better) c->best = entry;
    return status;
}

/* As `enter`; a plan that takes more buffers than it may have is passed over. */
static mm_status enter_if_possible(contest *c, const mm_engine_config *config, const mm_selection *selection) {
    int ignored;
    mm_status status = enter(c, config, selection, &ignored);
    c->refused |= status == MM_ERR_INFEASIBLE;
    return status == MM_ERR_INFEASIBLE ? MM_OK : status;
}

static mm_status try_way(contest *c, const mm_engine_config *config, const way *w) {
    mm_engine_config changed = *config;
    if (w->deeper) changed.depth *= DEEPER;
    if (w->placed) changed.buffers = MM_REGION_GENERAL;
    int limits = mm_graph_steps(c->graph) > LARGE_STEPS ? LIMITS_LARGE : LIMITS;
    if (limits > c->eligible) limits = c->eligible;
    for (int i = 1; i <= limits; i++) {
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
    if (c->refused && c->best.selection.limit == 0) { /* says why nothing is done: as for all maps */
        const mm_selection all = {.limit = INT32_MAX};
        MM_TRY(enter(c, config, &all, &c->eligible));
    }
    /* What needs least is worth a search. Which that is does not depend on the budget either. */
    candidate least = c->least;
    if (c->least_bytes == INT64_MAX || !least.selection.quick) return MM_OK;
    least.selection.quick = false;
    return enter_if_possible(c, &least.config, &least.selection);
}

/* The facts with nominal times, in arrays of their own; the rest is borrowed. */
static mm_status nominal_init(const mm_graph *graph, const mm_facts *facts, mm_facts *nominal) {
    size_t variants = (size_t)facts->variant_first[facts->n_steps] * sizeof *facts->variants;
    size_t codes = (size_t)facts->n_codecs * (size_t)facts->n_tensors * sizeof *facts->codes;
    *nominal = *facts;
    nominal->variants = malloc(variants + 1);
    nominal->codes = malloc(codes + 1);
    if (!nominal->variants || !nominal->codes)
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
    memcpy(nominal->variants, facts->variants, variants);
    memcpy(nominal->codes, facts->codes, codes);
    mm_nominal_times(graph, nominal);
    return MM_OK;
}

mm_status mm_engine_plan_needed(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                                const mm_engine_config *config, mm_plan **plan_out) {
    mm_facts nominal = {0};
    contest c = {.graph = graph, .facts = facts, .limits = limits, .least_bytes = INT64_MAX};
    mm_status status = MM_OK;
    if (mm_nominal_is_due(facts)) {
        status = nominal_init(graph, facts, &nominal);
        c.facts = &nominal;
    }
    if (status == MM_OK) status = compare(&c, config);
    if (status == MM_OK)
        *plan_out = c.best.plan;
    else
        mm_plan_destroy(c.best.plan);
    free(nominal.variants);
    free(nominal.codes);
    return status;
}

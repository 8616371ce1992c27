/* when=needed: no more than the budget forces. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/simulate.h"
#include "mm/core/status.h"
#include "policies/engine.h"
#include "policies/nominal.h"

/* Numbers of maps that are tried in each way: of a graph of more steps fewer, so that it takes no longer. */
enum { LIMITS = 32, LIMITS_LEAST = 8, LARGE_STEPS = 1100, DEEPER = 4 };

static int limits_of(const mm_graph *graph) {
    int64_t steps = mm_graph_steps(graph),
            limits = steps > LARGE_STEPS ? (int64_t)LIMITS * LARGE_STEPS / steps : LIMITS;
    return limits > LIMITS_LEAST ? (int)limits : LIMITS_LEAST;
}

/* A way to act on some of the maps. What goes beside the computation is best spread over it: the first maps alone leave
 * one right after the other, and come back so. A slow link wants to begin earlier; buffers for all maps may take more
 * than placing each by its life, and so may a region for codes, which is idle for half of the time (`loose`). What one
 * rule does may cost less than what the next does: `ranked` does all of the one first. */
typedef struct way {
    bool spread, ranked, deeper, placed, loose;
} way;

static const way ways[] = {
    {.spread = true},
    {.spread = false},
    {.spread = true, .deeper = true},
    {.spread = true, .placed = true},
    {.spread = true, .deeper = true, .placed = true},
    {.spread = true, .placed = true, .loose = true},
    {.spread = true, .ranked = true, .placed = true, .loose = true},
    {.spread = true, .ranked = true, .deeper = true, .placed = true, .loose = true},
};
enum { WAYS = sizeof ways / sizeof *ways };

static bool keeps_codes(const mm_engine_config *config) {
    for (int r = 0; r < config->n_rules; r++)
        if (config->rules[r].action == MM_ACTION_CODE) return config->codes == MM_REGION_CODES;
    return false;
}

/* Whether the way is another than those before it. */
static bool makes_a_difference(const way *w, const mm_engine_config *config) {
    if (w->spread && config->fetch == MM_FETCH_DEMAND) return false; /* nothing goes beside the computation */
    if (w->deeper && config->fetch != MM_FETCH_DEPTH) return false;
    if (w->ranked && config->n_rules < 2) return false;
    if (w->loose && !w->ranked && !keeps_codes(config)) return false;
    return !w->placed || (config->buffers == MM_REGION_BUFFERS && config->k == 0);
}

static mm_engine_config config_of(const way *w, const mm_engine_config *config) {
    mm_engine_config changed = *config;
    if (w->deeper) changed.depth *= DEEPER;
    if (w->placed) changed.buffers = MM_REGION_GENERAL;
    if (w->loose && config->codes == MM_REGION_CODES) changed.codes = MM_REGION_GENERAL;
    return changed;
}

/* ---------------------------------------------------------------- the contest */

/* One of the plans that are compared. */
typedef struct candidate {
    way way;
    mm_selection selection;
    int order;     /* in which they enter */
    int64_t bytes; /* its peak; what that is at the least, as long as it is not placed */
    int64_t ns;    /* its step; the same */
} candidate;

typedef struct contest {
    const mm_graph *graph;
    const mm_facts *facts; /* with times, measured or nominal */
    mm_limits limits;
    const mm_engine_config *config;
    mm_survey *survey;
    int eligible, *of_rule; /* maps to select from, and how many of them each rule acts on */
    bool refused;           /* some that would take more buffers than they may have */
    candidate *candidates;  /* all that may be within the pinned memory */
    int n, entered;
    candidate best;
    mm_plan *plan; /* of the best */
    bool fits, fits_pinned;
    candidate least; /* the one with the lowest peak of those within the pinned memory */
} contest;

/* Of equal ones the first. */
static int by_order(const candidate *x, const candidate *y) { return (x->order > y->order) - (x->order < y->order); }

static int by_bytes(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes) : by_order(x, y);
}

static int by_ns(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return x->ns != y->ns ? (x->ns > y->ns) - (x->ns < y->ns) : by_order(x, y);
}

static mm_status step_time(const mm_plan *plan, const mm_facts *facts, int64_t *ns_out) {
    mm_simulation simulation;
    MM_TRY(mm_simulate(plan, facts, &simulation));
    *ns_out = simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    return MM_OK;
}

/* What fits is better than what does not, then what is faster; of plans that do not fit, what is within the pinned
 * memory, then what needs less. */
static bool is_better(const contest *c, const candidate *placed, bool fits, bool fits_pinned) {
    if (!c->plan) return true;
    if (fits != c->fits) return fits;
    if (fits) return by_ns(placed, &c->best) < 0;
    if (fits_pinned != c->fits_pinned) return fits_pinned;
    return by_bytes(placed, &c->best) < 0;
}

static mm_status compare_plan(contest *c, candidate *placed, mm_plan *plan) {
    bool fits_pinned = plan->pinned_bytes <= c->limits.pinned_bytes;
    bool fits = fits_pinned && plan->peak_bytes <= c->limits.device_bytes;
    mm_status status = fits ? step_time(plan, c->facts, &placed->ns) : MM_OK;
    placed->bytes = plan->peak_bytes;
    if (status == MM_OK && fits_pinned && by_bytes(placed, &c->least) < 0) c->least = *placed;
    bool better = status == MM_OK && is_better(c, placed, fits, fits_pinned);
    mm_plan_destroy(better ? c->plan : plan);
    if (!better) return status;
    c->plan = plan;
    c->best = *placed;
    c->fits = fits;
    c->fits_pinned = fits_pinned;
    return MM_OK;
}

static mm_status plan_one(contest *c, candidate one, mm_layout_algorithm layout) {
    mm_engine_config config = config_of(&one.way, c->config);
    mm_plan *plan;
    MM_TRY(mm_engine_plan_maps(c->survey, &config, &one.selection, layout, &plan));
    return compare_plan(c, &one, plan);
}

/* A plan that takes more buffers than it may have is passed over. */
static mm_status pass_over_refused(contest *c, mm_status status) {
    c->refused |= status == MM_ERR_INFEASIBLE;
    return status == MM_ERR_INFEASIBLE ? MM_OK : status;
}

static mm_status place(contest *c, const candidate *one, mm_layout_algorithm layout) {
    return pass_over_refused(c, plan_one(c, *one, layout));
}

/* Which of two ways to find places makes others wait less cannot be told beforehand, nor which ends lower where both
 * are as high: the last segment need not fill its units. */
static mm_status place_quickly(contest *c, const candidate *one) {
    MM_TRY(place(c, one, MM_LAYOUT_MODNN));
    return place(c, one, MM_LAYOUT_QUICK);
}

/* ---------------------------------------------------------------- who enters */

/* `of_rule_out`: NULL: not asked. */
static mm_status enter(contest *c, candidate one, int *eligible_out, int *of_rule_out) {
    mm_engine_config config = config_of(&one.way, c->config);
    mm_bounds bounds = {.pinned_bytes = INT64_MAX};
    mm_status status =
        mm_engine_bound_maps(c->survey, &config, &one.selection, eligible_out, of_rule_out, &bounds, &one.ns);
    one.bytes = bounds.peak_bytes;
    if (status == MM_OK && bounds.pinned_bytes <= c->limits.pinned_bytes) c->candidates[c->n++] = one;
    return pass_over_refused(c, status);
}

static mm_status enter_way(contest *c, const way *w) {
    int limits = limits_of(c->graph);
    if (w->loose && limits == LIMITS_LEAST) limits /= 2;
    if (limits > c->eligible) limits = c->eligible;
    int ignored;
    for (int i = 1; i <= limits; i++) {
        candidate some = {.way = *w, .order = ++c->entered};
        some.selection = (mm_selection){.limit = (int)((int64_t)c->eligible * i / limits)};
        if (w->spread) some.selection.of = c->eligible;
        if (w->ranked) some.selection.of_rule = c->of_rule;
        if (i == limits) some.selection = (mm_selection){.limit = INT32_MAX};
        MM_TRY(enter(c, some, &ignored, NULL));
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- who wins
 *
 * The fastest that fits, and it does not depend on the budget which are compared: what is passed over would not have
 * won. What needs least is worth a longer search for its places, which competes with the others. */

static mm_status find_fastest(contest *c) {
    qsort(c->candidates, (size_t)c->n, sizeof *c->candidates, by_ns);
    for (int i = 0; i < c->n && (!c->fits || c->candidates[i].ns <= c->best.ns); i++)
        if (c->candidates[i].bytes <= c->limits.device_bytes) MM_TRY(place_quickly(c, &c->candidates[i]));
    return MM_OK;
}

/* Whether what needs least, which one that may be, might win. */
static bool least_matters(const contest *c) {
    if (!c->fits) return true;
    for (int i = 0; i < c->n; i++)
        if (c->candidates[i].ns <= c->best.ns && c->candidates[i].bytes <= c->least.bytes) return true;
    return false;
}

static mm_status find_least(contest *c) {
    if (!least_matters(c)) return MM_OK;
    qsort(c->candidates, (size_t)c->n, sizeof *c->candidates, by_bytes);
    for (int i = 0; i < c->n && c->candidates[i].bytes < c->least.bytes; i++)
        MM_TRY(place_quickly(c, &c->candidates[i]));
    for (int i = 0; i < c->n && c->candidates[i].bytes + MM_ALIGN <= c->least.bytes; i++)
        MM_TRY(place(c, &c->candidates[i], MM_LAYOUT_BEST));
    return MM_OK;
}

static mm_status compare(contest *c) {
    const candidate none = {.selection = {.limit = 0}}, all = {.selection = {.limit = INT32_MAX}};
    MM_TRY(enter(c, none, &c->eligible, c->of_rule));
    if (c->n > 0 && c->candidates[0].bytes <= c->limits.device_bytes) MM_TRY(plan_one(c, none, MM_LAYOUT_BEST));
    if (c->fits) return MM_OK;
    for (int i = 0; i < WAYS; i++)
        if (makes_a_difference(&ways[i], c->config)) MM_TRY(enter_way(c, &ways[i]));
    MM_TRY(find_fastest(c));
    MM_TRY(find_least(c));
    /* Says why nothing is done: as for all maps. */
    return c->refused && c->best.selection.limit == 0 ? plan_one(c, all, MM_LAYOUT_BEST) : MM_OK;
}

static mm_status compare_within(contest *c, int64_t device_bytes, int64_t pinned_bytes) {
    c->limits.device_bytes = device_bytes;
    c->limits.pinned_bytes = pinned_bytes;
    mm_plan_destroy(c->plan);
    c->plan = NULL;
    c->n = c->entered = 0;
    c->fits = c->fits_pinned = c->refused = false;
    c->best = (candidate){0};
    c->least = (candidate){.bytes = INT64_MAX};
    return compare(c);
}

/* Where nothing fits, the plan is that of the smallest budget in which anything does, so that what is told of the least
 * is what runs in it: of the plans that need so little the fastest. A search that goes by time may end lower still. */
static mm_status find_plan(contest *c, int64_t device_bytes, int64_t pinned_bytes) {
    MM_TRY(compare_within(c, device_bytes, pinned_bytes));
    while (c->fits_pinned &&
           (!c->fits || (c->limits.device_bytes > device_bytes && c->plan->peak_bytes < c->limits.device_bytes)))
        MM_TRY(compare_within(c, c->plan->peak_bytes, pinned_bytes));
    return MM_OK;
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

/* The plan does not depend on the limit of pinned memory if it is within it: so it stays the same where it is given just
 * what it takes. */
static mm_status hold(contest *c, const mm_limits *limits) {
    c->candidates = malloc((1 + (size_t)WAYS * LIMITS) * sizeof *c->candidates);
    c->of_rule = calloc((size_t)c->config->n_rules + 1, sizeof *c->of_rule);
    if (!c->candidates || !c->of_rule)
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(c->graph));
    MM_TRY(mm_survey_create(c->graph, c->facts, &c->limits, c->config, &c->survey));
    MM_TRY(find_plan(c, limits->device_bytes, INT64_MAX));
    return c->plan->pinned_bytes <= limits->pinned_bytes ? MM_OK
                                                         : find_plan(c, limits->device_bytes, limits->pinned_bytes);
}

mm_status mm_engine_plan_needed(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                                const mm_engine_config *config, mm_plan **plan_out) {
    mm_facts nominal = {0}, near = *facts;
    contest c = {.graph = graph, .facts = &near, .limits = *limits, .config = config};
    mm_status status = MM_OK;
    near.far_ps_per_byte = 0; /* that a small memory is faster is no reason to do something where nothing is forced */
    if (mm_nominal_is_due(facts)) {
        status = nominal_init(graph, &near, &nominal);
        c.facts = &nominal;
    }
    if (status == MM_OK) status = hold(&c, limits);
    if (status == MM_OK)
        *plan_out = c.plan;
    else
        mm_plan_destroy(c.plan);
    mm_survey_destroy(c.survey);
    free(c.candidates);
    free(c.of_rule);
    free(nominal.variants);
    free(nominal.codes);
    return status;
}

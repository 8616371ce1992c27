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

/* ---------------------------------------------------------------- one of the plans that are compared */

typedef struct candidate {
    way way;
    mm_selection selection;
    int order;     /* of those that are compared */
    int64_t bytes; /* its peak; what that is at the least, as long as it is not placed */
} candidate;

/* Of equal ones the first. */
static int by_bytes(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static mm_status step_time(const mm_plan *plan, const mm_facts *facts, int64_t *ns_out) {
    mm_simulation simulation;
    MM_TRY(mm_simulate(plan, facts, &simulation));
    *ns_out = simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    return MM_OK;
}

/* What a plan takes at the least in time, whatever waits for whatever: no stream less than its own work, and the
 * computation is slowed down for as long as others work beside it. */
static int64_t least_ns(const mm_plan *plan, const mm_facts *facts) {
    double busy[MM_STREAM_COUNT] = {0}, most = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (mm_node_runs_step(n)) {
            busy[n->stream] += (double)mm_simulate_step_ns(facts, n);
        } else if (n->kind == MM_NODE_OUT || n->kind == MM_NODE_IN) {
            int64_t rate = n->kind == MM_NODE_OUT ? facts->out_bytes_per_s : facts->in_bytes_per_s;
            if (rate > 0) busy[n->stream] += (double)plan->segments[n->dst].bytes / (double)rate * 1e9;
        } else {
            int code = plan->segments[n->kind == MM_NODE_ENCODE ? n->dst : n->src].codec;
            const mm_code_facts *c = mm_facts_code(facts, code, n->tensor);
            busy[n->stream] += (double)(n->kind == MM_NODE_ENCODE ? c->encode_ns : c->decode_ns);
        }
    }
    const struct {
        mm_stream_id a, b;
        int permille;
    } beside[] = {{MM_STREAM_ENCODE, MM_STREAM_DECODE, facts->contention_permille},
                  {MM_STREAM_OUT, MM_STREAM_IN, facts->link_contention_permille}};
    for (int i = 0; i < 2; i++) {
        double longer = busy[beside[i].a] > busy[beside[i].b] ? busy[beside[i].a] : busy[beside[i].b];
        double slowed = busy[MM_STREAM_COMPUTE] + longer * beside[i].permille / (1000.0 + beside[i].permille);
        if (longer > most) most = longer;
        if (slowed > most) most = slowed;
    }
    /* The simulator rounds at the end of each piece, and speeds to millionths. */
    double rounding = 16.0 * plan->n_nodes + most * 4e-6;
    return most > rounding ? (int64_t)(most - rounding) : 0;
}

/* ---------------------------------------------------------------- the contest */

typedef enum stage {
    STAGE_FIRST, /* those that can be the fastest are placed; those that can only be the least wait */
    STAGE_LEAST, /* they are placed, too, until it is known which needs least */
    STAGE_BEST,  /* and that one with a longer search */
} stage;

typedef struct contest {
    const mm_graph *graph;
    const mm_facts *facts; /* with times, measured or nominal */
    const mm_limits *limits;
    const mm_engine_config *config;
    stage stage;
    mm_eligible eligible;
    int entered;
    bool refused; /* some that would take more buffers than they may have */
    candidate entering;
    candidate best;
    mm_plan *plan; /* of the best */
    bool fits, fits_pinned;
    int64_t ns;      /* of a best that fits */
    candidate least; /* the one with the lowest peak of those within the pinned memory */
    candidate *waiting;
    int n_waiting;
} contest;

/* Whether what enters can change the outcome. Nothing that is passed over would: so which plans are compared does not
 * depend on the budget. */
static bool passes(void *ctx, const mm_plan *plan, const mm_bounds *bounds) {
    contest *c = ctx;
    if (bounds->pinned_bytes > c->limits->pinned_bytes) return false;
    bool fits = bounds->peak_bytes <= c->limits->device_bytes;
    if (fits && (!c->fits || least_ns(plan, c->facts) < c->ns)) return true;
    c->entering.bytes = bounds->peak_bytes;
    if (c->stage == STAGE_BEST) return !c->fits && bounds->peak_bytes < c->least.bytes;
    if (by_bytes(&c->entering, &c->least) >= 0) return false;
    if (c->stage == STAGE_FIRST) c->waiting[c->n_waiting++] = c->entering;
    return c->stage == STAGE_LEAST;
}

/* What fits is better than what does not, then what is faster; of plans that do not fit, what is within the pinned
 * memory, then what needs less. */
static bool is_better(const contest *c, const mm_plan *plan, bool fits, bool fits_pinned, int64_t ns) {
    if (!c->plan) return true;
    if (fits != c->fits) return fits;
    if (fits) return ns < c->ns || (ns == c->ns && c->entering.order < c->best.order);
    if (fits_pinned != c->fits_pinned) return fits_pinned;
    return by_bytes(&c->entering, &c->best) < 0 || (c->stage == STAGE_BEST && plan->peak_bytes < c->best.bytes);
}

static mm_status compare_plan(contest *c, mm_plan *plan) {
    int64_t ns = 0;
    bool fits_pinned = plan->pinned_bytes <= c->limits->pinned_bytes;
    bool fits = fits_pinned && plan->peak_bytes <= c->limits->device_bytes;
    mm_status status = fits ? step_time(plan, c->facts, &ns) : MM_OK;
    c->entering.bytes = plan->peak_bytes;
    if (status == MM_OK && fits_pinned && by_bytes(&c->entering, &c->least) < 0) c->least = c->entering;
    bool better = status == MM_OK && is_better(c, plan, fits, fits_pinned, ns);
    mm_plan_destroy(better ? c->plan : plan);
    if (!better) return status;
    c->plan = plan;
    c->best = c->entering;
    c->fits = fits;
    c->fits_pinned = fits_pinned;
    c->ns = ns;
    return MM_OK;
}

static mm_status enter(contest *c, const candidate *entering, mm_eligible *eligible_out) {
    const mm_sieve sieve = {passes, c};
    mm_engine_config config = config_of(&entering->way, c->config);
    mm_plan *plan;
    c->entering = *entering;
    MM_TRY(
        mm_engine_plan_maps(c->graph, c->facts, c->limits, &config, &entering->selection, &sieve, eligible_out, &plan));
    return plan ? compare_plan(c, plan) : MM_OK;
}

/* As `enter`; a plan that takes more buffers than it may have is passed over. */
static mm_status enter_if_possible(contest *c, const candidate *entering) {
    mm_eligible ignored;
    mm_status status = enter(c, entering, &ignored);
    c->refused |= status == MM_ERR_INFEASIBLE;
    return status == MM_ERR_INFEASIBLE ? MM_OK : status;
}

static mm_status try_way(contest *c, const way *w) {
    int limits = limits_of(c->graph);
    if (w->loose && limits == LIMITS_LEAST) limits /= 2;
    if (limits > c->eligible.n) limits = c->eligible.n;
    for (int i = 1; i <= limits; i++) {
        candidate some = {.way = *w, .order = ++c->entered};
        some.selection = (mm_selection){.limit = (int)((int64_t)c->eligible.n * i / limits), .quick = true};
        if (w->spread) some.selection.of = c->eligible.n;
        if (w->ranked) some.selection.of_rule = c->eligible.of_rule;
        if (i == limits) some.selection = (mm_selection){.limit = INT32_MAX};
        MM_TRY(enter_if_possible(c, &some));
    }
    return MM_OK;
}

/* What needs least is worth a search. Which that is does not depend on the budget either. */
static mm_status find_least(contest *c) {
    c->stage = STAGE_LEAST;
    qsort(c->waiting, (size_t)c->n_waiting, sizeof *c->waiting, by_bytes);
    for (int i = 0; i < c->n_waiting && by_bytes(&c->waiting[i], &c->least) < 0; i++)
        MM_TRY(enter_if_possible(c, &c->waiting[i]));
    return MM_OK;
}

static mm_status search_least(contest *c) {
    candidate least = c->least;
    if (least.bytes == INT64_MAX || !least.selection.quick) return MM_OK;
    least.selection.quick = false;
    c->stage = STAGE_BEST;
    return enter_if_possible(c, &least);
}

static mm_status compare(contest *c) {
    const candidate none = {.selection = {.limit = 0}};
    MM_TRY(enter(c, &none, &c->eligible));
    if (c->fits) return MM_OK;
    for (int i = 0; i < WAYS; i++)
        if (makes_a_difference(&ways[i], c->config)) MM_TRY(try_way(c, &ways[i]));
    MM_TRY(find_least(c));
    if (c->refused && c->best.selection.limit == 0) { /* says why nothing is done: as for all maps */
        const candidate all = {.selection = {.limit = INT32_MAX}, .order = ++c->entered};
        MM_TRY(enter(c, &all, &c->eligible));
    }
    return search_least(c);
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
    contest c = {.graph = graph, .facts = facts, .limits = limits, .config = config, .least.bytes = INT64_MAX};
    c.waiting = malloc((1 + (size_t)WAYS * LIMITS) * sizeof *c.waiting);
    mm_status status = c.waiting ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
    if (status == MM_OK && mm_nominal_is_due(facts)) {
        status = nominal_init(graph, facts, &nominal);
        c.facts = &nominal;
    }
    if (status == MM_OK) status = compare(&c);
    if (status == MM_OK)
        *plan_out = c.plan;
    else
        mm_plan_destroy(c.plan);
    free(c.waiting);
    free(nominal.variants);
    free(nominal.codes);
    return status;
}

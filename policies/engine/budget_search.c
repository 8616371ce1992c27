/* SPDX-License-Identifier: MIT */
/* when=needed: compares plans that act on more and more maps, and takes the fastest that fits. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/core/time/simulate.h"
#include "policies/engine/engine.h"
#include "policies/schedule/draft_time.h"
#include "policies/schedule/nominal.h"

/* LIMITS: how many numbers of maps are tried in each way; proportionally fewer for more than LARGE_STEPS steps, down to
 * LIMITS_LEAST. All are chosen: 32 numbers are 3 % of the maps apart, and planning the deepest networks takes 0.2 to
 * 0.8 s, a refusal up to 1.2 s (measured, tools/bench/README.md). DEEPER, the factor of a deeper fetch, is chosen,
 * too. */
enum { LIMITS = 32, LIMITS_LEAST = 8, LARGE_STEPS = 1100, DEEPER = 4 };

/* RECOMPUTE_NESTED keeps some maps, which later rules may evict: all of them, or (s / SHARES) of them for each s below
 * SHARES. Chosen. */
enum { SHARES = 3 };

static int limits_of(const mm_graph *graph) {
    int64_t steps = mm_graph_steps(graph),
            limits = steps > LARGE_STEPS ? (int64_t)LIMITS * LARGE_STEPS / steps : LIMITS;
    return limits > LIMITS_LEAST ? (int)limits : LIMITS_LEAST;
}

/* A way to act on some of the maps. No way is best for all networks, so all are compared. */
typedef struct way {
    bool spread; /* acts on maps spread evenly over the network, so that copies are spread, too; else on the first */
    bool ranked; /* takes all maps of a rule before any of the next rule's, which may cost more */
    bool deeper; /* fetches begin earlier, for a slow link */
    bool placed; /* places maps by lifetime, which may take less than tensor buffers for all of them */
    bool loose;  /* places codes by lifetime, too: the sliding workspace is idle half of the time */
    bool lends;  /* codes and buffers stay in their regions, and lend the bytes that are idle. Only with all maps, as
                    `always` does where memory is short */
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
    {.lends = true},
};
enum { WAYS = sizeof ways / sizeof *ways };

static bool keeps_codes(const mm_engine_config *config) {
    for (int r = 0; r < config->n_rules; r++)
        if (config->rules[r].action == MM_ACTION_CODE) return config->codes == MM_REGION_CODES;
    return false;
}

/* Whether the way differs from the ways before it. */
static bool makes_a_difference(const way *w, const mm_engine_config *config) {
    const mm_fetch fetch = mm_config_fetch(config);
    if (w->spread && !w->ranked && fetch == MM_FETCH_DEMAND) return false; /* nothing overlaps with the computation */
    if (w->lends) return mm_engine_may_lend(config);
    if (w->deeper && fetch != MM_FETCH_DEPTH) return false;
    if (w->ranked && config->n_rules < 2) return false;
    if (w->loose && !w->ranked && !keeps_codes(config)) return false;
    if (w->ranked && config->buffers == MM_REGION_GENERAL) return true;
    return !w->placed || (config->buffers == MM_REGION_BUFFERS && config->k == 0);
}

static mm_engine_config config_of(const way *w, const mm_engine_config *config) {
    mm_engine_config changed = *config;
    if (w->deeper) changed.depth *= DEEPER;
    if (w->placed) changed.buffers = MM_REGION_GENERAL;
    if (w->loose && config->codes == MM_REGION_CODES) changed.codes = MM_REGION_GENERAL;
    changed.lends = w->lends;
    return changed;
}

/* ---------------------------------------------------------------- the contest */

/* One of the plans that are compared. */
typedef struct candidate {
    way way;
    mm_selection selection;
    int order;       /* its number in the order of entry */
    int64_t bytes;   /* its peak; a lower bound until it is placed */
    int64_t ns;      /* its iteration's time; a lower bound until it is placed; INT64_MAX: it does not fit */
    uint64_t digest; /* of its plan without places */
} candidate;

/* What a candidate took when it was placed. */
typedef struct placed_before {
    int64_t bytes, pinned_bytes; /* bytes 0: it was not placed */
    int comparison;              /* in which it was placed last: contest.comparison */
} placed_before;

enum { MOST_CANDIDATES = 1 + WAYS * (LIMITS + 1) };

typedef struct contest {
    const mm_graph *graph;
    const mm_graph_facts *facts; /* with times, measured or nominal */
    mm_limits limits;
    const mm_engine_config *config;
    const mm_survey *like; /* for mm_survey_create */
    mm_survey *survey;
    /* Candidates that take at least so much, by their bounds, are of no use and do not enter. INT64_MAX: no limit. */
    int64_t below_ns, below_bytes;
    int eligible, *of_rule;  /* number of eligible maps; of_rule: per rule, then per rule for each nested choice */
    bool refused;            /* a candidate needed more buffers than config->k */
    candidate *candidates;   /* those whose bound is within the pinned memory */
    mm_selection *ruled_out; /* those of no use in any way */
    int n, n_ruled_out, entered;
    candidate best;
    mm_plan *plan;          /* the plan of `best` */
    int comparison;         /* number of the present comparison, each of which has its limits */
    bool again;             /* a plan that fits this budget is known */
    bool fits, fits_pinned; /* the best fits the limits; it fits the pinned memory */
    candidate least;        /* the placed one with the lowest peak among those within the pinned memory */
    /* [order][layout]. Places depend on the limit of pinned memory, not on the budget. */
    placed_before (*before)[MM_LAYOUT_EXACT + 1];
} contest;

/* Breaks ties: the first to enter wins. */
static int by_order(const candidate *x, const candidate *y) { return (x->order > y->order) - (x->order < y->order); }

static int by_bytes(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes) : by_order(x, y);
}

static int by_ns(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return x->ns != y->ns ? (x->ns > y->ns) - (x->ns < y->ns) : by_order(x, y);
}

/* A plan that fits beats one that does not; of two that fit, the faster wins. Of two that do not, one within the pinned
 * memory wins, then the one that needs less. */
static bool is_better(const contest *c, const candidate *placed, bool fits, bool fits_pinned) {
    if (!c->plan) return true;
    if (fits != c->fits) return fits;
    if (fits) return by_ns(placed, &c->best) < 0;
    if (fits_pinned != c->fits_pinned) return fits_pinned;
    return by_bytes(placed, &c->best) < 0;
}

static mm_status compare_plan(contest *c, candidate *placed, mm_layout_algorithm layout, mm_plan *plan) {
    bool fits_pinned = plan->pinned_bytes <= c->limits.pinned_bytes;
    c->before[placed->order][layout] = (placed_before){plan->peak_bytes, plan->pinned_bytes, c->comparison};
    bool fits = fits_pinned && plan->peak_bytes <= c->limits.device_bytes;
    mm_status status = fits ? mm_simulated_time(plan, c->facts, &placed->ns) : MM_OK;
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
    return compare_plan(c, &one, layout, plan);
}

/* Whether the candidate was compared already, or is known not to fit this budget, because it was placed before, while
 * another plan is known to fit. */
static bool is_known(contest *c, const candidate *one, mm_layout_algorithm layout) {
    const placed_before *p = &c->before[one->order][layout];
    if (p->bytes > 0 && p->comparison == c->comparison) return true;
    if (!c->again || p->bytes == 0) return false;
    candidate placed = *one;
    placed.bytes = p->bytes;
    const bool fits_pinned = p->pinned_bytes <= c->limits.pinned_bytes;
    if (fits_pinned && by_bytes(&placed, &c->least) < 0) c->least = placed;
    return !fits_pinned || p->bytes > c->limits.device_bytes;
}

/* Turns MM_ERR_INFEASIBLE (it needs more buffers than config->k) into MM_OK, and sets c->refused. */
static mm_status pass_over_refused(contest *c, mm_status status) {
    c->refused |= status == MM_ERR_INFEASIBLE;
    return status == MM_ERR_INFEASIBLE ? MM_OK : status;
}

static mm_status place(contest *c, const candidate *one, mm_layout_algorithm layout) {
    if (is_known(c, one, layout)) return MM_OK;
    return pass_over_refused(c, plan_one(c, *one, layout));
}

/* Whether the second layout may end when it fits: where any plan that fits will do, or homes were chosen by such
 * plans. */
static bool ends_at_budget(const contest *c) {
    return c->like && (c->limits.first_fit || c->limits.pinned_base_bytes > 0);
}

/* Tries two layouts. Neither is always better: either may cause fewer waits, or need less memory. */
static mm_status place_quickly(contest *c, const candidate *one) {
    MM_TRY(place(c, one, MM_LAYOUT_MODNN));
    return place(c, one, ends_at_budget(c) ? MM_LAYOUT_LATE : MM_LAYOUT_QUICK);
}

/* ---------------------------------------------------------------- who enters */

static bool is_same(const mm_selection *a, const mm_selection *b) {
    return a->limit == b->limit && a->of == b->of && a->of_rule == b->of_rule && a->nesting == b->nesting;
}

/* Whether a selection was found to be of no use in another way. */
static bool is_ruled_out(const contest *c, const mm_selection *selection) {
    for (int i = 0; i < c->n_ruled_out; i++)
        if (is_same(&c->ruled_out[i], selection)) return true;
    return false;
}

/* Whether a candidate has the same plan as one that entered before, which then also stands for it if it acts on all
 * maps. */
static bool has_entered(contest *c, const candidate *one) {
    for (int i = 0; i < c->n; i++) {
        candidate *before = &c->candidates[i];
        if (before->digest != one->digest) continue;
        if (one->selection.limit == INT32_MAX) {
            before->way = one->way;
            before->selection = one->selection;
        }
        return true;
    }
    return false;
}

/* Adds a candidate, if its bounds are within the pinned memory and of use to the caller. of_rule_out: the eligible maps
 * per rule, as in a way before; may be NULL. */
static mm_status enter(contest *c, candidate one, int *of_rule_out) {
    const mm_engine_wanted wanted = {c->limits.device_bytes, c->below_bytes, c->below_ns};
    mm_engine_config config = config_of(&one.way, c->config);
    mm_engine_bounds bounds;
    if (is_ruled_out(c, &one.selection)) return MM_OK;
    mm_status status = mm_engine_bound_within(c->survey, &config, &one.selection, &wanted, of_rule_out, &bounds);
    if (status != MM_OK) return pass_over_refused(c, status);
    if (bounds.early) c->ruled_out[c->n_ruled_out++] = one.selection;
    one.bytes = bounds.bytes.peak_bytes;
    one.ns = bounds.ns;
    one.digest = bounds.digest;
    const bool useful =
        !bounds.early && one.bytes < c->below_bytes && (c->below_ns == INT64_MAX || one.ns < c->below_ns);
    if (useful && bounds.bytes.pinned_bytes <= c->limits.pinned_bytes && !has_entered(c, &one))
        c->candidates[c->n++] = one;
    return MM_OK;
}

/* Whether the selection alone shows that a candidate needs below_bytes or more. */
static mm_status is_large(contest *c, const way *w, const mm_selection *selection, bool *large_out) {
    const mm_engine_config config = config_of(w, c->config);
    int64_t bytes;
    MM_TRY(mm_engine_bound_maps(c->survey, &config, selection, &bytes));
    *large_out = bytes >= c->below_bytes;
    return MM_OK;
}

/* Of n selections, each of which needs more than the next, or nearly always does: finds the first that is not large; n:
 * all are. Looks by halves. */
static mm_status find_first(contest *c, const way *w, const mm_selection *selections, int n, int *first_out) {
    int first = 0, misfit = -1, at = 0;
    if (c->below_bytes < INT64_MAX && n > 0) first = n;
    while (first - misfit > 1) {
        bool large;
        MM_TRY(is_large(c, w, &selections[at], &large));
        *(large ? &misfit : &first) = at;
        at = misfit == 0 && first == n ? n - 1 : misfit + (first - misfit) / 2; /* the ends come first */
    }
    *first_out = first;
    return MM_OK;
}

static int count_eligible(const contest *c, const int *of_rule) {
    int n = 0;
    for (int r = 0; r < c->config->n_rules; r++) n += of_rule[r];
    return n;
}

/* Enters a choice of RECOMPUTE_NESTED: once with all the maps that later rules can evict, and once for each smaller
 * share of these maps: none (unless another way has entered that), a third, two thirds. */
static mm_status enter_shares(contest *c, candidate one) {
    int *of_rule = c->of_rule + (size_t)(1 + one.selection.nesting) * (size_t)c->config->n_rules;
    MM_TRY(enter(c, one, of_rule));
    const int eligible = count_eligible(c, of_rule);
    one.selection.of = eligible;
    one.selection.of_rule = of_rule;
    for (int share = one.way.deeper; share < SHARES && of_rule[0] < eligible; share++) {
        one.order = ++c->entered;
        one.selection.limit = of_rule[0] + (int)((int64_t)(eligible - of_rule[0]) * share / SHARES);
        MM_TRY(enter(c, one, NULL));
    }
    return MM_OK;
}

/* RECOMPUTE_NESTED: its choices stand for numbers of maps. If rules after it evict the maps that it keeps, ranked ways
 * enter shares of these for each choice; other ways enter only the choice with the least memory, that of `always`. */
static mm_status enter_nestings(contest *c, const way *w) {
    const int nestings = mm_survey_nestings(c->survey), step = w->ranked ? LIMITS / limits_of(c->graph) : 1;
    const int n = w->ranked || (c->config->n_rules == 1 && !w->lends) ? (nestings - 1) / step + 1 : 1;
    mm_selection selections[MM_SURVEY_NESTINGS];
    int first;
    for (int i = 0; i < n; i++)
        selections[i] = (mm_selection){.limit = INT32_MAX, .nesting = (n - 1 - i) * step}; /* the last needs least */
    MM_TRY(find_first(c, w, selections, n, &first));
    for (int i = n - 1; i >= first; i--) {
        const candidate all = {.way = *w, .order = ++c->entered, .selection = selections[i]};
        MM_TRY(w->ranked ? enter_shares(c, all) : enter(c, all, NULL));
    }
    return MM_OK;
}

static bool is_lean(const mm_engine_config *config) {
    for (int r = 0; r < config->n_rules; r++)
        if (mm_rule_swaps_lean(&config->rules[r])) return true;
    return false;
}

static mm_status enter_way(contest *c, const way *w) {
    if (mm_survey_nestings(c->survey) > 0) return enter_nestings(c, w);
    int limits = limits_of(c->graph);
    if (w->loose && limits == LIMITS_LEAST) limits /= 2;
    if (w->lends) limits = 1;
    if (limits > c->eligible) limits = c->eligible;
    const int last = limits + (limits > 0 && is_lean(c->config)); /* all maps, and then gradient maps, too */
    mm_selection selections[LIMITS + 1];
    int first;
    for (int i = 0; i < last; i++)
        selections[i] =
            (mm_selection){.limit = i == last - 1 ? INT32_MAX : (int)((int64_t)c->eligible * (i + 1) / limits),
                           .of = w->spread && i < last - 1 ? c->eligible : 0,
                           .of_rule = w->ranked && i < last - 1 ? c->of_rule : NULL};
    MM_TRY(find_first(c, w, selections, last, &first));
    for (int i = first; i < last; i++)
        MM_TRY(enter(c, (candidate){.way = *w, .order = c->entered + 1 + i, .selection = selections[i]}, NULL));
    c->entered += last;
    return MM_OK;
}

/* ---------------------------------------------------------------- who wins
 *
 * The fastest candidate that fits wins. Those that are not placed could not have won, by their bounds: the result is as
 * if all were placed, whatever the budget; of auto's configurations, nearly so (find_first, find_fastest). Candidates
 * that may have the lowest peak get a longer search for their places; those with the fewest live bytes, and those of
 * `always`, an exact one. */

/* Of auto's configurations, it ends once one fits and then LOST candidates in a row have not won, or are known not to
 * fit: no later one has won (measured), and auto searches from the winner. */
static mm_status find_fastest(contest *c) {
    enum { LOST = 4 };
    int lost = 0;
    qsort(c->candidates, (size_t)c->n, sizeof *c->candidates, by_ns);
    for (int i = 0; i < c->n && (!c->fits || c->candidates[i].ns <= c->best.ns) && (!c->like || lost < LOST); i++) {
        const bool fit = c->fits;
        const int64_t best_ns = c->best.ns;
        if (c->candidates[i].bytes > c->limits.device_bytes) continue;
        MM_TRY(place_quickly(c, &c->candidates[i]));
        lost = fit && c->best.ns == best_ns ? lost + 1 : 0;
    }
    return MM_OK;
}

/* Whether a candidate whose bound is below the lowest peak so far may still win. */
static bool least_matters(const contest *c) {
    if (!c->fits) return true;
    for (int i = 0; i < c->n; i++)
        if (c->candidates[i].ns <= c->best.ns && c->candidates[i].bytes <= c->least.bytes) return true;
    return false;
}

static mm_status find_least(contest *c) {
    enum { EXACT = 4 };                             /* chosen, for planning time */
    const bool others = c->below_bytes < INT64_MAX; /* the caller has other configurations */
    if ((c->fits && others) || !least_matters(c)) return MM_OK;
    qsort(c->candidates, (size_t)c->n, sizeof *c->candidates, by_bytes);
    for (int i = 0; i < c->n && c->candidates[i].bytes < c->least.bytes; i++)
        MM_TRY(place_quickly(c, &c->candidates[i]));
    if (others && (c->fits || c->limits.few)) return MM_OK;
    for (int i = 0; i < c->n && c->candidates[i].bytes + MM_ALIGN <= c->least.bytes; i++) {
        const bool exact = i < EXACT || c->candidates[i].selection.limit == INT32_MAX; /* the latter for `always` */
        MM_TRY(place(c, &c->candidates[i], exact ? MM_LAYOUT_EXACT : MM_LAYOUT_BEST));
    }
    return MM_OK;
}

static mm_status compare(contest *c) {
    const candidate none = {.selection = {.limit = 0}}, all = {.selection = {.limit = INT32_MAX}};
    MM_TRY(enter(c, none, c->of_rule));
    c->eligible = count_eligible(c, c->of_rule);
    if (c->n > 0 && c->candidates[0].bytes <= c->limits.device_bytes) MM_TRY(plan_one(c, none, MM_LAYOUT_BEST));
    if (c->fits) return MM_OK;
    for (int i = 0; i < WAYS; i++) {
        /* of auto's configurations, those that wait need least; lending would only shift its least budget */
        if (ways[i].lends && c->like) continue;
        if (makes_a_difference(&ways[i], c->config)) MM_TRY(enter_way(c, &ways[i]));
    }
    MM_TRY(find_fastest(c));
    MM_TRY(find_least(c));
    /* If only the plan that keeps all maps is left, because the others need too many buffers, returns their failure. */
    return c->refused && c->best.selection.limit == 0 ? plan_one(c, all, MM_LAYOUT_BEST) : MM_OK;
}

static mm_status compare_within(contest *c, int64_t device_bytes, int64_t pinned_bytes) {
    c->limits.device_bytes = device_bytes;
    c->limits.pinned_bytes = pinned_bytes;
    mm_plan_destroy(c->plan);
    c->plan = NULL;
    c->n = c->entered = 0;
    c->comparison++;
    c->fits = c->fits_pinned = c->refused = false;
    c->best = (candidate){0};
    c->least = (candidate){.bytes = INT64_MAX};
    return compare(c);
}

/* Before a refusal: places the candidate with the fewest live bytes to the budget, with a longer search
 * (MM_LAYOUT_FIT). c->plan is the plan of the least budget without that search. A faster one is not taken, since
 * budgets above the least would get slower ones. */
static mm_status fit_tightly(contest *c, const candidate *tight, int64_t device_bytes) {
    const mm_engine_config config = config_of(&tight->way, c->config);
    mm_plan *plan;
    int64_t ns;
    c->limits.device_bytes = device_bytes;
    MM_TRY(mm_engine_plan_maps(c->survey, &config, &tight->selection, MM_LAYOUT_FIT, &plan));
    bool taken = plan->peak_bytes <= device_bytes && plan->pinned_bytes <= c->limits.pinned_bytes;
    mm_status status = taken ? mm_simulated_time(plan, c->facts, &ns) : MM_OK;
    taken = taken && status == MM_OK && ns >= c->best.ns;
    mm_plan_destroy(taken ? c->plan : plan);
    if (taken) c->plan = plan;
    return status;
}

/* If no plan fits, searches again in the budget of the lowest peak found, until that peak does not sink any more. So
 * the minimum that is reported is the peak of the plan that runs in that budget. */
static mm_status find_plan(contest *c, int64_t device_bytes, int64_t pinned_bytes) {
    memset(c->before, 0, MOST_CANDIDATES * sizeof *c->before);
    c->again = false;
    MM_TRY(compare_within(c, device_bytes, pinned_bytes));
    /* find_least has sorted them by bytes, if nothing fits */
    const candidate tight = c->n > 0 ? c->candidates[0] : (candidate){.bytes = INT64_MAX};
    const bool is_near = !c->fits && tight.bytes <= device_bytes;
    while (c->fits_pinned &&
           (!c->fits || (c->limits.device_bytes > device_bytes && c->plan->peak_bytes < c->limits.device_bytes))) {
        c->again = true;
        MM_TRY(compare_within(c, c->plan->peak_bytes, pinned_bytes));
    }
    return is_near && c->fits ? fit_tightly(c, &tight, device_bytes) : MM_OK;
}

/* Plans without a limit of pinned memory first, and with it only if the result exceeds it. So the plan stays the same
 * if the limit is set to just what it takes. */
static mm_status hold(contest *c, const mm_limits *limits) {
    MM_TRY(find_plan(c, limits->device_bytes, INT64_MAX));
    return c->plan->pinned_bytes <= limits->pinned_bytes ? MM_OK
                                                         : find_plan(c, limits->device_bytes, limits->pinned_bytes);
}

/* As `hold`, but compares only once in each limit of pinned memory, so the plan of c->best may not fit. */
static mm_status hold_once(contest *c, const mm_limits *limits) {
    MM_TRY(compare_within(c, limits->device_bytes, INT64_MAX));
    return !c->plan || c->plan->pinned_bytes <= limits->pinned_bytes
               ? MM_OK
               : compare_within(c, limits->device_bytes, limits->pinned_bytes);
}

static mm_status begin(contest *c) {
    c->candidates = malloc(MOST_CANDIDATES * sizeof *c->candidates);
    c->before = calloc(MOST_CANDIDATES, sizeof *c->before);
    c->ruled_out = malloc(MOST_CANDIDATES * sizeof *c->ruled_out);
    c->of_rule = calloc((size_t)(1 + LIMITS) * ((size_t)c->config->n_rules + 1), sizeof *c->of_rule);
    if (!c->candidates || !c->before || !c->ruled_out || !c->of_rule)
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(c->graph));
    return mm_survey_create(c->graph, c->facts, &c->limits, c->config, c->like, &c->survey);
}

/* Holds the contest, by the facts' times or by nominal ones. *plan_out: the winner. */
static mm_status run(contest *c, const mm_limits *limits, mm_status (*held)(contest *c, const mm_limits *limits),
                     mm_plan **plan_out) {
    mm_graph_facts nominal = {0}, near = *c->facts;
    mm_status status = MM_OK;
    near.far_ps_per_byte =
        0; /* a smaller memory is faster (mm/core/time/cache_miss.h), but that shall not favour evictions */
    c->limits = *limits;
    if (mm_nominal_is_due(c->facts)) status = mm_nominal_init(c->graph, &near, &nominal);
    c->facts = mm_nominal_is_due(c->facts) ? &nominal : &near;
    if (status == MM_OK) status = begin(c);
    if (status == MM_OK) status = held(c, limits);
    if (status == MM_OK)
        *plan_out = c->plan;
    else
        mm_plan_destroy(c->plan);
    mm_survey_destroy(c->survey);
    free(c->candidates);
    free(c->before);
    free(c->ruled_out);
    free(c->of_rule);
    c->facts = NULL;
    mm_nominal_fini(&nominal);
    return status;
}

mm_status mm_engine_plan_needed(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                const mm_engine_config *config, mm_plan **plan_out) {
    contest c = {.graph = graph, .facts = facts, .config = config, .below_ns = INT64_MAX, .below_bytes = INT64_MAX};
    return run(&c, limits, hold, plan_out);
}

mm_status mm_engine_plan_below(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                               const mm_engine_config *config, const mm_survey *like, int64_t below_ns,
                               int64_t below_bytes, mm_plan **plan_out) {
    contest c = {.graph = graph,
                 .facts = facts,
                 .config = config,
                 .like = like,
                 .below_ns = below_ns,
                 .below_bytes = below_bytes};
    return run(&c, limits, hold_once, plan_out);
}

/* SPDX-License-Identifier: MIT */
#include "policies/alternatives.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/engine/engine_survey.h"
#include "policies/rules/rules.h"
#include "policies/schedule/draft_time.h"

enum { KEEP = -1, NONE = -2 /* no rule of the menu does that */ };

/* One way to plan the actions anew: the plan does not tell by which its policy made it. */
typedef struct way {
    mm_recompute_mode mode;
    int nesting; /* NESTED: the choice whose levels are used; -1: maps are made again once */
    bool lean;   /* swaps are lean ones */
    enum {
        BY_CONFIGURATION, /* as the configuration says */
        FETCHED,          /* fetches begin where the plan's do */
        EAGER,            /* and bytes may be used again as soon as a copy was issued */
        AS_PLACED,        /* and bytes are used again where they are in the plan */
        TIMINGS
    } timing;
} way;

typedef struct draft {
    int64_t ns, peak_bytes, pinned_bytes;
    int step;    /* at which it has peak_bytes */
    bool served; /* the map that was asked for has its rule */
} draft;

struct mm_alternatives {
    mm_alternatives_of of;
    mm_limits limits;
    mm_engine_config menu;            /* its rules are the menu */
    int mask, swap, lean;             /* indices of rules; NONE */
    int recompute[2][MM_LAYER_KINDS]; /* by the map's writer; [1]: lean, made again for each use */
    mm_survey *survey;
    int8_t *rule;   /* per tensor: its rule in the plan */
    int32_t *fetch; /* per tensor: step before which the plan's fetch begins */
    int32_t *gone;  /* per tensor: last step before its bytes are used again in the plan */
    int32_t *zeros; /* per tensor: 0 */
    uint8_t *made;  /* per tensor: how often the plan makes it again; 2: twice or more */
    uint8_t *brief; /* per tensor: the plan copies it back more than once (mm_assignment.brief) */
    way way;
    draft base;
    int64_t plan_ns;
};

const char *mm_why_name(mm_why why) {
    static const char *const names[MM_WHYS] = {
        [MM_WHY_UNKNOWN] = "unknown", [MM_WHY_ROOM] = "room",     [MM_WHY_IMPOSSIBLE] = "impossible",
        [MM_WHY_BARRED] = "barred",   [MM_WHY_DEVICE] = "device", [MM_WHY_PINNED] = "pinned",
        [MM_WHY_PLACES] = "places",   [MM_WHY_SLOWER] = "slower", [MM_WHY_EQUAL] = "equal",
        [MM_WHY_FASTER] = "faster"};
    return (unsigned)why < MM_WHYS ? names[why] : "unknown";
}

/* ---------------------------------------------------------------- the menu */

static mm_status add_rule(mm_engine_config *menu, const char *selector, mm_action action, const char *codec, bool mask,
                          bool lean, int *index_out) {
    mm_rule rule = {.action = action, .mask = mask, .lean = lean};
    mm_rule *rules = realloc(menu->rules, ((size_t)menu->n_rules + 1) * sizeof *rules);
    if (!rules) return mm_fail(MM_ERR_NOMEM, "out of memory for the rules");
    menu->rules = rules;
    for (size_t i = 0; i + 1 < sizeof rule.codec && codec[i]; i++) rule.codec[i] = codec[i];
    MM_TRY(mm_selector_parse(selector, &rule.selector));
    *index_out = menu->n_rules;
    menu->rules[menu->n_rules++] = rule;
    return MM_OK;
}

/* Every action for all maps; recomputation for each kind of layer, so that expensive ones may run again, too. */
static mm_status make_menu(mm_alternatives *a) {
    const mm_graph_facts *facts = a->of.facts;
    int ignored;
    a->menu = *a->of.config;
    a->menu.rules = NULL;
    a->menu.n_rules = 0;
    a->mask = a->lean = NONE;
    MM_TRY(add_rule(&a->menu, "*", MM_ACTION_SWAP, "", false, false, &a->swap));
    for (int k = 0; k < 2 * MM_LAYER_KINDS; k++)
        MM_TRY(add_rule(&a->menu, mm_layer_kind_name((mm_layer_kind)(k / 2)), MM_ACTION_RECOMPUTE, "", false, k % 2,
                        &a->recompute[k % 2][k / 2]));
    if (mm_facts_codec(facts, mm_mask_spec) >= 0) {
        MM_TRY(add_rule(&a->menu, "*", MM_ACTION_CODE, mm_mask_spec, true, false, &a->mask));
        MM_TRY(add_rule(&a->menu, "*", MM_ACTION_SWAP, "", false, true, &a->lean));
    }
    for (int c = 0; c < facts->n_codecs; c++) {
        if (!facts->codecs[c].gives_value) continue;
        MM_TRY(add_rule(&a->menu, "*", MM_ACTION_CODE, facts->codecs[c].spec, false, false, &ignored));
        MM_TRY(add_rule(&a->menu, "*", MM_ACTION_CODE_SWAP, facts->codecs[c].spec, false, false, &ignored));
    }
    return MM_OK;
}

static int codec_rule(const mm_alternatives *a, mm_action action, int codec) {
    for (int r = 0; codec >= 0 && r < a->menu.n_rules; r++)
        if (a->menu.rules[r].action == action && !a->menu.rules[r].mask &&
            strcmp(a->menu.rules[r].codec, a->of.facts->codecs[codec].spec) == 0)
            return r;
    return NONE;
}

static int swap_rule(const mm_alternatives *a) { return a->way.lean ? a->lean : a->swap; }

static int rule_of(const mm_alternatives *a, int map, mm_remedy_kind action) {
    const mm_graph *graph = a->of.plan->graph;
    const mm_tensor tensor = a->of.stash->maps[map].tensor;
    const mm_layer producer = mm_graph_tensor(graph, tensor)->producer;
    const mm_decision *d = &a->of.decisions[map];
    switch (action) {
    case MM_REMEDY_KEEP:
        return KEEP;
    case MM_REMEDY_MASK:
        return a->mask;
    case MM_REMEDY_COMPRESS:
        return codec_rule(a, MM_ACTION_CODE, d->codec);
    case MM_REMEDY_COMPRESS_SWAP:
        return codec_rule(a, MM_ACTION_CODE_SWAP, d->codec);
    case MM_REMEDY_RECOMPUTE:
        return producer >= 0 ? a->recompute[a->made[tensor] > 1][mm_graph_layer(graph, producer)->kind] : NONE;
    case MM_REMEDY_SWAP:
        return swap_rule(a);
    case MM_REMEDY_KINDS:
        break;
    }
    return NONE;
}

/* ---------------------------------------------------------------- what the plan does */

/* Of several actions on one map, the one that takes it off the device. */
static mm_remedy_kind main_action(uint32_t kinds) {
    static const mm_remedy_kind order[] = {MM_REMEDY_COMPRESS_SWAP, MM_REMEDY_SWAP, MM_REMEDY_COMPRESS,
                                           MM_REMEDY_RECOMPUTE, MM_REMEDY_MASK};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (kinds & 1u << order[i]) return order[i];
    return MM_REMEDY_KEEP;
}

/* Counts how often each tensor is made again and copied back. */
static void read_repeats(mm_alternatives *a) {
    const mm_plan *plan = a->of.plan;
    memset(a->made, 0, (size_t)mm_graph_tensors(plan->graph));
    memset(a->brief, 0, (size_t)mm_graph_tensors(plan->graph));
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        if (node->kind == MM_NODE_IN && a->brief[mm_plan_root(plan, node->tensor)] < 2)
            a->brief[mm_plan_root(plan, node->tensor)]++;
        if (node->kind != MM_NODE_RECOMPUTE) continue;
        const mm_step_info *step = mm_graph_step(plan->graph, node->step);
        for (int u = 0; u < step->n_uses; u++)
            if (step->uses[u].access == MM_WRITE && a->made[step->uses[u].tensor] < 2) a->made[step->uses[u].tensor]++;
    }
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) a->brief[t] = a->brief[t] > 1;
}

/* Sets the rule of each tensor. What moves and is no map of the stash, such as images and gradient maps, is moved. */
static void read_rules(mm_alternatives *a) {
    const mm_plan *plan = a->of.plan;
    const int n = mm_graph_tensors(plan->graph);
    for (int t = 0; t < n; t++) a->rule[t] = KEEP;
    for (int i = 0; a->lean >= 0 && a->way.lean && i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_OUT) a->rule[mm_plan_root(plan, plan->nodes[i].tensor)] = (int8_t)a->lean;
    for (int i = 0; i < a->of.stash->n_maps; i++) {
        const int rule = rule_of(a, i, main_action(a->of.decisions[i].kinds));
        a->rule[a->of.stash->maps[i].tensor] = (int8_t)(rule == NONE ? KEEP : rule);
    }
}

static void read_fetches(mm_alternatives *a) {
    const mm_plan *plan = a->of.plan;
    const int n = mm_graph_tensors(plan->graph);
    int next = mm_graph_steps(plan->graph);
    for (int t = 0; t < n; t++) a->fetch[t] = mm_graph_tensor(plan->graph, t)->first_backward;
    for (int i = plan->n_nodes - 1; i >= 0; i--) {
        const mm_node *node = &plan->nodes[i];
        if (node->kind == MM_NODE_STEP) next = node->step;
        if (node->kind != MM_NODE_IN && node->kind != MM_NODE_DECODE) continue;
        const mm_tensor root = mm_plan_root(plan, node->tensor);
        if (next < a->fetch[root] && mm_graph_step(plan->graph, next)->phase == MM_BACKWARD) a->fetch[root] = next;
    }
}

static int step_of(const mm_plan *plan, int node) {
    while (node > 0 && plan->nodes[node].kind != MM_NODE_STEP) node--;
    return plan->nodes[node].kind == MM_NODE_STEP ? plan->nodes[node].step : 0;
}

static bool overlap(const mm_segment *a, const mm_segment *b) {
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* The first node after `after` that puts another segment over this one; the plan's end: none. */
static int reused_at(const mm_plan *plan, const mm_segment *s, int after) {
    int first = plan->n_nodes;
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *other = &plan->segments[i];
        if (mm_segment_has_life(other) && !other->dynamic && other->first_node > after && other->first_node < first &&
            overlap(s, other))
            first = other->first_node;
    }
    return first;
}

static void read_reuse(mm_alternatives *a) {
    const mm_plan *plan = a->of.plan;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        if ((node->kind != MM_NODE_OUT && node->kind != MM_NODE_ENCODE) || node->src < 0) continue;
        const mm_segment *s = &plan->segments[node->src];
        const mm_tensor root = mm_plan_root(plan, node->tensor);
        const int last = mm_graph_tensor(plan->graph, root)->first_backward - 1;
        const int reused = reused_at(plan, s, i);
        const int step = reused < plan->n_nodes ? step_of(plan, reused) - 1 : last;
        if (s->memory == MM_MEM_DEVICE) a->gone[root] = step < last ? step : last;
    }
}

/* ---------------------------------------------------------------- drafts */

static mm_assignment assignment_of(const mm_alternatives *a) {
    mm_assignment assigned = {
        .rule = a->rule, .brief = a->brief, .fetch = a->way.timing == BY_CONFIGURATION ? NULL : a->fetch};
    if (a->way.timing == EAGER) assigned.gone = a->zeros;
    if (a->way.timing == AS_PLACED) assigned.gone = a->gone;
    if (a->way.nesting >= 0) {
        assigned.level = mm_nesting_levels(&a->survey->nesting, a->way.nesting);
        assigned.cut = mm_nesting_cuts(&a->survey->nesting, a->way.nesting);
    }
    return assigned;
}

/* Finds the most bytes alive at a node of a draft, and its step. */
static mm_status find_peak(const mm_engine_draft *made, draft *d) {
    const mm_plan *plan = made->plan;
    int64_t *live = calloc((size_t)plan->n_nodes + 2, sizeof *live);
    if (!live) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(plan->graph));
    for (int i = 0; i < plan->n_segments; i++) {
        if (made->spans[i].bytes == 0) continue;
        live[made->spans[i].first] += made->spans[i].bytes;
        live[made->spans[i].last + 1] -= made->spans[i].bytes;
    }
    int64_t now = mm_align(plan->base_bytes) + plan->external_bytes;
    int step = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        if (mm_node_runs_step(&plan->nodes[i])) step = plan->nodes[i].step;
        now += live[i];
        if (now <= d->peak_bytes) continue;
        d->peak_bytes = now;
        d->step = step;
    }
    free(live);
    return MM_OK;
}

/* tensor: whether it got its rule is set in *d; -1: does not matter. */
static mm_status make_draft(const mm_alternatives *a, mm_tensor tensor, draft *d) {
    const mm_assignment assigned = assignment_of(a);
    const mm_selection selection = {.assigned = &assigned};
    mm_engine_draft made;
    *d = (draft){.served = true};
    MM_TRY(mm_engine_draft_maps(a->survey, &a->menu, &selection, &made));
    mm_status status = find_peak(&made, d);
    if (status == MM_OK) status = mm_simulated_time(made.plan, a->of.facts, &d->ns);
    d->pinned_bytes = made.bounds.pinned_bytes;
    if (status == MM_OK && tensor >= 0) d->served = made.taken[tensor] == a->rule[tensor];
    mm_engine_draft_fini(&made);
    return status;
}

/* ---------------------------------------------------------------- the nearest way */

static const double SAME = 1e-3; /* of the plan's time: chosen */

static mm_status survey(mm_alternatives *a, mm_recompute_mode mode) {
    mm_survey_destroy(a->survey);
    a->survey = NULL;
    a->menu.recompute = mode;
    return mm_survey_create(a->of.plan->graph, a->of.facts, &a->limits, &a->menu, NULL, &a->survey);
}

/* How far a draft is from the plan: its time, and that alone if it needs no more than there is. */
static double distance(const mm_alternatives *a, const draft *d) {
    const double time = (double)d->ns / (double)a->plan_ns,
                 bytes = (double)d->peak_bytes / (double)a->limits.device_bytes;
    return (time > 1 ? time - 1 : 1 - time) + (bytes > 1 ? bytes : 0);
}

static mm_status compare_way(mm_alternatives *a, way w, way *best, double *least) {
    draft d;
    a->way = w;
    read_rules(a);
    MM_TRY(make_draft(a, -1, &d));
    const double far = distance(a, &d);
    if (far >= *least) return MM_OK;
    *least = far;
    *best = w;
    return MM_OK;
}

static bool is_possible(const mm_stash_map *map, mm_remedy_kind action) {
    for (int r = 0; r < map->n_remedies; r++)
        if (map->remedies[r].kind == action) return true;
    return false;
}

/* Bytes of the maps of which one of two is true: the choice of nested recomputation makes them again, the plan does. */
static int64_t bytes_apart(const mm_alternatives *a, const uint8_t *level) {
    int64_t bytes = 0;
    for (int i = 0; i < a->of.stash->n_maps; i++) {
        const mm_stash_map *map = &a->of.stash->maps[i];
        const bool again = main_action(a->of.decisions[i].kinds) == MM_REMEDY_RECOMPUTE;
        if (is_possible(map, MM_REMEDY_RECOMPUTE) && (level && level[map->tensor] > 0) != again) bytes += map->bytes;
    }
    return bytes;
}

/* The choice of nested recomputation that differs least from the plan; -1: keeping all maps differs less. */
static int nearest_nesting(const mm_alternatives *a) {
    int nearest = -1;
    int64_t least = bytes_apart(a, NULL);
    for (int k = mm_survey_nestings(a->survey) - 1; k >= 0; k--) {
        const int64_t bytes = bytes_apart(a, mm_nesting_levels(&a->survey->nesting, k));
        if (bytes < least) nearest = k, least = bytes;
    }
    return nearest;
}

static bool recomputes(const mm_alternatives_of *of) {
    for (int i = 0; i < of->stash->n_maps; i++)
        if (main_action(of->decisions[i].kinds) == MM_REMEDY_RECOMPUTE) return true;
    return false;
}

/* Tries all ways of one mode, until one is as the plan. */
static mm_status try_mode(mm_alternatives *a, mm_recompute_mode mode, way *best, double *least) {
    MM_TRY(survey(a, mode));
    const int nesting = mode >= MM_RECOMPUTE_NESTED ? nearest_nesting(a) : -1;
    for (int w = 0; *least > SAME && w < 4 * TIMINGS; w++) {
        const way tried = {.mode = mode, .nesting = w & 1 ? nesting : -1, .lean = w & 2, .timing = w / 4};
        if ((w & 1 && nesting < 0) || (tried.lean && a->lean < 0)) continue;
        MM_TRY(compare_way(a, tried, best, least));
    }
    return MM_OK;
}

static mm_status find_way(mm_alternatives *a) {
    const mm_recompute_mode modes[] = {a->of.config->recompute, MM_RECOMPUTE_NESTED, MM_RECOMPUTE_MEMORY,
                                       MM_RECOMPUTE_COST,       MM_RECOMPUTE_SPEED,  MM_RECOMPUTE_SQRT};
    const size_t n = recomputes(&a->of) ? sizeof modes / sizeof *modes : 1;
    way best = {.mode = modes[0], .nesting = -1};
    double least = 1e300;
    for (size_t m = 0; m < n; m++)
        if (m == 0 || (least > SAME && modes[m] != modes[0])) MM_TRY(try_mode(a, modes[m], &best, &least));
    if (best.mode != a->menu.recompute) MM_TRY(survey(a, best.mode));
    a->way = best;
    read_rules(a);
    return make_draft(a, -1, &a->base);
}

static mm_status create(mm_alternatives *a) {
    const size_t n = (size_t)mm_graph_tensors(a->of.plan->graph) + 1;
    a->rule = malloc(n);
    a->fetch = malloc(n * sizeof *a->fetch);
    a->gone = calloc(n, sizeof *a->gone);
    a->zeros = calloc(n, sizeof *a->zeros);
    a->made = malloc(n);
    a->brief = malloc(n);
    if (!a->made || !a->brief || !a->rule || !a->fetch || !a->gone || !a->zeros)
        return mm_fail(MM_ERR_NOMEM, "out of memory for the alternatives of a plan");
    MM_TRY(make_menu(a));
    read_fetches(a);
    read_repeats(a);
    read_reuse(a);
    MM_TRY(mm_simulated_time(a->of.plan, a->of.facts, &a->plan_ns));
    return find_way(a);
}

mm_status mm_alternatives_create(const mm_alternatives_of *of, mm_alternatives **alternatives_out) {
    mm_alternatives *a = calloc(1, sizeof *a);
    if (!a) return mm_fail(MM_ERR_NOMEM, "out of memory for the alternatives of a plan");
    a->of = *of;
    a->limits = (mm_limits){.device_bytes = of->device_bytes > 0 ? of->device_bytes : of->plan->peak_bytes,
                            .pinned_bytes = of->pinned_bytes,
                            .base_bytes = of->plan->base_bytes};
    mm_status status = create(a);
    if (status == MM_OK)
        *alternatives_out = a;
    else
        mm_alternatives_destroy(a);
    return status;
}

void mm_alternatives_destroy(mm_alternatives *a) {
    if (!a) return;
    mm_survey_destroy(a->survey);
    mm_rules_fini(&a->menu);
    free(a->rule);
    free(a->fetch);
    free(a->gone);
    free(a->zeros);
    free(a->made);
    free(a->brief);
    free(a);
}

mm_anew mm_alternatives_anew(const mm_alternatives *a) {
    const int64_t there = a->limits.device_bytes;
    return (mm_anew){.ns = a->base.ns,
                     .plan_ns = a->plan_ns,
                     .peak_bytes = a->base.peak_bytes,
                     .limit_bytes = a->base.peak_bytes > there ? a->base.peak_bytes : there};
}

/* ---------------------------------------------------------------- other actions */

/* Places the draft that a->rule says, and tells how that compares with the plan. */
static mm_status place(const mm_alternatives *a, mm_alternative *out) {
    const mm_assignment assigned = assignment_of(a);
    const mm_selection selection = {.assigned = &assigned};
    mm_plan *placed;
    int64_t ns;
    MM_TRY(mm_engine_plan_maps(a->survey, &a->menu, &selection, MM_LAYOUT_BEST, &placed));
    mm_status status = mm_simulated_time(placed, a->of.facts, &ns);
    if (placed->peak_bytes > a->limits.device_bytes)
        out->why = MM_WHY_PLACES;
    else if (ns < a->plan_ns - a->plan_ns / 1000)
        *out = (mm_alternative){.why = MM_WHY_FASTER, .ns = a->plan_ns - ns};
    else if (ns > a->plan_ns + a->plan_ns / 1000)
        *out = (mm_alternative){.why = MM_WHY_SLOWER, .ns = ns - a->plan_ns};
    else
        out->why = MM_WHY_EQUAL;
    mm_plan_destroy(placed);
    return status;
}

static mm_status judge(const mm_alternatives *a, const draft *d, mm_alternative *out) {
    const int64_t limit = mm_alternatives_anew(a).limit_bytes, near = a->base.ns / 1000;
    *out = (mm_alternative){.why = MM_WHY_EQUAL};
    if (!d->served)
        out->why = MM_WHY_BARRED;
    else if (d->peak_bytes > limit)
        *out = (mm_alternative){.why = MM_WHY_DEVICE, .bytes = d->peak_bytes - limit, .step = d->step};
    else if (d->pinned_bytes > a->limits.pinned_bytes)
        *out = (mm_alternative){.why = MM_WHY_PINNED, .bytes = d->pinned_bytes - a->limits.pinned_bytes};
    else if (d->ns > a->base.ns + near)
        *out = (mm_alternative){.why = MM_WHY_SLOWER, .ns = d->ns - a->base.ns};
    else if (d->ns < a->base.ns - near)
        return place(a, out);
    return MM_OK;
}

mm_status mm_alternatives_try(mm_alternatives *a, int map, mm_remedy_kind action, mm_alternative *out) {
    const mm_tensor tensor = a->of.stash->maps[map].tensor;
    const int rule = rule_of(a, map, action);
    draft d;
    *out = (mm_alternative){.why = is_possible(&a->of.stash->maps[map], action) ? MM_WHY_UNKNOWN : MM_WHY_IMPOSSIBLE};
    if (rule == NONE || out->why == MM_WHY_IMPOSSIBLE) return MM_OK;
    const int8_t own = a->rule[tensor];
    a->rule[tensor] = (int8_t)rule;
    mm_status status = make_draft(a, tensor, &d);
    if (status == MM_OK) status = judge(a, &d, out);
    a->rule[tensor] = own;
    return status;
}

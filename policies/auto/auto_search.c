/* SPDX-License-Identifier: MIT */
#include "policies/auto/auto_search.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/account/account_bound.h"
#include "mm/core/splitmix.h"
#include "mm/core/status.h"
#include "mm/core/time/time_bound.h"
#include "policies/auto/auto_state.h"
#include "policies/rules/rules.h"

/* ---------------------------------------------------------------- choices */

static mm_status choice_init(const mm_auto *a, mm_auto_choice *c) {
    const size_t n = (size_t)mm_graph_tensors(a->graph) + 1;
    *c = (mm_auto_choice){.rule = malloc(n),
                          .eager = calloc(n, 1),
                          .brief = calloc(n, 1),
                          .nesting = -1,
                          .fetch = calloc(n, sizeof *c->fetch),
                          .gone = calloc(n, sizeof *c->gone)};
    if (c->rule) memset(c->rule, MM_AUTO_KEEP, n);
    return c->rule && c->eager && c->brief && c->fetch && c->gone
               ? MM_OK
               : mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(a->graph));
}

static void choice_fini(mm_auto_choice *c) {
    free(c->rule);
    free(c->eager);
    free(c->brief);
    free(c->fetch);
    free(c->gone);
}

/* ---------------------------------------------------------------- small changes */

enum { WHOLE, FIRST, SECOND, PARTS }; /* parts of a class */

/* Sets a->now to the best choice with one map locked at another action: a rule, or MM_AUTO_KEEP. False: it has that
 * action already, or the rule does not serve it. */
static bool change_one(mm_auto *a, int map, int rule) {
    mm_auto_map *m = &a->maps[map];
    if (rule == a->best.rule[m->tensor] && !a->best.eager[m->tensor]) return false;
    mm_auto_copy_choice(a, &a->best, &a->now);
    if (rule >= 0 && !(m->serves >> rule & 1)) return false;
    a->now.rule[m->tensor] = (int8_t)rule;
    a->now.eager[m->tensor] = a->now.brief[m->tensor] = 0;
    m->locked = true;
    return true;
}

/* Sets a->now to the best choice with a part of a class locked at another action: all of its maps, or the first or the
 * second half. False: nothing changes. */
static bool change_class(mm_auto *a, int class, int part, int rule) {
    const int first = a->class_first[class], n = a->class_first[class + 1] - first;
    const int from = first + (part == SECOND ? n / 2 : 0), to = first + (part == FIRST ? n / 2 : n);
    bool changed = false;
    if (part != WHOLE && n < 4) return false;
    mm_auto_copy_choice(a, &a->best, &a->now);
    for (int i = from; i < to; i++) {
        mm_auto_map *m = &a->maps[a->class_maps[i]];
        if (rule >= 0 && !(m->serves >> rule & 1)) continue;
        changed |= rule != a->best.rule[m->tensor];
        a->now.rule[m->tensor] = (int8_t)rule;
        a->now.eager[m->tensor] = a->now.brief[m->tensor] = 0;
        m->locked = true;
    }
    return changed;
}

/* Tries every change of a class, until none makes the best faster. */
static mm_status improve_classes(mm_auto *a) {
    bool better = true;
    while (better && !mm_auto_stopped(a)) {
        better = false;
        for (int i = 0; i < a->n_classes * PARTS; i++)
            for (int rule = MM_AUTO_KEEP; rule < a->n_rules && !mm_auto_stopped(a); rule++) {
                const mm_auto_weights w = a->best_weights;
                bool found = false;
                if (change_class(a, i / PARTS, i % PARTS, rule)) MM_TRY(mm_auto_try(a, &w, &found));
                for (int k = 0; k < a->n_maps; k++) a->maps[k].locked = false;
                better |= found;
            }
    }
    return MM_OK;
}

/* Tries every change of one map, until none makes the best faster. */
static mm_status improve(mm_auto *a) {
    bool better = true;
    while (better && !mm_auto_stopped(a)) {
        better = false;
        for (int i = 0; i < a->n_maps && !mm_auto_stopped(a); i++)
            for (int rule = MM_AUTO_KEEP; rule < a->n_rules && !mm_auto_stopped(a); rule++) {
                const mm_auto_weights w = a->best_weights;
                bool found = false;
                if (change_one(a, i, rule)) MM_TRY(mm_auto_try(a, &w, &found));
                a->maps[i].locked = false;
                better |= found;
            }
    }
    return MM_OK;
}

/* The next pseudo-random number below n. */
static int next_below(mm_auto *a, int n) { return (int)(mm_random_next(&a->random) % (uint64_t)n); }

/* Gives a map an action that serves it, or keeps it, and locks that; does nothing if the rule does not serve it. */
static void force(mm_auto *a, int map, int rule) {
    mm_auto_map *m = &a->maps[map];
    if (rule >= 0 && !(m->serves >> rule & 1)) return;
    a->now.rule[m->tensor] = (int8_t)rule;
    a->now.eager[m->tensor] = (uint8_t)(next_below(a, 4) & (MM_AUTO_EAGER_OUT | MM_AUTO_EAGER_IN));
    a->now.brief[m->tensor] = 0;
    m->locked = true;
}

/* Sets a->now to the best choice, changed in a few places: single maps, or a row of them, or the choice of nested
 * recomputation. Returns weights, the best ones or others. */
static mm_auto_weights change_some(mm_auto *a) {
    enum { SINGLE = 3, SHARES = 8 }; /* chosen */
    const int rules = a->n_rules;
    const int nestings = a->recompute >= 0 ? mm_survey_nestings(a->survey) : 0;
    mm_auto_copy_choice(a, &a->best, &a->now);
    int n = 1 + next_below(a, SINGLE), kind = next_below(a, 4);
    if (kind == 0) n = 1 + next_below(a, a->n_maps / SHARES + 1);
    const int from = next_below(a, a->n_maps), rule = next_below(a, rules + 1) - 1;
    for (int i = 0; i < n; i++)
        if (kind == 0)
            force(a, (from + i) % a->n_maps, rule);
        else
            force(a, next_below(a, a->n_maps), next_below(a, rules + 1) - 1);
    if (kind == 1 && nestings > 0) a->now.nesting = next_below(a, nestings + 1) - 1;
    if (next_below(a, MM_AUTO_LEADS) == 0) a->now.lead = mm_auto_leads[next_below(a, MM_AUTO_LEADS)];
    if (next_below(a, 2)) return a->best_weights;
    return (mm_auto_weights){
        .link = mm_auto_links[next_below(a, MM_AUTO_LINKS)], .capped = next_below(a, 2), .deep = next_below(a, 2)};
}

static mm_status shake(mm_auto *a) {
    while (!mm_auto_stopped(a)) {
        bool better;
        const mm_auto_weights w = change_some(a);
        MM_TRY(mm_auto_try(a, &w, &better));
        for (int i = 0; i < a->n_maps; i++) a->maps[i].locked = false;
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- earlier searches */

/* Tries the choice of a search with another menu. */
static mm_status start_hinted(mm_auto *a, const mm_auto_hint *hint) {
    int8_t same[MM_AUTO_RULES];
    bool better;
    for (int r = 0; r < hint->menu->n_rules && r < MM_AUTO_RULES; r++) {
        same[r] = MM_AUTO_KEEP;
        for (int k = 0; k < a->n_rules; k++)
            if (mm_rule_same_action(&hint->menu->rules[r], &a->menu->rules[k])) same[r] = (int8_t)k;
    }
    mm_auto_copy_choice(a, &hint->choice, &a->now);
    for (int t = 0; t < mm_graph_tensors(a->graph); t++)
        if (a->now.rule[t] >= 0) a->now.rule[t] = same[a->now.rule[t]];
    return mm_auto_try(a, &hint->weights, &better);
}

/* Hands the best choice over, for a search with another menu. */
static void leave_hint(mm_auto *a, mm_auto_hint *hint) {
    if (a->best_weights.link == 0 || !a->fits) return;
    mm_auto_hint_fini(hint);
    *hint = (mm_auto_hint){.menu = a->menu, .choice = a->best, .weights = a->best_weights};
    a->best = (mm_auto_choice){.rule = NULL};
}

void mm_auto_hint_fini(mm_auto_hint *hint) {
    choice_fini(&hint->choice);
    *hint = (mm_auto_hint){.menu = NULL};
}

/* ---------------------------------------------------------------- budgets */

/* The next lower budget of a fixed row of budgets, sixteen from each power of two to the next. A plan that is found for
 * a budget of the row fits all larger budgets, so larger budgets seldom get slower plans. */
static int64_t rung_below(int64_t bytes) {
    enum { RUNGS = 16 };
    int64_t octave = 1;
    while (octave <= bytes / 2) octave *= 2;
    if (octave < RUNGS) return bytes - 1;
    const int64_t step = octave / RUNGS, rung = bytes / step * step;
    return rung < bytes ? rung : rung - (rung > octave ? step : step / 2);
}

/* Changes the best choice until the work is used up. */
static mm_status refine(mm_auto *a) {
    if (a->best_weights.link == 0 || !a->fits) return MM_OK;
    MM_TRY(improve_classes(a));
    MM_TRY(improve(a));
    return a->n_maps > 0 ? shake(a) : MM_OK;
}

/* Refines with half of the work; and again, up to ROUNDS times in all, while each time makes the plan faster by at
 * least 1 / GAIN. */
static mm_status refine_while_it_pays(mm_auto *a) {
    enum { ROUNDS = 4, GAIN = 16 }; /* chosen */
    int64_t before_ns = INT64_MAX;
    for (int i = 0; i < ROUNDS && a->plan_ns <= before_ns - before_ns / GAIN; i++) {
        before_ns = a->plan_ns;
        a->left = a->work / 2;
        MM_TRY(refine(a));
    }
    return MM_OK;
}

bool mm_auto_is_small(const mm_graph *graph, const mm_graph_facts *facts, int64_t device_bytes) {
    enum { SMALL = 2 };
    return device_bytes < SMALL * mm_lower_bound_of(graph, facts).bytes;
}

/* Tries starts that are brought down to budgets below. */
static mm_status start_below(mm_auto *a) {
    enum { RUNGS = 6 };
    a->left = a->work / 4;
    for (int i = 0; i < RUNGS && a->fits && !mm_auto_stopped(a); i++) {
        a->aim = rung_below(a->aim);
        MM_TRY(mm_auto_start(a, NULL));
    }
    a->aim = a->limits->device_bytes;
    return MM_OK;
}

/* Whether no plan is faster than the best one by a fortieth. Near the bound, starts by kinds of layers have not found
 * faster plans (measured). With homes in pinned memory the bound takes too long. */
static mm_status is_near_bound(const mm_auto *a, bool *near_out) {
    enum { NEAR = 40 };
    mm_limits limits = *a->limits;
    mm_time_bound bound;
    *near_out = false;
    if (!a->fits || limits.pinned_base_bytes > 0) return MM_OK;
    limits.below_ns = a->plan_ns - a->plan_ns / NEAR;
    MM_TRY(mm_time_bound_of(a->graph, a->facts, &limits, &bound));
    *near_out = bound.ns >= limits.below_ns;
    return MM_OK;
}

/* Each part has an allowance of work of its own, as a share of all (chosen). With a hint, the search that left it has
 * made the starts that do not begin with the best choice or plan. */
static mm_status search(mm_auto *a, const mm_plan *plan, const mm_auto_hint *hint) {
    const bool hinted = hint && hint->menu;
    a->work = a->left;
    a->left = a->work / 2;
    if (hinted) MM_TRY(start_hinted(a, hint));
    if (plan) MM_TRY(mm_auto_start_from(a, plan));
    if (!hinted) MM_TRY(mm_auto_start(a, plan));
    if (!mm_auto_is_small(a->graph, a->facts, a->limits->device_bytes)) {
        if (!hinted) MM_TRY(start_below(a));
        return refine_while_it_pays(a);
    }
    bool near;
    MM_TRY(is_near_bound(a, &near));
    a->left = a->work / 6;
    if (!near) MM_TRY(mm_auto_start_kinds(a));
    MM_TRY(refine_while_it_pays(a));
    const int64_t before_ns = a->plan_ns;
    if (hinted) return MM_OK;
    MM_TRY(start_below(a));
    a->left = a->work / 4;
    return a->fits && a->plan_ns < before_ns ? refine(a) : MM_OK;
}

/* ---------------------------------------------------------------- the whole */

static mm_status init(mm_auto *a) {
    const size_t n = (size_t)mm_graph_tensors(a->graph) + 1, steps = (size_t)mm_graph_steps(a->graph) + 2;
    a->maps = calloc(n, sizeof *a->maps);
    a->map_of = malloc(n * sizeof *a->map_of);
    a->by_last = malloc(n * sizeof *a->by_last);
    a->by_need = malloc(n * sizeof *a->by_need);
    a->class_first = malloc((n + 1) * sizeof *a->class_first);
    a->class_maps = malloc(n * sizeof *a->class_maps);
    a->start_ns = calloc(steps, sizeof *a->start_ns);
    a->choice_ns = calloc(steps, sizeof *a->choice_ns);
    a->node_of = calloc(steps, sizeof *a->node_of);
    a->gradients = malloc(n * sizeof *a->gradients);
    a->touch_of = malloc(n * sizeof *a->touch_of);
    a->touch_first = calloc(n + 2, sizeof *a->touch_first);
    if (!a->class_first || !a->class_maps || !a->gradients || !a->touch_of || !a->touch_first || !a->maps ||
        !a->map_of || !a->by_last || !a->by_need || !a->start_ns || !a->choice_ns || !a->node_of)
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(a->graph));
    for (size_t t = 0; t < n; t++) a->map_of[t] = -1;
    a->n_rules = a->menu->n_rules < MM_AUTO_RULES ? a->menu->n_rules : MM_AUTO_RULES;
    a->mask = a->recompute = a->lean = a->anew = -1;
    for (int r = a->menu->n_rules - 1; r >= 0; r--) {
        if (mm_rule_swaps_lean(&a->menu->rules[r])) a->lean = r;
        if (a->menu->rules[r].mask) a->mask = r;
        if (a->menu->rules[r].action == MM_ACTION_RECOMPUTE) *(a->menu->rules[r].lean ? &a->anew : &a->recompute) = r;
    }
    MM_TRY(choice_init(a, &a->now));
    MM_TRY(choice_init(a, &a->best));
    MM_TRY(mm_survey_create(a->graph, a->facts, a->limits, a->menu, a->like, &a->survey));
    MM_TRY(mm_auto_price(a));
    return mm_auto_classify(a);
}

static void fini(mm_auto *a) {
    choice_fini(&a->now);
    choice_fini(&a->best);
    mm_auto_memo_fini(a);
    mm_survey_destroy(a->survey);
    free(a->maps);
    free(a->map_of);
    free(a->by_last);
    free(a->by_need);
    free(a->class_first);
    free(a->class_maps);
    free(a->start_ns);
    free(a->choice_ns);
    free(a->node_of);
    free(a->gradients);
    free(a->prices);
    free(a->touch_of);
    free(a->touch_first);
    free(a->touches);
    free(a->used);
    free(a->live);
}

mm_status mm_auto_search(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                         const mm_engine_config *menu, const mm_survey *like, int64_t work, mm_auto_hint *hint,
                         mm_plan **plan) {
    mm_auto a = {.graph = graph,
                 .facts = facts,
                 .limits = limits,
                 .menu = menu,
                 .like = like,
                 .left = work,
                 .aim = limits->device_bytes};
    bool better;
    mm_status status = init(&a);
    if (status == MM_OK) status = search(&a, *plan, hint);
    if (status == MM_OK && *plan)
        status = mm_auto_compare(&a, *plan, &better); /* destroys one of them */
    else if (status != MM_OK)
        mm_plan_destroy(*plan);
    if (status != MM_OK) mm_plan_destroy(a.plan);
    *plan = status == MM_OK ? a.plan : NULL;
    if (status == MM_OK && hint) leave_hint(&a, hint);
    fini(&a);
    return status;
}

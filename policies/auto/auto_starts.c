/* SPDX-License-Identifier: MIT */
/* Where the search begins: choices that are relieved to the budget. */
#include <limits.h>
#include <string.h>

#include "policies/auto/auto_state.h"

const double mm_auto_links[MM_AUTO_LINKS] = {0.05, 0.15, 0.4, 1, 3, 10};
/* Permille of a copy's own time that is allowed for it: copies slow each other down, and wait. Chosen. */
const int mm_auto_leads[MM_AUTO_LEADS] = {1000, 1100, 1300, 1600};

/* Sets a->now to keep all maps. */
static void start_kept(mm_auto *a) {
    const size_t n = (size_t)mm_graph_tensors(a->graph);
    memset(a->now.rule, MM_AUTO_KEEP, n);
    memset(a->now.eager, 0, n);
    memset(a->now.brief, 0, n);
    a->now.nesting = -1;
    a->now.lead = mm_auto_leads[0];
}

/* Recomputes what a choice of nested recomputation does not keep. */
static void start_nested(mm_auto *a, int nesting) {
    start_kept(a);
    a->now.nesting = nesting;
    const uint8_t *level = mm_nesting_levels(&a->survey->nesting, nesting);
    for (int i = 0; i < a->n_maps; i++) {
        const mm_auto_map *m = &a->maps[i];
        if (level[m->tensor] > 0 && m->serves >> a->recompute & 1) a->now.rule[m->tensor] = (int8_t)a->recompute;
    }
}

/* The menu's rule that does what this operation of a plan does with its map; -1: there is none. */
static int rule_of(const mm_auto *a, const mm_plan *plan, const mm_node *n) {
    const int codec = plan->segments[n->dst].codec;
    const mm_action action = n->kind == MM_NODE_ENCODE ? MM_ACTION_CODE
                             : codec < 0               ? MM_ACTION_SWAP
                                                       : MM_ACTION_CODE_SWAP;
    for (int r = 0; r < a->n_rules; r++) {
        const mm_rule *rule = &a->menu->rules[r];
        if (rule->action == action && (codec < 0 || strcmp(rule->codec, a->facts->codecs[codec].spec) == 0)) return r;
    }
    return MM_AUTO_KEEP;
}

/* Sets a rule for a map that a plan makes again: lean if the plan does so more than once. */
static void read_again(mm_auto *a, const mm_auto_map *m) {
    int8_t *rule = &a->now.rule[m->tensor];
    if (mm_auto_makes_again(a, *rule) && a->anew >= 0 && m->serves >> a->anew & 1)
        *rule = (int8_t)a->anew;
    else if (m->serves >> a->recompute & 1)
        *rule = (int8_t)a->recompute;
}

/* Sets the rule of maps that a plan swaps in a lean way: they come back twice, or get a mask when they have come back,
 * or are no feature maps. */
static void read_lean(mm_auto *a, const mm_plan *plan) {
    int32_t *back = a->now.fetch; /* per tensor: how often it has come back */
    memset(back, 0, (size_t)mm_graph_tensors(a->graph) * sizeof *back);
    for (int i = 0; a->lean >= 0 && i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (n->tensor >= 0 && mm_plan_visits(plan, n->tensor)) continue;
        const bool in = n->kind == MM_NODE_IN && plan->segments[n->dst].codec < 0;
        if (in) back[n->tensor]++;
        if (in ? back[n->tensor] > 1 || mm_graph_tensor(a->graph, n->tensor)->kind != MM_FEATURE_MAP
               : n->kind == MM_NODE_ENCODE && back[n->tensor] > 0)
            a->now.rule[n->tensor] = (int8_t)a->lean;
    }
}

/* Sets a->now to what a plan does with each map, as far as its operations show. A mask counts only if the plan does
 * nothing else with the map. */
static void read_off(mm_auto *a, const mm_plan *plan) {
    start_kept(a);
    read_lean(a, plan);
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (n->tensor >= 0 && mm_plan_visits(plan, n->tensor)) continue;
        if (n->kind == MM_NODE_ENCODE || n->kind == MM_NODE_OUT) {
            const int rule = rule_of(a, plan, n);
            int8_t *had = &a->now.rule[n->tensor];
            if (rule >= 0 && *had != a->lean && (*had < 0 || rule != a->mask)) *had = (int8_t)rule;
        }
        if (n->kind != MM_NODE_RECOMPUTE || a->recompute < 0) continue;
        const mm_step_info *step = mm_graph_step(a->graph, n->step);
        for (int u = 0; u < step->n_uses; u++) {
            const int map = step->uses[u].access == MM_WRITE ? a->map_of[step->uses[u].tensor] : -1;
            if (map >= 0) read_again(a, &a->maps[map]);
        }
    }
}

/* The choice of nested recomputation whose kept maps differ least from the maps that a->now keeps; -1: keeping all maps
 * differs less. */
static int nearest_nesting(const mm_auto *a) {
    int nearest = -1, least = 0;
    for (int i = 0; i < a->n_maps; i++) least += a->now.rule[a->maps[i].tensor] == a->recompute;
    for (int k = a->recompute >= 0 ? mm_survey_nestings(a->survey) - 1 : -1; k >= 0; k--) {
        const uint8_t *level = mm_nesting_levels(&a->survey->nesting, k);
        int differ = 0;
        for (int i = 0; i < a->n_maps; i++) {
            const mm_auto_map *m = &a->maps[i];
            if (m->serves >> a->recompute & 1)
                differ += (level[m->tensor] > 0) != (a->now.rule[m->tensor] == a->recompute);
        }
        if (differ < least) nearest = k, least = differ;
    }
    return nearest;
}

/* Tries choices of nested recomputation, those next to `near` first: with larger chains, of which more is swapped, and
 * with smaller ones. most: how far it goes, in choices on both sides together. */
static mm_status start_nestings(mm_auto *a, int near, int most, bool deep) {
    const mm_auto_weights w = {.link = 0.4, .capped = true, .deep = deep};
    const int n = a->recompute >= 0 ? mm_survey_nestings(a->survey) : 0;
    bool better;
    for (int i = 0; i < 2 * n + 1 && i < most && !mm_auto_stopped(a); i++) {
        const int nesting = near + (i % 2 ? (i + 1) / 2 : -i / 2);
        if (nesting < 0 || nesting >= n) continue;
        start_nested(a, nesting);
        MM_TRY(mm_auto_try(a, &w, &better));
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- by kinds of layers */

static mm_layer_kind kind_of(const mm_auto *a, const mm_auto_map *m) {
    const int producer = mm_schedule_producer(a->graph, m->tensor);
    return producer < 0 ? MM_LAYER_OTHER : mm_graph_layer(a->graph, mm_graph_step(a->graph, producer)->layer)->kind;
}

/* Tries a choice in which all maps that a kind of layer writes get one action (per kind). Maps that the action does not
 * serve are lean-swapped, and so are idle gradient maps (engine_gradients.h). *value_out: the draft's time; if the
 * draft does not fit, its bytes plus a number larger than any time. */
static mm_status try_kinds(mm_auto *a, const int8_t *action, int lead, bool brief, int64_t *value_out) {
    const mm_auto_weights w = {.link = 0.4, .capped = true};
    bool better;
    start_kept(a);
    a->now.lead = lead;
    memset(a->now.brief, brief, (size_t)mm_graph_tensors(a->graph));
    for (int i = 0; i < a->n_maps; i++) {
        const mm_auto_map *m = &a->maps[i];
        const int8_t wanted = action[kind_of(a, m)];
        const bool served = wanted < 0 || m->serves >> wanted & 1;
        if (served || m->serves >> a->lean & 1) a->now.rule[m->tensor] = served ? wanted : (int8_t)a->lean;
    }
    for (int t = 0; t < mm_graph_tensors(a->graph); t++)
        if (mm_graph_tensor(a->graph, t)->kind == MM_GRADIENT_MAP) a->now.rule[t] = (int8_t)a->lean;
    MM_TRY(mm_auto_try(a, &w, &better));
    const bool within = a->draft.bounds.peak_bytes <= a->limits->device_bytes &&
                        a->draft.bounds.pinned_bytes <= a->limits->pinned_bytes;
    *value_out = within ? a->draft_ns : INT64_MAX / 2 + a->draft.bounds.peak_bytes;
    return MM_OK;
}

static mm_status start_kinds(mm_auto *a, int lead, bool brief) {
    int8_t action[MM_LAYER_KINDS];
    bool there[MM_LAYER_KINDS] = {0}, changed = true;
    int64_t least, value;
    memset(action, a->lean, sizeof action);
    for (int i = 0; i < a->n_maps; i++) there[kind_of(a, &a->maps[i])] = true;
    MM_TRY(try_kinds(a, action, lead, brief, &least));
    while (changed) {
        changed = false;
        for (int k = 0; k < MM_LAYER_KINDS; k++)
            for (int rule = MM_AUTO_KEEP; there[k] && rule < a->n_rules; rule++) {
                const int8_t before = action[k];
                if (rule == before || mm_auto_stopped(a)) continue;
                action[k] = (int8_t)rule;
                MM_TRY(try_kinds(a, action, lead, brief, &value));
                if (value < least) {
                    least = value;
                    changed = true;
                } else
                    action[k] = before;
            }
    }
    return MM_OK;
}

mm_status mm_auto_start_kinds(mm_auto *a) {
    const int64_t left = a->left;
    if (a->lean < 0) return MM_OK;
    MM_TRY(start_kinds(a, 0, false));
    a->left = left;
    MM_TRY(start_kinds(a, 0, true));
    a->left = left;
    return start_kinds(a, mm_auto_leads[0], false);
}

mm_status mm_auto_start_from(mm_auto *a, const mm_plan *plan) {
    const mm_auto_weights usual = {.link = 0.4, .capped = true};
    bool better;
    for (int timed = 1; timed >= 0; timed--) {
        read_off(a, plan);
        if (timed)
            a->now.nesting = nearest_nesting(a);
        else
            a->now.lead = 0;
        MM_TRY(mm_auto_try(a, &usual, &better));
    }
    return MM_OK;
}

mm_status mm_auto_start(mm_auto *a, const mm_plan *plan) {
    enum { FEW = 7 }; /* chosen: for starts in budgets below (plan NULL), of which there are many */
    int near = a->best_weights.link > 0 && a->best.nesting >= 0 ? a->best.nesting : 0;
    bool better;
    if (plan) {
        read_off(a, plan);
        near = nearest_nesting(a);
    }
    MM_TRY(start_nestings(a, near, plan ? INT_MAX : FEW, false));
    if (!plan && near > FEW / 2) MM_TRY(start_nestings(a, 0, FEW, false));
    bool within = a->fits; /* if not: what has no way to the target at one price has none at others */
    for (int l = 0; l < 2 * MM_AUTO_LINKS && !mm_auto_stopped(a) && (within || l < 2); l++) {
        const mm_auto_weights w = {.link = mm_auto_links[l / 2], .capped = l % 2};
        start_kept(a);
        MM_TRY(mm_auto_try(a, &w, &better));
        within |= a->draft.bounds.peak_bytes <= a->target;
    }
    if (a->best_weights.link > 0 && a->best.nesting >= 0) near = a->best.nesting;
    return start_nestings(a, near, plan && within ? INT_MAX : FEW, true);
}

/* SPDX-License-Identifier: MIT */
/* auto: any action on any map, with a portfolio (auto_portfolio.h) and a search. Here are its options, and what it does
 * about times that the facts lack.
 *
 * Its rules are its menu: each names all maps, with one action that a map may get. The codecs, and what is checked and
 * printed of them, follow from the rules, as they do for the engine's presets. The portfolio has the policies whose
 * codecs are all in the menu: without codecs=, only lossless ones. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/auto/auto_portfolio.h"
#include "policies/engine/engine.h"
#include "policies/option_tables.h"
#include "policies/policy_table.h"
#include "policies/rules/rules.h"
#include "policies/schedule/nominal.h"

/* ---------------------------------------------------------------- the policy */

static bool is_timed(const mm_graph_facts *facts, const char *spec) {
    const int codec = mm_facts_codec(facts, spec);
    for (int t = 0; t < facts->n_tensors; t++)
        if (mm_facts_code(facts, codec, t)->encode_ns > 0) return true;
    return false;
}

/* Checks that the facts have the times by which plans are compared. */
static mm_status check_facts(const mm_graph *graph, const mm_graph_facts *facts, const mm_engine_config *config) {
    MM_TRY(mm_nominal_check_times(graph, facts));
    char codecs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    const int n = mm_engine_codecs(config, codecs, MM_MAX_CODECS);
    for (int i = 0; i < n; i++) {
        char what[MM_SPEC_CAPACITY + 16];
        snprintf(what, sizeof what, "time of codec %.63s", codecs[i]);
        if (!is_timed(facts, codecs[i])) return mm_nominal_lacks(what);
    }
    return MM_OK;
}

/* Filters the menu if the facts lack times of masks: facts made from a machine's rates, or from runs that made no mask,
 * may lack them. */
static bool makes_no_mask(const mm_graph_facts *facts, const mm_rule *rule) {
    (void)facts;
    return !rule->mask && !mm_rule_swaps_lean(rule) && !rule->offered; /* a code needs a mask beside it */
}

/* Filters the menu by codecs that nobody named and that encode no map (mm_policy_restrict). */
static bool is_of_use(const mm_graph_facts *facts, const mm_rule *rule) {
    const int codec = rule->offered ? mm_facts_codec(facts, rule->codec) : -1;
    for (int t = 0; codec >= 0 && t < facts->n_tensors; t++)
        if (mm_facts_code(facts, codec, t)->code_bytes >= 0) return true;
    return !rule->offered;
}

/* Filters the menu by codecs that nobody named and that the facts have no times of. */
static bool is_asked_for_or_timed(const mm_graph_facts *facts, const mm_rule *rule) {
    return !rule->offered || is_timed(facts, rule->codec);
}

/* Filters the menu if layers must not be recomputed. */
static bool does_not_recompute(const mm_graph_facts *facts, const mm_rule *rule) {
    (void)facts;
    return rule->action != MM_ACTION_RECOMPUTE;
}

/* Makes a copy of the facts with nominal times for masks. */
static mm_status time_masks(const mm_graph *graph, const mm_graph_facts *facts, mm_graph_facts *timed) {
    const size_t tensors = (size_t)facts->n_tensors;
    MM_TRY(mm_nominal_init(graph, facts, timed));
    const mm_graph_facts nominal = *timed;
    *timed = *facts;
    timed->variants = nominal.variants;
    timed->codes = nominal.codes;
    memcpy(timed->variants, facts->variants, (size_t)facts->variant_first[facts->n_steps] * sizeof *facts->variants);
    for (int c = 0; c < facts->n_codecs; c++)
        if (strcmp(facts->codecs[c].spec, mm_mask_spec) != 0)
            memcpy(timed->codes + (size_t)c * tensors, facts->codes + (size_t)c * tensors,
                   tensors * sizeof *facts->codes);
    return MM_OK;
}

/* Called when no plan without masks fits. Plans with masks, too, by estimated times of masks: that is better than no
 * plan. */
static mm_status plan_with_masks(mm_portfolio *p, const mm_graph_facts *near, mm_graph_facts *timed, mm_plan **plan) {
    mm_plan *without = *plan;
    mm_status status = time_masks(p->graph, near, timed);
    p->facts = timed;
    *plan = NULL;
    if (status == MM_OK) status = mm_portfolio_plan(p, plan);
    p->plan = *plan;
    if (status == MM_OK)
        status = mm_portfolio_offer(p, without);
    else
        mm_plan_destroy(without);
    *plan = p->plan;
    return status;
}

static mm_status plan_by(mm_portfolio *p, const mm_graph_facts *facts, mm_engine_config *menu, mm_plan **plan_out) {
    const mm_engine_config *whole = p->menu;
    mm_graph_facts nominal = {0}, near = *facts;
    mm_status status = mm_engine_check_codecs(facts, menu);
    const bool due = mm_nominal_is_due(facts), unmasked = !due && !is_timed(facts, mm_mask_spec);
    near.far_ps_per_byte = 0; /* a smaller memory is faster, but that shall not favour evictions */
    p->facts = &near;
    p->menu = menu;
    if (status == MM_OK && due) {
        status = mm_nominal_init(p->graph, &near, &nominal);
        p->facts = &nominal;
    } else if (status == MM_OK) {
        if (unmasked) mm_portfolio_filter(menu, facts, makes_no_mask);
        status = check_facts(p->graph, facts, menu);
    }
    if (status == MM_OK) status = mm_portfolio_plan(p, plan_out);
    p->menu = whole;
    if (status == MM_OK && unmasked && !mm_portfolio_fits(p, *plan_out))
        status = plan_with_masks(p, &near, &nominal, plan_out);
    if (status == MM_OK) (*plan_out)->cut_short = mm_portfolio_fits(p, *plan_out) && mm_is_stopped(p->limits->stop);
    p->facts = NULL;
    mm_nominal_fini(&nominal);
    return status;
}

static mm_status auto_plan(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                           const mm_engine_config *config, mm_plan **plan_out) {
    mm_engine_config whole, menu; /* plan_by may filter `menu` further */
    MM_TRY(mm_config_copy(config, &whole));
    if (limits->no_recompute) mm_portfolio_filter(&whole, facts, does_not_recompute);
    mm_portfolio_filter(&whole, facts, is_of_use);
    if (!mm_nominal_is_due(facts)) mm_portfolio_filter(&whole, facts, is_asked_for_or_timed);
    mm_portfolio p = {.graph = graph, .limits = limits, .menu = &whole};
    mm_status status = mm_config_copy(&whole, &menu);
    if (status == MM_OK) {
        status = plan_by(&p, facts, &menu, plan_out);
        mm_rules_fini(&menu);
    }
    mm_rules_fini(&whole);
    return status;
}

static const mm_option_desc auto_options[] = {
    {.key = "codecs",
     .fallback = "",
     .type = MM_OPTION_MENU,
     .help = "codecs of the maps' elements that it may use, as zfp:rate=4+dpr:fp16; with a lossy one it is lossy"},
    {.key = "effort",
     .fallback = "1",
     .type = MM_OPTION_NUMBER,
     .field = offsetof(mm_engine_config, own[MM_AUTO_EFFORT]),
     .min = 0,
     .max = 1000000,
     .help = "how long it searches beyond the other policies' plans, in multiples of the default; 0: not at all, "
             "which is the fastest"},
    MM_OPTION_SUB_BATCH("off"),
    MM_OPTION_RESIDENT("needed"),
    {0},
};

const mm_policy_ops mm_policy_auto = {
    .name = "auto",
    .summary = "every action on every map: the fastest plan of all that it tries",
    .options = auto_options,
    .config = {.fetch = MM_FETCH_DEPTH,
               .depth = 2,
               .buffers = MM_REGION_GENERAL,
               .codes = MM_REGION_GENERAL,
               .recompute = MM_RECOMPUTE_NESTED,
               .sub_batch = MM_SUB_BATCH_OFF},
    .plan = auto_plan,
    .not_in_auto = "it is auto",
};

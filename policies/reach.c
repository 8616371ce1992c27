/* SPDX-License-Identifier: MIT */
#include "policies/reach.h"

#include <stdlib.h>

#include "mm/core/facts/facts.h"
#include "mm/core/status.h"
#include "policies/engine/engine.h"

static const mm_limits unlimited = {.device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX};

/* Counts the maps that the rules take if the engine acts on all maps that it can. taken: scratch, per tensor. */
static mm_status count(const mm_engine_config *config, const mm_survey *like, const mm_graph *graph,
                       const mm_graph_facts *facts, int8_t *taken, mm_reach *r) {
    const mm_selection all = {.limit = INT32_MAX};
    mm_survey *survey;
    MM_TRY(mm_survey_create(graph, facts, &unlimited, config, like, &survey));
    mm_status status = mm_engine_take_maps(survey, config, &all, taken);
    mm_survey_destroy(survey);
    MM_TRY(status);
    int maps = 0, lossy = 0;
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        if (taken[t] < 0) continue;
        const mm_rule *rule = &config->rules[taken[t]];
        maps++;
        lossy += *rule->codec && !facts->codecs[mm_facts_codec(facts, rule->codec)].lossless;
    }
    if (maps > r->maps) r->maps = maps;
    if (lossy > r->lossy) r->lossy = lossy;
    return MM_OK;
}

/* Counts for all rules together; is_menu: for each, since any map may get any of them. */
static mm_status count_all(const mm_engine_config *whole, bool is_menu, const mm_graph *graph,
                           const mm_graph_facts *facts, int8_t *taken, mm_reach *r) {
    mm_engine_config config = *whole; /* borrows the rules */
    mm_survey *survey;
    if (!is_menu) return count(&config, NULL, graph, facts, taken, r);
    MM_TRY(mm_survey_create(graph, facts, &unlimited, whole, NULL, &survey));
    mm_status status = MM_OK;
    config.n_rules = 1;
    for (int i = 0; status == MM_OK && i < whole->n_rules; i++) {
        config.rules = &whole->rules[i];
        status = count(&config, survey, graph, facts, taken, r);
    }
    mm_survey_destroy(survey);
    return status;
}

mm_status mm_policy_reach(const mm_policy *policy, const mm_graph *graph, const mm_graph_facts *facts,
                          mm_reach *reach_out) {
    mm_reach r = {.by_rules = policy->config.n_rules > 0};
    MM_TRY(mm_engine_check_codecs(facts, &policy->config));
    int8_t *taken = malloc((size_t)mm_graph_tensors(graph) + 1);
    if (!taken) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
    const bool is_menu = policy->ops->plan != mm_engine_plan;
    mm_status status = r.by_rules ? count_all(&policy->config, is_menu, graph, facts, taken, &r) : MM_OK;
    free(taken);
    if (status == MM_OK) *reach_out = r;
    return status;
}

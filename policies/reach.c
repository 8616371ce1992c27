/* SPDX-License-Identifier: MIT */
#include "policies/reach.h"

#include "mm/core/facts/facts.h"
#include "policies/engine/engine.h"

/* Counts the maps that the rules take if the engine acts on all maps that it can. */
static mm_status count(const mm_engine_config *config, const mm_graph *graph, const mm_graph_facts *facts,
                       mm_reach *r) {
    const mm_limits limits = {.device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX};
    const mm_selection all = {.limit = INT32_MAX};
    mm_survey *survey;
    mm_engine_draft draft;
    MM_TRY(mm_survey_create(graph, facts, &limits, config, &survey));
    mm_status status = mm_engine_draft_maps(survey, config, &all, &draft);
    mm_survey_destroy(survey);
    MM_TRY(status);
    int maps = 0, lossy = 0;
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        if (draft.taken[t] < 0) continue;
        const mm_rule *rule = &config->rules[draft.taken[t]];
        maps++;
        lossy += *rule->codec && !facts->codecs[mm_facts_codec(facts, rule->codec)].lossless;
    }
    mm_engine_draft_fini(&draft);
    if (maps > r->maps) r->maps = maps;
    if (lossy > r->lossy) r->lossy = lossy;
    return MM_OK;
}

mm_status mm_policy_reach(const mm_policy *policy, const mm_graph *graph, const mm_graph_facts *facts,
                          mm_reach *reach_out) {
    mm_engine_config config = policy->config; /* borrows the rules */
    const int n_rules = config.n_rules;
    const bool is_menu = policy->ops->plan != mm_engine_plan; /* any map may get any of the rules */
    mm_reach r = {.by_rules = n_rules > 0};
    MM_TRY(mm_engine_check_codecs(facts, &config));
    config.k = 0; /* as many buffers as it takes */
    for (int i = 0; i < n_rules; i += config.n_rules) {
        config.n_rules = is_menu ? 1 : n_rules;
        config.rules = &policy->config.rules[i];
        MM_TRY(count(&config, graph, facts, &r));
    }
    *reach_out = r;
    return MM_OK;
}

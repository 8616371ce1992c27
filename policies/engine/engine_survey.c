/* SPDX-License-Identifier: MIT */
#include "policies/engine/engine_survey.h"

#include <stdlib.h>

#include "mm/core/status.h"
#include "policies/engine/map_rule.h"
#include "policies/engine/recompute.h"
#include "policies/engine/recompute_blocks.h"
#include "policies/engine/recompute_knapsack.h"
#include "policies/rules/rules.h"

static mm_status order_tensors(mm_survey *survey) {
    int n = mm_graph_tensors(survey->graph);
    int64_t *keys = malloc(((size_t)n + 1) * sizeof *keys);
    if (!keys) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(survey->graph));
    for (int t = 0; t < n; t++) keys[t] = ((int64_t)mm_graph_tensor(survey->graph, t)->first_use << 32) | t;
    qsort(keys, (size_t)n, sizeof *keys, mm_survey_by_key);
    for (int i = 0; i < n; i++) survey->order[i] = (mm_tensor)(keys[i] & INT32_MAX);
    free(keys);
    return MM_OK;
}

/* The modes that choose among plans of which maps to keep, and how many choices they have at most. Chosen: 32 as LIMITS
 * of budget_search.c is; more for the others, which find no other plans. */
static const struct {
    mm_status (*choose)(mm_nesting *nesting, const mm_schedule *s, int most);
    int most;
} nestings[] = {[MM_RECOMPUTE_NESTED] = {mm_nesting_init, 32},
                [MM_RECOMPUTE_BLOCKS] = {mm_blocks_choose, MM_SURVEY_NESTINGS},
                [MM_RECOMPUTE_KNAPSACK] = {mm_knapsack_choose, MM_SURVEY_NESTINGS}};

/* Finds the choices of the mode; takes those of `like` if they are the same. */
static mm_status find_nestings(mm_survey *survey, const mm_schedule *s, const mm_survey *like) {
    const mm_recompute_mode mode = survey->mode;
    if (!nestings[mode].choose) return MM_OK;
    survey->borrows = like && like->mode == mode && like->begun.inplace == s->inplace;
    if (!survey->borrows) return nestings[mode].choose(&survey->nesting, s, nestings[mode].most);
    survey->nesting = like->nesting;
    return MM_OK;
}

static mm_status look_around(mm_survey *survey, const mm_engine_config *config, const mm_survey *like) {
    const mm_schedule *s = &survey->begun;
    for (int r = 0; r < config->n_rules; r++) {
        uint8_t *named = survey->named + (size_t)r * MM_SELECTOR_TERMS * (size_t)mm_graph_layers(survey->graph);
        const mm_status found = mm_selector_find(&config->rules[r].selector, survey->graph, named);
        if (!config->names_absent) MM_TRY(found);
    }
    MM_TRY(order_tensors(survey));
    MM_TRY(mm_schedule_init(&survey->begun, survey->graph, survey->facts, survey->limits, &config->sharing));
    for (int t = 0; t < mm_graph_tensors(survey->graph); t++) survey->reads[t] = mm_map_find_reads(s, t);
    if (survey->mode == MM_RECOMPUTE_COST) survey->layer_peak = mm_recompute_layer_peak(s);
    if (survey->mode == MM_RECOMPUTE_SQRT) MM_TRY(mm_recompute_cut(s, survey->kept));
    return find_nestings(survey, s, like);
}

mm_status mm_survey_create(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                           const mm_engine_config *config, const mm_survey *like, mm_survey **survey_out) {
    size_t named = (size_t)config->n_rules * MM_SELECTOR_TERMS * (size_t)mm_graph_layers(graph);
    size_t n = (size_t)mm_graph_tensors(graph) + 1;
    mm_survey *survey = malloc(sizeof *survey);
    if (!survey) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
    *survey = (mm_survey){.graph = graph,
                          .facts = facts,
                          .limits = limits,
                          .mode = config->recompute,
                          .order = malloc(n * sizeof *survey->order),
                          .kept = calloc(n, sizeof *survey->kept),
                          .reads = malloc(n * sizeof *survey->reads),
                          .named = malloc(named + 1)};
    mm_status status = survey->order && survey->kept && survey->reads && survey->named
                           ? look_around(survey, config, like)
                           : mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
    if (status == MM_OK)
        *survey_out = survey;
    else
        mm_survey_destroy(survey);
    return status;
}

void mm_survey_destroy(mm_survey *survey) {
    if (!survey) return;
    mm_schedule_fini(&survey->begun);
    free(survey->order);
    free(survey->kept);
    free(survey->reads);
    free(survey->named);
    if (!survey->borrows) mm_nesting_fini(&survey->nesting);
    free(survey);
}

int mm_survey_nestings(const mm_survey *survey) { return survey->nesting.n; }

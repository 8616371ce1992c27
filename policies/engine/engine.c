/* SPDX-License-Identifier: MIT */
#include "policies/engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_codes.h"
#include "mm/core/plan/plan_fits.h"
#include "mm/core/status.h"
#include "policies/engine/engine_build.h"
#include "policies/rules/rules.h"
#include "policies/schedule/draft_time.h"

/* Plans for all maps, placed to the budget. Where they do not fit, regions lend their idle bytes. */
static mm_status plan_all_within(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                 const mm_engine_config *config, mm_plan **plan_out) {
    mm_survey *survey;
    mm_plan *lending;
    const mm_selection all = {.limit = INT32_MAX};
    MM_TRY(mm_survey_create(graph, facts, limits, config, NULL, &survey));
    mm_status status = mm_engine_plan_maps(survey, config, &all, MM_LAYOUT_FIT, plan_out);
    if (status == MM_OK && (*plan_out)->peak_bytes > limits->device_bytes && mm_engine_may_lend(config)) {
        mm_engine_config lends = *config; /* borrows the rules */
        lends.lends = true;
        status = mm_engine_plan_maps(survey, &lends, &all, MM_LAYOUT_FIT, &lending);
        const bool taken = status == MM_OK && lending->peak_bytes < (*plan_out)->peak_bytes;
        if (taken || status != MM_OK) mm_plan_destroy(*plan_out);
        if (taken)
            *plan_out = lending;
        else if (status == MM_OK)
            mm_plan_destroy(lending);
    }
    mm_survey_destroy(survey);
    return status;
}

/* Plans for all maps. If pinned memory cannot hold the spill, reserves more of the codes' bytes on the device, if they
 * fit. */
static mm_status plan_all(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                          const mm_engine_config *config, mm_plan **plan_out) {
    mm_limits unlimited = *limits;
    mm_plan *plan, *pinned_less;
    unlimited.pinned_bytes = INT64_MAX;
    MM_TRY(plan_all_within(graph, facts, &unlimited, config, &plan));
    if (plan->pinned_bytes > limits->pinned_bytes && mm_plan_spill_bytes(plan) > 0) {
        mm_status status = plan_all_within(graph, facts, limits, config, &pinned_less);
        const bool fits = status == MM_OK && pinned_less->peak_bytes <= limits->device_bytes &&
                          pinned_less->pinned_bytes <= limits->pinned_bytes;
        if (status == MM_OK) mm_plan_destroy(fits ? plan : pinned_less);
        if (status != MM_OK) mm_plan_destroy(plan);
        MM_TRY(status);
        if (fits) plan = pinned_less;
    }
    *plan_out = plan;
    return MM_OK;
}

mm_status mm_engine_check_codecs(const mm_graph_facts *facts, const mm_engine_config *config) {
    for (int r = 0; r < config->n_rules; r++) {
        const mm_rule *rule = &config->rules[r];
        if (rule->action != MM_ACTION_CODE && rule->action != MM_ACTION_CODE_SWAP) continue;
        int codec = mm_facts_codec(facts, rule->codec);
        if (codec < 0) return mm_fail(MM_ERR_INVALID, "the facts know no codec '%s'", rule->codec);
        MM_TRY(mm_rules_check_codec(config, &facts->codecs[codec]));
    }
    return MM_OK;
}

static mm_status plan_coded(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                            const mm_engine_config *config, mm_plan **plan_out) {
    return config->when == MM_WHEN_ALWAYS ? plan_all(graph, facts, limits, config, plan_out)
                                          : mm_engine_plan_needed(graph, facts, limits, config, plan_out);
}

/* Whether a step can read a code of one of the rules' codecs by itself. */
static bool any_reads_code(const mm_graph *graph, const mm_graph_facts *facts, const mm_engine_config *config) {
    for (int i = 0; i < mm_graph_steps(graph); i++) {
        const mm_step_info *step = mm_graph_step(graph, i);
        for (int c = 0; c < step->n_codes; c++)
            for (int r = 0; r < config->n_rules; r++)
                if (mm_step_code_of(facts, step, step->codes[c].use, MM_READ,
                                    mm_facts_codec(facts, config->rules[r].codec),
                                    step->uses[step->codes[c].use].tensor))
                    return true;
    }
    return false;
}

static bool has_backward(const mm_graph *graph) {
    for (int i = 0; i < mm_graph_steps(graph); i++)
        if (mm_graph_step(graph, i)->phase == MM_BACKWARD) return true;
    return false;
}

static bool fits(const mm_plan *plan, const mm_limits *limits) {
    return plan->peak_bytes <= limits->device_bytes && plan->pinned_bytes <= limits->pinned_bytes;
}

/* Whether plan a is the better one: it alone fits; or both do, and it is faster; or neither, and it needs less. */
static mm_status compare(const mm_plan *a, const mm_plan *b, const mm_graph_facts *facts, const mm_limits *limits,
                         bool *better_out) {
    int64_t a_ns, b_ns;
    *better_out = fits(a, limits);
    if (*better_out != fits(b, limits)) return MM_OK;
    const bool less = a->peak_bytes < b->peak_bytes;
    *better_out = less;
    if (!fits(a, limits)) return MM_OK;
    MM_TRY(mm_simulated_time(a, facts, &a_ns));
    MM_TRY(mm_simulated_time(b, facts, &b_ns));
    *better_out = a_ns != b_ns ? a_ns < b_ns : less;
    return MM_OK;
}

static mm_status plan_both(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                           const mm_engine_config *config, mm_plan **plan_out) {
    mm_engine_config one = *config; /* borrows the rules */
    mm_plan *beside, *in_step;
    bool better = false;
    one.coding = MM_CODES_BESIDE;
    mm_status status = plan_coded(graph, facts, limits, &one, &beside);
    if (!any_reads_code(graph, facts, config)) {
        if (status == MM_OK) *plan_out = beside;
        return status;
    }
    one.coding = MM_CODES_IN_STEP;
    if (status != MM_OK) return plan_coded(graph, facts, limits, &one, plan_out);
    status = plan_coded(graph, facts, limits, &one, &in_step);
    if (status != MM_OK) {
        *plan_out = beside;
        return MM_OK;
    }
    status = compare(in_step, beside, facts, limits, &better);
    mm_plan_destroy(better ? beside : in_step);
    if (status == MM_OK)
        *plan_out = better ? in_step : beside;
    else
        mm_plan_destroy(better ? in_step : beside);
    return status;
}

mm_status mm_engine_plan(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                         const mm_engine_config *config, mm_plan **plan_out) {
    MM_TRY(mm_engine_check_codecs(facts, config));
    if (config->coding == MM_CODES_AUTO) return plan_both(graph, facts, limits, config, plan_out);
    if (config->coding == MM_CODES_IN_STEP && has_backward(graph) && !any_reads_code(graph, facts, config))
        return mm_fail(
            MM_ERR_INVALID,
            "codes=in-step: no step of %s can read codes of %s: batch norms of f32 maps can, of zfp in two dimensions "
            "(on cuda: rate 4, 6.4 or 8) and dpr, on the host also of mx and raw; use codes=beside or codes=auto",
            mm_graph_name(graph), mm_rules_codec(config));
    return plan_coded(graph, facts, limits, config, plan_out);
}

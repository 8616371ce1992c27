/* SPDX-License-Identifier: MIT */
#include "policies/engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/engine/engine_build.h"
#include "policies/schedule/draft_time.h"

mm_status mm_engine_plan_maps(const mm_survey *survey, const mm_engine_config *config, const mm_selection *selection,
                              mm_layout_algorithm layout, mm_plan **plan_out) {
    mm_engine e;
    mm_bounds ignored;
    MM_TRY(mm_engine_make(&e, survey, config, selection, &ignored));
    if (config->sharing.layout == MM_PLACING_SEARCHED) e.schedule.layout = layout;
    mm_status status = mm_schedule_finish(&e.schedule, plan_out);
    mm_engine_fini(&e);
    return status;
}

mm_status mm_engine_bound_maps(const mm_survey *survey, const mm_engine_config *config, const mm_selection *selection,
                               int *eligible_out, int *of_rule_out, mm_bounds *bounds_out, int64_t *ns_out) {
    return mm_engine_bound_within(survey, config, selection, INT64_MAX, eligible_out, of_rule_out, bounds_out, ns_out);
}

mm_status mm_engine_bound_within(const mm_survey *survey, const mm_engine_config *config, const mm_selection *selection,
                                 int64_t device_bytes, int *eligible_out, int *of_rule_out, mm_bounds *bounds_out,
                                 int64_t *ns_out) {
    mm_engine e;
    MM_TRY(mm_engine_make(&e, survey, config, selection, bounds_out));
    *ns_out = INT64_MAX;
    mm_status status = MM_OK;
    if (bounds_out->peak_bytes <= device_bytes) status = mm_draft_time(e.schedule.plan, survey->facts, ns_out);
    if (status == MM_OK) *eligible_out = e.maps.eligible;
    if (status == MM_OK && of_rule_out)
        memcpy(of_rule_out, e.maps.of_rule, (size_t)config->n_rules * sizeof *of_rule_out);
    mm_engine_fini(&e);
    return status;
}

static void describe(const mm_engine *e, mm_engine_draft *d) {
    const mm_schedule *s = &e->schedule;
    for (int i = mm_graph_persistents(s->graph); i < s->plan->n_segments; i++) {
        const mm_interval *life = &s->lives[s->segment_group[i]];
        const bool first = s->plan->segments[i].first_node == life->first && life->first >= 0;
        if (s->groups[s->segment_group[i]].region == MM_REGION_PINNED || !first) continue;
        d->spans[i] = (mm_span){.first = life->first, .last = life->last, .bytes = mm_align(life->bytes)};
    }
    for (int t = 0; t < mm_graph_tensors(s->graph); t++)
        d->taken[t] = (int8_t)(e->maps.map_of[t] >= 0 ? e->maps.maps[e->maps.map_of[t]].rule : -1);
}

mm_status mm_engine_draft_maps(const mm_survey *survey, const mm_engine_config *config, const mm_selection *selection,
                               mm_engine_draft *d) {
    mm_engine e;
    *d = (mm_engine_draft){.plan = NULL};
    MM_TRY(mm_engine_make(&e, survey, config, selection, &d->bounds));
    d->spans = calloc((size_t)e.schedule.plan->n_segments + 1, sizeof *d->spans);
    d->taken = malloc((size_t)mm_graph_tensors(survey->graph) + 1);
    mm_status status = d->spans && d->taken
                           ? MM_OK
                           : mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(survey->graph));
    if (status == MM_OK) {
        describe(&e, d);
        d->plan = e.schedule.plan;
        e.schedule.plan = NULL;
    } else
        mm_engine_draft_fini(d);
    mm_engine_fini(&e);
    return status;
}

void mm_engine_draft_fini(mm_engine_draft *d) {
    mm_plan_destroy(d->plan);
    free(d->spans);
    free(d->taken);
    *d = (mm_engine_draft){.plan = NULL};
}

/* Where the skyline misses the budget, an exact search may not. */
static mm_status plan_all_within(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                                 const mm_engine_config *config, mm_plan **plan_out) {
    mm_survey *survey;
    const mm_selection all = {.limit = INT32_MAX};
    MM_TRY(mm_survey_create(graph, facts, limits, config, &survey));
    mm_status status = mm_engine_plan_maps(survey, config, &all, MM_LAYOUT_BEST, plan_out);
    if (status == MM_OK && (*plan_out)->peak_bytes > limits->device_bytes) {
        mm_plan_destroy(*plan_out);
        status = mm_engine_plan_maps(survey, config, &all, MM_LAYOUT_EXACT, plan_out);
    }
    mm_survey_destroy(survey);
    return status;
}

/* Where the pinned memory is too little for a spill, more than the reserve of codes lies on the device, if that fits
 * there. */
static mm_status plan_all(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
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

mm_status mm_engine_check_codecs(const mm_facts *facts, const mm_engine_config *config) {
    for (int r = 0; r < config->n_rules; r++) {
        const mm_rule *rule = &config->rules[r];
        if (rule->action != MM_ACTION_CODE && rule->action != MM_ACTION_CODE_SWAP) continue;
        int codec = mm_facts_codec(facts, rule->codec);
        if (codec < 0) return mm_fail(MM_ERR_INVALID, "the facts know no codec '%s'", rule->codec);
        MM_TRY(mm_rules_check_codec(config, &facts->codecs[codec]));
    }
    return MM_OK;
}

static mm_status plan_coded(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                            const mm_engine_config *config, mm_plan **plan_out) {
    return config->when == MM_WHEN_ALWAYS ? plan_all(graph, facts, limits, config, plan_out)
                                          : mm_engine_plan_needed(graph, facts, limits, config, plan_out);
}

/* Whether a step can read a code of one of the rules' codecs by itself. */
static bool any_reads_code(const mm_graph *graph, const mm_facts *facts, const mm_engine_config *config) {
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
static mm_status compare(const mm_plan *a, const mm_plan *b, const mm_facts *facts, const mm_limits *limits,
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

static mm_status plan_both(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
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

mm_status mm_engine_plan(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                         const mm_engine_config *config, mm_plan **plan_out) {
    MM_TRY(mm_engine_check_codecs(facts, config));
    if (config->coding == MM_CODES_AUTO) return plan_both(graph, facts, limits, config, plan_out);
    if (config->coding == MM_CODES_IN_STEP && has_backward(graph) && !any_reads_code(graph, facts, config))
        return mm_fail(
            MM_ERR_INVALID,
            "codes=in-step: no step of %s reads codes of %s by itself: batch norms of f32 maps do, of zfp in two "
            "dimensions (on cuda rate 4, 6.4 or 8) and dpr, on the host also mx and raw; use codes=beside or "
            "codes=auto",
            mm_graph_name(graph), mm_rules_codec(config));
    return plan_coded(graph, facts, limits, config, plan_out);
}

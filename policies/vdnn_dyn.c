/* SPDX-License-Identifier: MIT */
/* vDNN-dyn (Rhu et al., MICRO 2016, section III-C): tries, in this order, and takes the first plan that fits:
 *   no offload               all maps stay, each layer runs its fastest algorithm
 *   vdnn-conv, vdnn-all      with the fastest algorithms
 *   vdnn-conv, vdnn-all      a layer whose algorithm's workspace has no room runs the next one with less, and so on
 *                            (the paper's greedy, local downgrade)
 *   vdnn-all                 with the least workspaces: the least memory
 * The paper profiles these forms in trial runs; here they are plans. */
#include <stdlib.h>

#include "mm/core/plan/plan_fits.h"
#include "mm/core/status.h"
#include "policies/engine/engine.h"
#include "policies/policy_table.h"

enum { CONV, ALL }; /* indices of its rules */

typedef struct trial {
    const mm_graph *graph;
    const mm_graph_facts *facts;
    const mm_limits *limits;
    const mm_engine_config *config;
    int32_t *variants; /* per step */
    int64_t *live;     /* per node: bytes of all segments but workspaces that are alive */
    mm_plan *plan;     /* of the last trial */
} trial;

static const mm_selection every_map = {.limit = INT32_MAX}, no_map = {.limit = 0};

static mm_engine_config with_rule(const trial *t, int rule, mm_algorithms algorithms) {
    mm_engine_config config = *t->config; /* borrows the rules */
    config.rules += rule;
    config.n_rules = 1;
    config.algorithms = algorithms;
    return config;
}

static mm_status plan_of(trial *t, const mm_engine_config *config, const mm_selection *maps) {
    mm_survey *survey;
    mm_plan_destroy(t->plan);
    t->plan = NULL;
    MM_TRY(mm_survey_create(t->graph, t->facts, t->limits, config, NULL, &survey));
    mm_status status = mm_engine_plan_maps(survey, config, maps, MM_LAYOUT_FIT, &t->plan);
    mm_survey_destroy(survey);
    return status;
}

static bool fits(const trial *t) {
    return t->plan->peak_bytes <= t->limits->device_bytes && t->plan->pinned_bytes <= t->limits->pinned_bytes;
}

/* ---------------------------------------------------------------- algorithms that have room */

static mm_status count_live(trial *t, const mm_engine_draft *draft) {
    const mm_plan *plan = draft->plan;
    t->live = calloc((size_t)plan->n_nodes + 2, sizeof *t->live);
    if (!t->live) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(t->graph));
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_span *span = &draft->spans[i];
        if (span->bytes == 0 || plan->segments[i].content == MM_CONTENT_WORK) continue;
        t->live[span->first] += span->bytes;
        t->live[span->last + 1] -= span->bytes;
    }
    for (int n = 1; n < plan->n_nodes; n++) t->live[n] += t->live[n - 1];
    return MM_OK;
}

/* The first of the step's variants whose workspace has room; the last one if none has. */
static int32_t variant_within(const trial *t, int step, int64_t room) {
    const int first = t->facts->variant_first[step], n = t->facts->variant_first[step + 1] - first;
    int32_t v = 0;
    while (v < n - 1 && mm_align(t->facts->variants[first + v].workspace_bytes) > room) v++;
    return v;
}

static mm_status downgrade(trial *t, const mm_engine_config *config) {
    mm_survey *survey;
    mm_engine_draft draft = {.plan = NULL};
    MM_TRY(mm_survey_create(t->graph, t->facts, t->limits, config, NULL, &survey));
    mm_status status = mm_engine_draft_maps(survey, config, &every_map, &draft);
    mm_survey_destroy(survey);
    if (status == MM_OK) status = count_live(t, &draft);
    for (int n = 0; status == MM_OK && n < draft.plan->n_nodes; n++) {
        const mm_node *node = &draft.plan->nodes[n];
        const int64_t base = mm_align(draft.plan->base_bytes) + draft.plan->external_bytes;
        if (node->kind == MM_NODE_STEP)
            t->variants[node->step] = variant_within(t, node->step, t->limits->device_bytes - base - t->live[n]);
    }
    if (status == MM_OK) mm_engine_draft_fini(&draft);
    free(t->live);
    t->live = NULL;
    return status;
}

/* ---------------------------------------------------------------- the trials */

static mm_status try_all(trial *t) {
    mm_engine_config config = with_rule(t, ALL, MM_ALGORITHMS_FASTEST);
    MM_TRY(plan_of(t, &config, &no_map));
    for (int rule = CONV; rule <= ALL && !fits(t); rule++) {
        config = with_rule(t, rule, MM_ALGORITHMS_FASTEST);
        MM_TRY(plan_of(t, &config, &every_map));
    }
    for (int rule = CONV; rule <= ALL && !fits(t); rule++) {
        config = with_rule(t, rule, MM_ALGORITHMS_LEAST);
        MM_TRY(downgrade(t, &config));
        config.variants = t->variants;
        MM_TRY(plan_of(t, &config, &every_map));
    }
    if (fits(t)) return MM_OK;
    config = with_rule(t, ALL, MM_ALGORITHMS_LEAST);
    return plan_of(t, &config, &every_map);
}

static mm_status plan(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                      const mm_engine_config *config, mm_plan **plan_out) {
    trial t = {.graph = graph, .facts = facts, .limits = limits, .config = config};
    t.variants = calloc((size_t)mm_graph_steps(graph) + 1, sizeof *t.variants);
    if (!t.variants) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
    const mm_status status = try_all(&t);
    free(t.variants);
    if (status == MM_OK)
        *plan_out = t.plan;
    else
        mm_plan_destroy(t.plan);
    return status;
}

const mm_policy_ops mm_policy_vdnn_dyn = {
    .name = "vdnn-dyn",
    .summary = "the fastest of vdnn's forms that fits: which maps leave, and which algorithms have room",
    .rules = "conv-in=swap;*=swap",
    .config = {.fetch = MM_FETCH_LAYER,
               .leave_steps = 2,
               .buffers = MM_REGION_GENERAL,
               .codes = MM_REGION_CODES,
               .recompute = MM_RECOMPUTE_COST,
               .sub_batch = MM_SUB_BATCH_OFF},
    .plan = plan,
    .not_in_auto = "its plans are vdnn-all's and vdnn-conv's, or run other algorithms, which round differently",
};

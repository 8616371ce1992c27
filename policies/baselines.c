/* SPDX-License-Identifier: MIT */
/* The two baselines, which keep every feature map from its forward to its backward use.
 *   naive     every tensor has storage of its own, and nothing is freed: the papers' baseline: the sum of
 *             all layers' forward and backward tensors
 *   liveness  storage is used again after a tensor's last use, aliases share it, and outputs are written in place where
 *             possible: the lean baseline that other policies are compared with. Its options give papers' baselines,
 *             which are less lean: inplace=off,layout=groups is CNTK's (Gist's baseline), with stash=apart Gist's
 *             investigation baseline. algorithms=N runs the N-th variant of each step after the first, or its last one
 *             if there are fewer, so that all variants can be measured one after the other (tools/measure/collect.h) */
#include <limits.h>
#include <stdlib.h>

#include "mm/core/graph/graph.h"
#include "mm/core/status.h"
#include "policies/option_tables.h"
#include "policies/policy_table.h"
#include "policies/schedule/schedule.h"

static mm_status plan_steps(mm_schedule *s, bool keep_all, mm_plan **plan_out) {
    for (int step = 0; step < mm_graph_steps(s->graph); step++)
        if (mm_schedule_step(s, step, NULL) < 0) return MM_ERR_NOMEM;
    mm_bounds ignored;
    MM_TRY(mm_schedule_close(s, 0, keep_all, &ignored));
    return mm_schedule_finish(s, plan_out);
}

static mm_status naive_plan(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                            const mm_engine_config *config, mm_plan **plan_out) {
    (void)config;
    const mm_sharing none = {.inplace = MM_INPLACE_OFF};
    mm_schedule s;
    MM_TRY(mm_schedule_init(&s, graph, facts, limits, &none));
    s.workspace_group = mm_schedule_group(&s, MM_REGION_GENERAL, 0);
    mm_status status = s.workspace_group < 0 ? MM_ERR_NOMEM : plan_steps(&s, true, plan_out);
    mm_schedule_fini(&s);
    return status;
}

enum { OWN_VARIANT, FIRST = 0, LEAST = INT_MAX };

/* Chooses each step's variant: the index-th after the first, or the last if there are fewer; LEAST: the one with the
 * least workspace. */
static mm_status take_variants(mm_schedule *s, int index) {
    const int *first = s->facts->variant_first;
    if (index == LEAST) return mm_schedule_least_workspaces(s);
    if (index == FIRST) return MM_OK;
    s->variant = malloc(((size_t)s->facts->n_steps + 1) * sizeof *s->variant);
    if (!s->variant) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    for (int step = 0; step < s->facts->n_steps; step++) {
        const int last = first[step + 1] - first[step] - 1;
        s->variant[step] = index < last ? index : last;
    }
    return MM_OK;
}

static mm_status liveness_plan(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                               const mm_engine_config *config, mm_plan **plan_out) {
    mm_schedule s;
    MM_TRY(mm_schedule_init(&s, graph, facts, limits, &config->sharing));
    if (config->sharing.layout == MM_PLACING_SEARCHED) s.layout = MM_LAYOUT_FIT;
    mm_status status = take_variants(&s, config->own[OWN_VARIANT]);
    if (status == MM_OK) status = plan_steps(&s, false, plan_out);
    mm_schedule_fini(&s);
    return status;
}

const mm_policy_ops mm_policy_naive = {
    .name = "naive",
    .summary = "every tensor has storage of its own, and nothing is freed: the papers' baseline",
    .config = {.sub_batch = MM_SUB_BATCH_OFF},
    .plan = naive_plan,
    .not_in_auto = "it needs more than liveness and is no faster",
};

static const mm_option_desc liveness_options[] = {
    MM_OPTION_INPLACE,
    MM_OPTION_LAYOUT,
    MM_OPTION_STASH,
    {.key = "algorithms",
     .fallback = "fastest",
     .type = MM_OPTION_NUMBER,
     .field = offsetof(mm_engine_config, own[OWN_VARIANT]),
     .choices = "fastest|least",
     .values = {FIRST, LEAST},
     .min = 1,
     .max = 15,
     .help = "of a layer's algorithms the fastest, the one with the least workspace, or the N-th after the fastest"},
    MM_OPTION_RESIDENT("all"),
    {0}};

const mm_policy_ops mm_policy_liveness = {
    .name = "liveness",
    .summary =
        "storage freed after its last use, written in place and shared where the graph allows: the lean baseline",
    .options = liveness_options,
    .config = {.sub_batch = MM_SUB_BATCH_OFF},
    .plan = liveness_plan,
    .not_in_auto = "auto takes it before it tries others, if it fits: nothing is faster",
};

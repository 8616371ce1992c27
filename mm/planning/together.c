/* SPDX-License-Identifier: MIT */
#include "mm/planning/together.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/time/node_time.h"
#include "mm/core/time/simulate.h"

typedef struct planner {
    const mm_together *together;
    const mm_policy *policy;
    const mm_limits *limits;
    const mm_persistent_table *persistents;
    int64_t beside_bytes; /* of the base, above the persistent tensors */
    int most;             /* the graph whose tensors leave */
    mm_home_order order;
    uint8_t *memory;       /* per entry of the table */
    mm_planned *made;      /* of each graph: the plan of this try, with borrowed facts and codecs */
    mm_home_result result; /* of the plans that were kept */
} planner;

static mm_status make_one(planner *p, const mm_home_trial *trial, int graph) {
    mm_planned *made = &p->made[graph];
    mm_limits limits = *p->limits;
    mm_place *places;
    *made = (mm_planned){.facts = p->together->planned[graph]->facts, .codecs = p->together->planned[graph]->codecs};
    MM_TRY(mm_persistent_table_places(p->persistents, &(mm_homes){p->memory, p->persistents->n},
                                      p->together->graphs[graph], &limits, &places));
    limits.base_bytes += p->beside_bytes;
    limits.first_fit |= trial->first_fit;
    limits.few |= trial->few;
    limits.ahead_bytes = trial->ahead_bytes;
    limits.below_ns = trial->below_ns;
    mm_home_trial_divide(trial, &limits);
    if (trial->pinned_free) limits.pinned_bytes = INT64_MAX;
    mm_homes_make_room(&limits);
    mm_status status = mm_planned_make(made, p->policy, p->together->graphs[graph], &limits);
    free(places);
    return status;
}

static mm_status make_all(planner *p, const mm_home_trial *trial, mm_home_result *result_out) {
    mm_home_result r = {0};
    int64_t disk_bytes = 0;
    mm_home_trial_mark(trial, &p->order, p->persistents, p->memory);
    for (int i = 0; i < p->together->n; i++) {
        MM_TRY(make_one(p, trial, i));
        const mm_plan *plan = p->made[i].plan;
        if (plan->peak_bytes > r.peak_bytes) r.peak_bytes = plan->peak_bytes;
        if (plan->pinned_bytes > r.pinned_bytes) r.pinned_bytes = plan->pinned_bytes;
        if (plan->disk_bytes > disk_bytes) disk_bytes = plan->disk_bytes;
    }
    r.lacks_pinned = !trial->pinned_free && r.pinned_bytes > p->limits->pinned_bytes;
    r.lacks_disk = disk_bytes > p->limits->disk_bytes;
    r.fits = !r.lacks_pinned && !r.lacks_disk && r.peak_bytes <= p->limits->device_bytes;
    const mm_planned *most = &p->made[p->most];
    if (r.fits) MM_TRY(mm_program_predict(most->program, most->facts, &r.ns));
    if (r.ns > 0) r.steps_ns = mm_plan_steps_ns(most->plan, most->facts);
    *result_out = r;
    return MM_OK;
}

/* The plans of the try, or those before, become the graphs'; the others are dropped. */
static void settle(planner *p, bool keep) {
    for (int i = 0; i < p->together->n; i++) {
        mm_planned *made = &p->made[i], *planned = p->together->planned[i];
        const mm_planned before = *planned;
        if (keep) {
            *planned = *made;
            *made = before;
        }
        mm_plan_destroy(mm_planned_release(made));
    }
}

static mm_status try_homes(void *ctx, const mm_home_trial *trial, mm_home_result *result_out) {
    planner *p = ctx;
    mm_home_result result = {0};
    memset(p->made, 0, (size_t)p->together->n * sizeof *p->made);
    mm_status status = make_all(p, trial, &result);
    const bool faster = result.fits && result.ns > 0 && result.ns < p->result.ns; /* 0: a time is missing */
    const bool keep = status == MM_OK && (!trial->rival || faster);
    settle(p, keep);
    if (keep) p->result = result;
    *result_out = p->result;
    result_out->tried_fits = status == MM_OK && result.fits;
    result_out->tried_ns = result_out->tried_fits ? result.ns : 0;
    return status;
}

static int find_most(const mm_together *t) {
    int most = 0;
    for (int i = 1; i < t->n; i++)
        if (mm_graph_persistents(t->graphs[i]) > mm_graph_persistents(t->graphs[most])) most = i;
    return most;
}

static bool uses_host(const planner *p) {
    bool any = false;
    for (int i = 0; i < p->together->n; i++) any |= mm_graph_uses_host(p->together->graphs[i]);
    return any;
}

static bool are_several(const planner *p) {
    int n = 0;
    for (int i = 0; i < p->together->n; i++) n += mm_home_trains(p->together->graphs[i]);
    return n > 1 || p->limits->one_of_several;
}

static mm_status plan(planner *p) {
    p->most = find_most(p->together);
    p->memory = calloc((size_t)p->persistents->n + 1, 1);
    p->made = calloc((size_t)p->together->n, sizeof *p->made);
    if (!p->memory || !p->made)
        return mm_fail(MM_ERR_NOMEM, "out of memory for the homes of %s", mm_graph_name(p->together->graphs[0]));
    MM_TRY(mm_home_order_init(p->together->graphs[p->most], p->policy->config.away, &p->order));
    const mm_home_wish wish = mm_home_wish_of(p->policy, uses_host(p), are_several(p));
    return mm_homes_search(&wish, &p->order, p->limits, try_homes, p);
}

static mm_status plan_above(const mm_together *together, const mm_policy *policy, const mm_limits *limits,
                            const mm_persistent_table *persistents, int64_t beside_bytes) {
    planner p = {.together = together,
                 .policy = policy,
                 .limits = limits,
                 .persistents = persistents,
                 .beside_bytes = beside_bytes};
    mm_status status = plan(&p);
    mm_home_order_fini(&p.order);
    free(p.memory);
    free(p.made);
    return status;
}

/* Plans with the homes that the policy gives, at the places that it gives: where other graphs' homes are is its affair.
 * If some are in pinned memory, the base is as low as the others allow. */
static mm_status make_given(mm_planned *planned, const mm_policy *policy, const mm_graph *graph,
                            const mm_limits *limits) {
    mm_limits own = *limits;
    int64_t ends[MM_MEMORY_COUNT] = {0, limits->pinned_base_bytes, limits->disk_base_bytes};
    mm_place *places = calloc((size_t)mm_graph_persistents(graph) + 1, sizeof *places);
    if (!places) return mm_fail(MM_ERR_NOMEM, "out of memory for the homes of %s", mm_graph_name(graph));
    mm_status status = policy->ops->places(graph, &policy->config, places);
    for (int t = 0; status == MM_OK && t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *info = mm_graph_tensor(graph, t);
        if (info->persistent < 0) continue;
        const mm_place *place = &places[info->persistent];
        const int64_t end = place->offset + mm_memory_round(place->memory, info->bytes);
        if (ends[place->memory] < end) ends[place->memory] = end;
    }
    if (policy->config.resident != MM_RESIDENT_ALL) own.base_bytes = ends[MM_MEM_DEVICE];
    own.pinned_base_bytes = ends[MM_MEM_PINNED];
    own.disk_base_bytes = ends[MM_MEM_DISK];
    own.places = places;
    mm_homes_make_room(&own);
    if (status == MM_OK) status = mm_planned_make(planned, policy, graph, &own);
    free(places);
    return status;
}

mm_status mm_together_plan(const mm_together *together, const mm_policy *policy, const mm_limits *limits) {
    mm_persistent_table own = {0};
    mm_status status = MM_OK;
    for (int i = 0; policy->ops->places && i < together->n; i++)
        MM_TRY(make_given(together->planned[i], policy, together->graphs[i], limits));
    if (policy->ops->places) return MM_OK;
    if (together->persistents) return plan_above(together, policy, limits, together->persistents, 0);
    for (int i = 0; status == MM_OK && i < together->n; i++)
        status = mm_persistent_table_add(&own, together->graphs[i]);
    if (status == MM_OK) status = plan_above(together, policy, limits, &own, limits->base_bytes - own.bytes);
    mm_persistent_table_fini(&own);
    return status;
}

mm_status mm_planned_make_housed(mm_planned *planned, const mm_policy *policy, const mm_graph *graph,
                                 const mm_limits *limits) {
    const mm_together alone = {.graphs = &graph, .planned = &planned, .n = 1};
    return mm_together_plan(&alone, policy, limits);
}

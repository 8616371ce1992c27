/* SPDX-License-Identifier: MIT */
/* Makes of one selection of maps a plan, its bounds, or a draft that is not placed. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/hash.h"
#include "mm/core/plan/plan_digest.h"
#include "mm/core/status.h"
#include "policies/engine/engine_build.h"
#include "policies/engine/engine_floor.h"
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

/* Bounds the plan by its maps alone. */
static mm_status bound_early(const mm_engine *e, const mm_engine_wanted *wanted, mm_engine_bounds *b) {
    int64_t ns = 0;
    if (wanted->below_bytes < INT64_MAX) MM_TRY(mm_engine_floor(e, &b->bytes.peak_bytes));
    b->early = b->bytes.peak_bytes >= wanted->below_bytes;
    if (b->early || wanted->below_ns == INT64_MAX) return MM_OK;
    MM_TRY(mm_engine_least_time(e, &ns));
    b->early = ns >= wanted->below_ns;
    return MM_OK;
}

mm_status mm_engine_bound_maps(const mm_survey *survey, const mm_engine_config *config, const mm_selection *selection,
                               int64_t *bytes_out) {
    mm_engine e;
    MM_TRY(mm_engine_begin(&e, survey, config, selection));
    mm_status status = mm_engine_floor(&e, bytes_out);
    mm_engine_fini(&e);
    return status;
}

static uint64_t digest_of(const mm_schedule *s) {
    uint64_t digest = mm_hash_word(mm_plan_digest(s->plan), s->lends);
    for (int i = mm_graph_persistents(s->graph); i < s->plan->n_segments; i++) {
        const mm_group *group = &s->groups[s->segment_group[i]];
        digest = mm_hash_word(digest, (uint64_t)s->segment_group[i] << 32 | (uint64_t)group->region);
        digest = mm_hash_word(digest, (uint64_t)(uint32_t)group->hold << 32 | (uint32_t)group->rank);
    }
    return digest;
}

mm_status mm_engine_bound_within(const mm_survey *survey, const mm_engine_config *config, const mm_selection *selection,
                                 const mm_engine_wanted *wanted, int *of_rule_out, mm_engine_bounds *bounds_out) {
    mm_engine e;
    mm_engine_bounds b = {.ns = INT64_MAX};
    MM_TRY(mm_engine_begin(&e, survey, config, selection));
    b.eligible = e.maps.eligible;
    mm_status status = bound_early(&e, wanted, &b);
    if (status == MM_OK && !b.early) status = mm_engine_build(&e, &b.bytes);
    if (status == MM_OK && !b.early && b.bytes.peak_bytes <= wanted->device_bytes &&
        b.bytes.peak_bytes < wanted->below_bytes)
        status = mm_draft_time(e.schedule.plan, survey->facts, &b.ns);
    const bool useful = !b.early && b.bytes.peak_bytes < wanted->below_bytes &&
                        (wanted->below_ns == INT64_MAX || b.ns < wanted->below_ns);
    if (status == MM_OK && useful) b.digest = digest_of(&e.schedule);
    if (status == MM_OK) {
        *bounds_out = b;
        if (of_rule_out) memcpy(of_rule_out, e.maps.of_rule, (size_t)config->n_rules * sizeof *of_rule_out);
    }
    mm_engine_fini(&e);
    return status;
}

static void list_taken(const mm_engine *e, int8_t *taken) {
    for (int t = 0; t < mm_graph_tensors(e->schedule.graph); t++)
        taken[t] = (int8_t)(e->maps.map_of[t] >= 0 ? e->maps.maps[e->maps.map_of[t]].rule : -1);
}

mm_status mm_engine_take_maps(const mm_survey *survey, const mm_engine_config *config, const mm_selection *selection,
                              int8_t *taken_out) {
    mm_engine e;
    MM_TRY(mm_engine_begin(&e, survey, config, selection));
    list_taken(&e, taken_out);
    mm_engine_fini(&e);
    return MM_OK;
}

static void describe(const mm_engine *e, mm_engine_draft *d) {
    const mm_schedule *s = &e->schedule;
    for (int i = mm_graph_persistents(s->graph); i < s->plan->n_segments; i++) {
        const mm_interval *life = &s->lives[s->segment_group[i]];
        const bool first = s->plan->segments[i].first_node == life->first && life->first >= 0;
        if (s->groups[s->segment_group[i]].region == MM_REGION_PINNED) continue;
        d->spans[i] = (mm_span){.first = life->first, .last = life->last, .bytes = first ? mm_align(life->bytes) : 0};
    }
    list_taken(e, d->taken);
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

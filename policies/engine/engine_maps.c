/* SPDX-License-Identifier: MIT */
#include "policies/engine/engine_maps.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/engine/engine_gradients.h"
#include "policies/engine/map_rule.h"
#include "policies/engine/recompute.h"

static void order_fetches(mm_maps *maps) {
    for (int i = 0; i < maps->n_queue; i++) {
        int index = (int)(maps->keys[i] & INT32_MAX);
        if (index == INT32_MAX) continue;
        const mm_map *m = &maps->maps[index];
        const bool timed = maps->assigned && maps->assigned->fetch;
        maps->keys[i] = (int64_t)(timed ? mm_maps_fetch_step(maps, m) : m->needed) << 32 | index;
    }
    qsort(maps->keys, (size_t)maps->n_queue, sizeof *maps->keys, mm_survey_by_key);
    for (int i = 0; i < maps->n_queue; i++) {
        int index = (int)(maps->keys[i] & INT32_MAX);
        maps->queue[i] = index == INT32_MAX ? -1 : index;
    }
}

/* Adds the map to the queue of fetches. Kept maps are in it too, so that fetches run ahead just as far as if all maps
 * were evicted. */
static void queue_up(mm_maps *maps, const mm_map *m, bool kept) {
    if (!m->value || m->in_step || m->action == MM_ACTION_RECOMPUTE) return;
    maps->keys[maps->n_queue++] = ((int64_t)m->first_backward << 32) | (kept ? INT32_MAX : maps->n - 1);
    if (kept) maps->ended[m->last_value]++;
}

/* Whether the index-th of n things is picked, if `limit` are picked and spread evenly. */
static bool is_picked(int64_t index, int64_t limit, int64_t n) { return (index + 1) * limit / n > index * limit / n; }

/* Whether the selection has the map. before: has the counts of eligible maps before this one. */
static bool is_selected(const mm_selection *selection, const mm_map *m, const mm_maps *before) {
    if (selection->assigned) return true;
    if (selection->of == 0) return before->eligible < selection->limit;
    if (!selection->of_rule) return is_picked(before->eligible, selection->limit, selection->of);
    int limit = selection->limit, n = selection->of_rule[m->rule];
    for (int r = 0; r < m->rule; r++) limit -= selection->of_rule[r];
    if (limit <= 0 || limit >= n) return limit > 0;
    /* Recomputation does not overlap with the computation, so the maps need not be spread evenly: dropping whole
     * segments is better. */
    if (m->action == MM_ACTION_RECOMPUTE) return before->of_rule[m->rule] < limit;
    return is_picked(before->of_rule[m->rule], limit, n);
}

/* The recomputed map with which a saved tensor (a pool's index map) is made again, because one step writes both, so
 * that the tensor need not be kept; -1: none. A tensor that the step may read when it runs again (mm_graph_allow_given)
 * is kept. */
static int comes_along(const mm_schedule *s, const mm_maps *maps, mm_tensor tensor) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    if (info->kind != MM_SAVED || info->ownership != MM_MANAGED || info->writes != 1) return -1;
    if (s->plan->alias[tensor] != tensor || info->first_backward <= info->last_forward) return -1;
    int producer = mm_schedule_producer(s->graph, tensor);
    if (producer < 0 || info->last_forward != producer) return -1;
    const mm_step_info *step = mm_graph_step(s->graph, producer);
    int with = -1;
    for (int u = 0; u < step->n_uses; u++) {
        if (step->uses[u].access != MM_WRITE) continue;
        if (step->uses[u].tensor == tensor && u < MM_GIVEN_USES && step->given >> u & 1) return -1;
        int other = maps->map_of[step->uses[u].tensor];
        if (other >= 0 && maps->maps[other].action == MM_ACTION_RECOMPUTE && maps->maps[other].exact) with = other;
    }
    return with;
}

static void add_along(mm_maps *maps, const mm_schedule *s, mm_tensor tensor, int with) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    maps->maps[maps->n] = (mm_map){.tensor = tensor,
                                   .action = MM_ACTION_RECOMPUTE,
                                   .codec = -1,
                                   .last_forward = info->last_forward,
                                   .first_backward = info->first_backward,
                                   .needed = info->first_backward,
                                   .last_value = s->tensors[tensor].last_step,
                                   .value = true,
                                   .exact = true,
                                   .along = true,
                                   .level = maps->maps[with].level,
                                   .segment = maps->n};
    maps->map_of[tensor] = maps->n++;
}

/* Whether a tensor that is kept takes a turn among the fetches (mm_assignment.paced). */
static bool takes_a_turn(const mm_maps *maps, mm_tensor tensor) {
    const mm_assignment *assigned = maps->assigned;
    return assigned && assigned->paced && !assigned->fetch && assigned->rule[tensor] < 0;
}

/* Decides about one tensor. Tensors come in order of first use, so what a map is made from is decided before it. */
static void choose_one(mm_maps *maps, mm_schedule *s, const mm_engine_config *config, const mm_selection *selection,
                       mm_tensor t) {
    mm_map *m = &maps->maps[maps->n];
    const int with = comes_along(s, maps, t);
    if (with >= 0) {
        add_along(maps, s, t, with);
        return;
    }
    if (!mm_map_find_rule(s, maps, config, t, m)) {
        if (takes_a_turn(maps, t) && mm_map_is_one(maps->survey, t, m)) queue_up(maps, m, true);
        return;
    }
    bool kept = !is_selected(selection, m, maps);
    maps->eligible++;
    maps->of_rule[m->rule]++;
    if (!kept) maps->map_of[t] = maps->n++;
    queue_up(maps, m, kept);
    if (kept) return;
    if (m->action == MM_ACTION_RECOMPUTE) {
        mm_recompute_join(s, maps, maps->n - 1);
        return;
    }
    /* All tensors over which the map is written in place lie in its tensor buffer. Heap maps are written over none:
     * each is an allocation of its own. Lean maps, which may be small, do not pass through the tensor buffers, nor do
     * maps of which only steps, and no codec beside them, read and write the elements. */
    if (m->lean || m->in_step || (!m->value && m->mask_in_step)) return;
    if (config->buffers == MM_REGION_HEAP) mm_schedule_split(s, t);
    for (mm_tensor part = t; part >= 0; part = s->tensors[part].over) maps->region_of[part] = (uint8_t)config->buffers;
}

static void choose(mm_maps *maps, mm_schedule *s, const mm_engine_config *config, const mm_selection *selection) {
    int n = mm_graph_tensors(s->graph);
    for (int t = 0; t < n; t++) maps->map_of[t] = -1;
    for (int i = 0; i < n; i++) choose_one(maps, s, config, selection, maps->survey->order[i]);
    for (int t = 0; t < n; t++) {
        const bool brief = maps->assigned && maps->assigned->brief && maps->assigned->brief[t];
        if (mm_map_gradient_leaves(s, maps, config, selection, t))
            maps->leaves[t] = brief ? MM_NEAR_STEPS : MM_FAR_STEPS;
    }
    /* No tensor is written in place over a map that is acted on: in the backward pass its elements lie elsewhere, or
     * only its mask is there. */
    for (int t = 0; t < n; t++)
        if (s->tensors[t].over >= 0 && maps->map_of[s->tensors[t].over] >= 0) mm_schedule_split(s, t);
    mm_recompute_choose_retaining(s, maps, config->recompute);
    order_fetches(maps);
}

mm_status mm_maps_init(mm_maps *maps, const mm_survey *survey, mm_schedule *s, const mm_engine_config *config,
                       const mm_selection *selection) {
    size_t n = (size_t)mm_graph_tensors(s->graph) + 1;
    *maps = (mm_maps){.survey = survey,
                      .maps = malloc(n * sizeof *maps->maps),
                      .map_of = malloc(n * sizeof *maps->map_of),
                      .queue = malloc(n * sizeof *maps->queue),
                      .keys = malloc(n * sizeof *maps->keys),
                      .ended = calloc((size_t)mm_graph_steps(s->graph) + 1, sizeof *maps->ended),
                      .region_of = calloc(n, sizeof *maps->region_of),
                      .leaves = calloc(n, sizeof *maps->leaves),
                      .mark = calloc(n, sizeof *maps->mark),
                      .met = malloc(n * sizeof *maps->met),
                      .of_rule = calloc((size_t)config->n_rules + 1, sizeof *maps->of_rule)};
    if (!maps->maps || !maps->map_of || !maps->queue || !maps->keys || !maps->ended || !maps->region_of ||
        !maps->leaves || !maps->mark || !maps->met || !maps->of_rule) {
        mm_maps_fini(maps);
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    }
    maps->assigned = selection->assigned;
    if (maps->assigned) {
        maps->level = maps->assigned->level;
        maps->cut = maps->assigned->cut;
    } else if (mm_survey_nestings(survey) > 0) {
        maps->level = mm_nesting_levels(&survey->nesting, selection->nesting);
        maps->cut = mm_nesting_cuts(&survey->nesting, selection->nesting);
    }
    choose(maps, s, config, selection);
    return MM_OK;
}

void mm_maps_fini(mm_maps *maps) {
    free(maps->maps);
    free(maps->map_of);
    free(maps->queue);
    free(maps->keys);
    free(maps->ended);
    free(maps->region_of);
    free(maps->leaves);
    free(maps->mark);
    free(maps->met);
    free(maps->of_rule);
    memset(maps, 0, sizeof *maps);
}

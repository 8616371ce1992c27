/* SPDX-License-Identifier: MIT */
#include "policies/engine/engine_build.h"

#include <limits.h>
#include <stdlib.h>

#include "mm/core/status.h"
#include "policies/engine/engine_evict.h"
#include "policies/rules/rules.h"
#include "policies/schedule/visits.h"

static const mm_assignment *assigned(const mm_engine *e) { return e->maps.assigned; }

/* ---------------------------------------------------------------- backward: fetch */

/* Whether the assignment says when fetches begin. */
static bool is_timed(const mm_engine *e) { return assigned(e) && assigned(e)->fetch; }

static bool has_mask(const mm_engine *e, const mm_map *m) { return e->schedule.tensors[m->tensor].sign >= 0; }

/* Whether the map has been fetched, or need not be. */
static bool is_fetched(const mm_engine *e, const mm_map *m) {
    return m->in_step || e->schedule.tensors[m->tensor].value_node >= 0;
}

/* Whether the map leaves after each use (mm_assignment.brief). */
static bool is_brief(const mm_engine *e, const mm_map *m) {
    return assigned(e) && assigned(e)->brief && assigned(e)->brief[m->tensor] && m->lean && m->action == MM_ACTION_SWAP;
}

/* Makes a fetch wait for the latest step, so that it overlaps with one step only (vDNN). */
static void wait_for_step(mm_engine *e, int node) {
    mm_plan *plan = e->schedule.plan;
    int step = node - 1;
    while (step >= 0 && !mm_node_computes(&plan->nodes[step])) step--;
    if (step >= 0) mm_plan_wait(plan, node, step);
}

/* Makes the mask of a map that has come back, if it is due and not there yet. */
static mm_status mask_late(mm_engine *e, const mm_map *m) {
    mm_schedule *s = &e->schedule;
    if (!m->late || has_mask(e, m)) return MM_OK;
    const int node =
        mm_engine_encode(e, m, e->mask, s->tensors[m->tensor].value_node, true, &s->tensors[m->tensor].sign);
    s->tensors[m->tensor].sign_node = node;
    return node < 0 ? MM_ERR_NOMEM : MM_OK;
}

/* Adds the operations that fetch an evicted map. */
static mm_status fetch(mm_engine *e, mm_map *m) {
    mm_schedule *s = &e->schedule;
    mm_region region = (mm_region)e->maps.region_of[m->tensor];
    int64_t bytes = mm_graph_tensor(s->graph, m->tensor)->bytes;
    int node = m->away_node, segment = m->away_segment, first = s->plan->n_nodes;
    if (mm_engine_is_moved(e, m)) {
        mm_region target = m->action == MM_ACTION_SWAP ? region : MM_REGION_GENERAL;
        node = mm_engine_move(e, MM_NODE_IN, m, segment, node, target, &segment);
        if (node < 0) return MM_ERR_NOMEM;
    }
    if (m->action != MM_ACTION_SWAP) {
        int after = node;
        node = mm_engine_add_op(e, MM_NODE_DECODE, m, segment, -1, region, bytes, &segment);
        if (node < 0) return MM_ERR_NOMEM;
        mm_plan_wait(s->plan, node, after);
    }
    if (is_timed(e) || mm_config_fetch(e->config) != MM_FETCH_DEPTH) wait_for_step(e, first);
    s->tensors[m->tensor].value = segment;
    s->tensors[m->tensor].value_node = node;
    return mm_config_fetch(e->config) == MM_FETCH_DEMAND ? MM_OK : mask_late(e, m);
}

/* Fetches the next map of the queue. Skips maps that a recomputation has fetched. For a kept map, fetches nothing. */
static mm_status fetch_next(mm_engine *e) {
    while (e->issued < e->maps.n_queue) {
        int index = e->maps.queue[e->issued++];
        if (index < 0) return MM_OK;
        if (!is_fetched(e, &e->maps.maps[index])) return fetch(e, &e->maps.maps[index]);
    }
    return MM_OK;
}

static mm_status fetch_due(mm_engine *e, int step) {
    for (; e->issued < e->maps.n_queue; e->issued++) {
        mm_map *m = &e->maps.maps[e->maps.queue[e->issued]];
        if (mm_maps_fetch_step(&e->maps, m) > step) break;
        if (!is_fetched(e, m)) MM_TRY(fetch(e, m));
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- backward: recompute */

static void mark_wanted(mm_engine *e, mm_tensor tensor) {
    e->wanted[tensor] = true;
    e->wants[e->n_wants++] = tensor;
}

/* Marks as wanted the outputs of the step that are only made together with its other outputs (mm_map.along), if they
 * are still needed at step `when`. */
static void want_along(mm_engine *e, const mm_step_info *step, int when) {
    for (int u = 0; u < step->n_uses; u++) {
        mm_tensor other = step->uses[u].tensor;
        int index = e->maps.map_of[other];
        if (index >= 0 && e->maps.maps[index].along && step->uses[u].access == MM_WRITE && !e->wanted[other] &&
            !e->made[other] && mm_schedule_outlives(&e->schedule, other, when))
            mark_wanted(e, other);
    }
}

static void lend(mm_engine *e, mm_tensor tensor) {
    if (!e->is_lent[tensor]) e->lent[e->n_lent++] = tensor;
    e->is_lent[tensor] = true;
}

/* Makes `tensor` available to step `when`: fetches it, or marks it as wanted, with all that it is made from. */
static mm_status want(mm_engine *e, mm_tensor tensor, int when) {
    const mm_schedule *s = &e->schedule;
    int index = e->maps.map_of[tensor];
    mm_map *m = index >= 0 ? &e->maps.maps[index] : NULL;
    if (m && m->action != MM_ACTION_RECOMPUTE) {
        if (is_brief(e, m)) lend(e, tensor);
        return is_fetched(e, m) ? MM_OK : fetch(e, m);
    }
    if (e->wanted[tensor] || (mm_schedule_outlives(s, tensor, when) && (!m || e->made[tensor]))) return MM_OK;
    mark_wanted(e, tensor);
    int producer = mm_schedule_producer(s->graph, tensor);
    e->again[producer] = true;
    if (producer < e->first_again) e->first_again = producer;
    if (producer > e->last_again) e->last_again = producer;
    const mm_step_info *step = mm_graph_step(s->graph, producer);
    want_along(e, step, when);
    for (int u = 0; u < step->n_uses; u++) {
        bool managed = mm_graph_tensor(s->graph, step->uses[u].tensor)->ownership == MM_MANAGED;
        if (managed && step->uses[u].access == MM_READ) MM_TRY(want(e, step->uses[u].tensor, when));
    }
    return MM_OK;
}

/* Sets e->low: for each step that is to run again, the smallest level of the cuts between this step and the last step
 * that is to run again. */
static void find_lows(mm_engine *e) {
    uint8_t low = MM_LEVEL_STAGE;
    if (!e->maps.cut) return;
    for (int step = e->last_again; step >= e->first_again; step--) {
        if (step < e->last_again && e->maps.cut[step] < low) low = e->maps.cut[step];
        e->low[step] = low;
    }
}

/* Whether a map that is made again now is kept until its last use. */
static bool is_kept_on(const mm_engine *e, const mm_map *m) {
    if (m->anew || !e->maps.cut) return !m->anew;
    return m->level <= e->low[mm_schedule_producer(e->schedule.graph, m->tensor)];
}

/* The next backward step that reads the map in this form; INT_MAX: none does. */
static int next_reader(const mm_engine *e, const mm_map *m, int step, mm_form form) {
    const mm_schedule *s = &e->schedule;
    while (++step <= s->tensors[m->tensor].last_step) {
        const mm_step_info *info = mm_graph_step(s->graph, step);
        for (int u = 0; u < info->n_uses; u++)
            if (info->uses[u].form == form && s->plan->alias[info->uses[u].tensor] == m->tensor) return step;
    }
    return INT_MAX;
}

/* Lets a lean map leave after a backward step, if the next step that reads its elements is that far. */
static mm_status let_go(mm_engine *e, mm_map *m, int step, int far) {
    const int next = next_reader(e, m, step, MM_FORM_VALUE), sign = next_reader(e, m, step, MM_FORM_SIGN);
    if (next < step + far || (!m->late && sign < step + far)) return MM_OK;
    if (sign < INT_MAX) MM_TRY(mask_late(e, m));
    if (next == INT_MAX && !is_brief(e, m)) return MM_OK;
    e->schedule.tensors[m->tensor].value_node = -1;
    m->again = true;
    return MM_OK;
}

/* Lets brief maps leave that were fetched for the steps that have just run again, unless step `when` reads them. */
static mm_status let_go_before(mm_engine *e, int when) {
    for (int i = 0; i < e->n_lent; i++) {
        mm_map *m = &e->maps.maps[e->maps.map_of[e->lent[i]]];
        e->is_lent[m->tensor] = false;
        if (is_fetched(e, m)) MM_TRY(let_go(e, m, when - 1, MM_NEAR_STEPS));
    }
    e->n_lent = 0;
    return MM_OK;
}

/* The next step that is to run again before `when`; -1: none. */
static int next_again(const mm_engine *e, int step, int when) {
    while (++step <= e->last_again && step < when)
        if (e->again[step]) return step;
    return -1;
}

/* Adds the steps that make the wanted tensors. They keep their order, so that outputs can be written in place as they
 * were the first time. */
static mm_status make_wanted(mm_engine *e, int when) {
    find_lows(e);
    for (int step = e->first_again; step <= e->last_again && step < when; step++) {
        if (!e->again[step]) continue;
        e->again[step] = false;
        const int next = next_again(e, step, when);
        if (next >= 0 && !mm_visits_expect_again(&e->schedule, next)) return MM_ERR_NOMEM;
        if (mm_schedule_recompute(&e->schedule, step, e->wanted, when) < 0) return MM_ERR_NOMEM;
    }
    for (int i = 0; i < e->n_wants; i++) {
        int index = e->maps.map_of[e->wants[i]];
        e->wanted[e->wants[i]] = false;
        e->made[e->wants[i]] = index >= 0 && is_kept_on(e, &e->maps.maps[index]);
    }
    e->n_wants = 0;
    e->first_again = INT_MAX;
    e->last_again = -1;
    return let_go_before(e, when);
}

/* ---------------------------------------------------------------- backward: what a step needs */

/* Fetches all evicted maps that this backward step reads, however small the depth. Unless `ahead`, also recomputes
 * those that were dropped. */
static mm_status fetch_for(mm_engine *e, int step, bool ahead) {
    if (step >= mm_graph_steps(e->schedule.graph)) return MM_OK;
    const mm_step_info *info = mm_graph_step(e->schedule.graph, step);
    for (int u = 0; info->phase == MM_BACKWARD && u < info->n_uses; u++) {
        int index = e->maps.map_of[info->uses[u].tensor];
        if (index < 0) continue;
        mm_map *m = &e->maps.maps[index];
        if (info->uses[u].form == MM_FORM_SIGN && has_mask(e, m)) continue;
        if (m->action == MM_ACTION_RECOMPUTE) {
            if (!ahead) MM_TRY(want(e, m->tensor, step)); /* recomputed right before the step */
            continue;
        }
        const bool in_turn = mm_config_fetch(e->config) == MM_FETCH_DEPTH && !is_timed(e) && !m->again;
        while (!is_fetched(e, m)) MM_TRY(in_turn ? fetch_next(e) : fetch(e, m));
    }
    return make_wanted(e, step);
}

/* Fetches one more map for each map of the queue that this backward step was the last to read. */
static mm_status fetch_after(mm_engine *e, int step) {
    const mm_step_info *info = mm_graph_step(e->schedule.graph, step);
    if (is_timed(e) || mm_config_fetch(e->config) != MM_FETCH_DEPTH) return MM_OK;
    for (int u = 0; u < info->n_uses; u++) {
        int index = e->maps.map_of[info->uses[u].tensor];
        const mm_map *m = index >= 0 ? &e->maps.maps[index] : NULL;
        if (m && m->action != MM_ACTION_RECOMPUTE && !m->in_step && m->last_value == step) MM_TRY(fetch_next(e));
    }
    for (int i = 0; i < e->maps.ended[step]; i++) MM_TRY(fetch_next(e));
    return MM_OK;
}

/* Lets lean maps that this backward step reads leave again, if the next step that reads their elements is far. */
static mm_status let_go_after(mm_engine *e, int step) {
    const mm_step_info *info = mm_graph_step(e->schedule.graph, step);
    for (int u = 0; u < info->n_uses; u++) {
        const int index = e->maps.map_of[info->uses[u].tensor];
        mm_map *m = index >= 0 ? &e->maps.maps[index] : NULL;
        if (!m || !m->lean || m->action != MM_ACTION_SWAP || !is_fetched(e, m)) continue;
        MM_TRY(let_go(e, m, step, is_brief(e, m) ? MM_NEAR_STEPS : MM_FAR_STEPS));
    }
    return MM_OK;
}

static mm_status fetch_before(mm_engine *e, int step, bool first) {
    if (is_timed(e)) {
        MM_TRY(fetch_due(e, step));
        return fetch_for(e, step, false);
    }
    for (int i = 0; first && e->config->fetch == MM_FETCH_DEPTH && i < e->config->depth; i++) MM_TRY(fetch_next(e));
    MM_TRY(fetch_for(e, step, false));
    if (e->config->fetch != MM_FETCH_LAYER) return MM_OK;
    const mm_graph *graph = e->schedule.graph;
    int next = step + 1; /* weight updates may come between two backward steps */
    while (next < mm_graph_steps(graph) && mm_graph_step(graph, next)->phase != MM_BACKWARD) next++;
    return fetch_for(e, next, true);
}

/* ---------------------------------------------------------------- a whole plan */

static mm_status build(mm_engine *e) {
    mm_schedule *s = &e->schedule;
    bool backward = false;
    for (int step = 0; step < mm_graph_steps(s->graph); step++) {
        mm_phase phase = mm_graph_step(s->graph, step)->phase;
        if (phase == MM_BACKWARD) MM_TRY(fetch_before(e, step, !backward));
        backward |= phase == MM_BACKWARD;
        MM_TRY(mm_gradients_return(&e->gradients, step));
        int node = mm_schedule_step(s, step, e->maps.region_of);
        if (node < 0) return MM_ERR_NOMEM;
        e->node_of[step] = node;
        for (int i = e->leaving[step]; i >= 0 && !mm_node_runs_step(&s->plan->nodes[i]); i--)
            mm_plan_wait(s->plan, node, i);
        if (phase == MM_FORWARD) MM_TRY(mm_engine_mask_made(e, step, node));
        if (phase == MM_FORWARD) MM_TRY(mm_engine_put_away_after(e, step, node));
        MM_TRY(mm_gradients_go(&e->gradients, step, node));
        if (phase == MM_BACKWARD) MM_TRY(let_go_after(e, step));
        if (phase == MM_BACKWARD) MM_TRY(fetch_after(e, step));
    }
    mm_engine_hold_until_gone(e);
    MM_TRY(mm_body_pools_size(&e->pools, s, e->pinned_bytes));
    return mm_schedule_scratch(s);
}

static mm_status engine_init(mm_engine *e, const mm_graph *graph) {
    size_t n_steps = (size_t)mm_graph_steps(graph) + 1, n_tensors = (size_t)mm_graph_tensors(graph) + 1;
    e->leaving = malloc(n_steps * sizeof *e->leaving);
    e->node_of = calloc(n_steps, sizeof *e->node_of);
    e->made = calloc(n_tensors, sizeof *e->made);
    e->wanted = calloc(n_tensors, sizeof *e->wanted);
    e->wants = malloc(n_tensors * sizeof *e->wants);
    e->again = calloc(n_steps, sizeof *e->again);
    e->low = calloc(n_steps, sizeof *e->low);
    e->is_lent = calloc(n_tensors, sizeof *e->is_lent);
    e->lent = malloc(n_tensors * sizeof *e->lent);
    if (!e->leaving || !e->node_of || !e->made || !e->wanted || !e->wants || !e->again || !e->low || !e->is_lent ||
        !e->lent)
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
    for (size_t i = 0; i < n_steps; i++) e->leaving[i] = -1;
    return MM_OK;
}

void mm_engine_fini(mm_engine *e) {
    mm_maps_fini(&e->maps);
    mm_gradients_fini(&e->gradients);
    mm_schedule_fini(&e->schedule);
    free(e->leaving);
    free(e->node_of);
    free(e->made);
    free(e->wanted);
    free(e->wants);
    free(e->again);
    free(e->low);
    free(e->is_lent);
    free(e->lent);
}

mm_status mm_engine_begin(mm_engine *e, const mm_survey *survey, const mm_engine_config *config,
                          const mm_selection *selection) {
    *e = (mm_engine){.config = config,
                     .mask = mm_facts_codec(survey->facts, mm_mask_spec),
                     .pinned_bytes = survey->limits->pinned_bytes,
                     .pools = {.pool = {{.segment = -1}, {.segment = -1}}},
                     .first_again = INT_MAX,
                     .last_again = -1};
    MM_TRY(mm_schedule_init_as(&e->schedule, &survey->begun, survey->limits));
    e->schedule.lends = config->lends;
    mm_status status = MM_OK;
    if (config->variants)
        status = mm_schedule_take_variants(&e->schedule, config->variants);
    else if (config->algorithms == MM_ALGORITHMS_LEAST)
        status = mm_schedule_least_workspaces(&e->schedule);
    if (status == MM_OK) status = mm_maps_init(&e->maps, survey, &e->schedule, config, selection);
    if (status != MM_OK) mm_engine_fini(e);
    return status;
}

mm_status mm_engine_build(mm_engine *e, mm_bounds *bounds_out) {
    MM_TRY(mm_visits_init(&e->schedule));
    MM_TRY(engine_init(e, e->schedule.graph));
    MM_TRY(mm_gradients_init(&e->gradients, &e->schedule, e->maps.leaves));
    MM_TRY(build(e));
    return mm_schedule_close(&e->schedule, e->maps.n > 0 ? e->config->k : 0, false, bounds_out);
}

mm_status mm_engine_make(mm_engine *e, const mm_survey *survey, const mm_engine_config *config,
                         const mm_selection *selection, mm_bounds *bounds_out) {
    MM_TRY(mm_engine_begin(e, survey, config, selection));
    mm_status status = mm_engine_build(e, bounds_out);
    if (status != MM_OK) mm_engine_fini(e);
    return status;
}

bool mm_engine_may_lend(const mm_engine_config *config) {
    bool lends = config->buffers == MM_REGION_BUFFERS;
    for (int r = 0; r < config->n_rules; r++)
        lends |= config->rules[r].action == MM_ACTION_CODE && config->codes == MM_REGION_CODES;
    return lends && config->sharing.layout == MM_PLACING_SEARCHED; /* groups know no given places */
}

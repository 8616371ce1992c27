/* SPDX-License-Identifier: MIT */
#include "policies/engine/engine_evict.h"

#include <string.h>

#include "mm/core/status.h"

int mm_engine_add_op(mm_engine *e, mm_node_kind kind, const mm_map *m, int src, int codec, mm_region region,
                     int64_t bytes, int *segment_out) {
    int node = mm_schedule_op(&e->schedule, kind, m->tensor, src, codec, region, bytes, segment_out);
    if (node >= 0) e->schedule.groups[e->schedule.segment_group[*segment_out]].rank = m->needed;
    return node;
}

/* For the unoptimised workflow: adds the segment in which a code is made before it is copied to where it stays. */
static bool add_stage(mm_engine *e, int node, int64_t bytes) {
    mm_schedule *s = &e->schedule;
    int group = mm_schedule_group(s, MM_REGION_HEAP, bytes);
    int stage = group < 0 ? -1 : mm_schedule_segment(s, MM_CONTENT_WORK, MM_CAT_WORKSPACE, -1, bytes, group);
    s->plan->nodes[node].stage = stage;
    return stage >= 0;
}

static bool has_body(const mm_engine *e, const mm_map *m) {
    return m->codec >= 0 && mm_facts_code(e->schedule.facts, m->codec, m->tensor)->body_bound_bytes > 0;
}

bool mm_engine_is_moved(const mm_engine *e, const mm_map *m) {
    return m->action == MM_ACTION_SWAP || (m->action == MM_ACTION_CODE_SWAP && !has_body(e, m));
}

int mm_engine_encode(mm_engine *e, const mm_map *m, int codec, int after, bool passing, int *code_out) {
    mm_schedule *s = &e->schedule;
    const mm_code_facts *code = mm_facts_code(s->facts, codec, m->tensor);
    const bool body = code->body_bound_bytes > 0;
    const int64_t bytes = code->code_bytes;
    mm_region region = passing && !body ? MM_REGION_GENERAL : e->config->codes;
    int node = mm_engine_add_op(e, MM_NODE_ENCODE, m, s->tensors[m->tensor].value, codec, region, bytes, code_out);
    if (node >= 0 && body && !mm_body_pools_add(&e->pools, s, *code_out, passing)) return -1;
    if (node < 0 || (region == MM_REGION_HEAP && !add_stage(e, node, bytes))) return -1;
    mm_plan_wait(s->plan, node, after);
    return node;
}

int mm_engine_move(mm_engine *e, mm_node_kind kind, const mm_map *m, int src, int after, mm_region region,
                   int *copy_out) {
    mm_schedule *s = &e->schedule;
    const mm_segment from = s->plan->segments[src];
    int node = mm_engine_add_op(e, kind, m, src, from.codec, region, from.bytes, copy_out);
    if (node >= 0) mm_plan_wait(s->plan, node, after);
    return node;
}

/* Makes the step at `node` write the map's code. */
static mm_status write_code(mm_engine *e, const mm_map *m, int node, int codec, int *code_out) {
    const int code = mm_schedule_code(&e->schedule, node, m->tensor, codec, e->config->codes);
    if (code < 0) return MM_ERR_NOMEM;
    e->schedule.groups[e->schedule.segment_group[code]].rank = m->needed;
    *code_out = code;
    return MM_OK;
}

mm_status mm_engine_mask_made(mm_engine *e, int step, int node) {
    const mm_step_info *info = mm_graph_step(e->schedule.graph, step);
    for (int u = 0; info->n_codes > 0 && u < info->n_uses; u++) {
        const int index = e->maps.map_of[info->uses[u].tensor];
        if (index < 0 || info->uses[u].access != MM_WRITE || !e->maps.maps[index].mask_in_step) continue;
        MM_TRY(write_code(e, &e->maps.maps[index], node, e->mask, &e->schedule.tensors[info->uses[u].tensor].sign));
    }
    return MM_OK;
}

static mm_status put_away_value(mm_engine *e, mm_map *m, int after) {
    if (m->in_step) return write_code(e, m, after, m->codec, &e->schedule.tensors[m->tensor].value);
    int from = e->schedule.tensors[m->tensor].value;
    m->away_node = after;
    m->away_segment = from;
    if (m->action != MM_ACTION_SWAP) {
        bool passing = m->action == MM_ACTION_CODE_SWAP;
        m->away_node = mm_engine_encode(e, m, m->codec, after, passing, &m->away_segment);
        if (m->away_node < 0) return MM_ERR_NOMEM;
        if (mm_engine_is_moved(e, m)) e->schedule.plan->nodes[m->away_node].throttle = e->config->throttle;
    }
    if (!mm_engine_is_moved(e, m)) return MM_OK;
    from = m->away_segment;
    m->away_node = mm_engine_move(e, MM_NODE_OUT, m, from, m->away_node, MM_REGION_PINNED, &m->away_segment);
    if (m->away_node < 0) return MM_ERR_NOMEM;
    e->holding[e->n_holding++] = e->schedule.segment_group[from];
    return MM_OK;
}

static mm_status put_away(mm_engine *e, mm_map *m, int after) {
    if (!m->sign && m->action == MM_ACTION_RECOMPUTE) return MM_OK; /* the map is dropped, which needs no operation */
    mm_schedule *s = &e->schedule;
    int first = s->plan->n_nodes;
    int32_t before[3];
    int n_before = e->n_holding;
    memcpy(before, e->holding, sizeof before);
    e->n_holding = 0;
    e->holding[e->n_holding++] = s->segment_group[s->tensors[m->tensor].value];
    if (m->sign && !m->mask_in_step) {
        int node = mm_engine_encode(e, m, e->mask, after, m->lean, &s->tensors[m->tensor].sign);
        if (node < 0) return MM_ERR_NOMEM;
        s->tensors[m->tensor].sign_node = node;
    }
    if (m->value && m->action != MM_ACTION_RECOMPUTE) MM_TRY(put_away_value(e, m, after));
    if (mm_config_in_line(e->config)) return MM_OK; /* the next step waits for the eviction anyway */
    m->away_first = first;
    m->away_end = s->plan->n_nodes;
    if (e->maps.assigned && e->maps.assigned->gone) return MM_OK;
    for (int i = 0; i < n_before && first < s->plan->n_nodes; i++) s->groups[before[i]].hold = s->plan->n_nodes - 1;
    return MM_OK;
}

mm_status mm_engine_put_away_after(mm_engine *e, int step, int node) {
    const mm_step_info *info = mm_graph_step(e->schedule.graph, step);
    for (int u = 0; u < info->n_uses; u++) {
        int index = e->maps.map_of[info->uses[u].tensor];
        if (index < 0 || e->maps.maps[index].last_forward != step) continue;
        MM_TRY(put_away(e, &e->maps.maps[index], node));
        int due = step + (mm_config_in_line(e->config) ? 1 : e->config->leave_steps);
        if (due > step && due < mm_graph_steps(e->schedule.graph)) e->leaving[due] = e->schedule.plan->n_nodes - 1;
    }
    return MM_OK;
}

void mm_engine_hold_until_gone(mm_engine *e) {
    mm_schedule *s = &e->schedule;
    for (int i = 0; e->maps.assigned && e->maps.assigned->gone && i < e->maps.n; i++) {
        const mm_map *m = &e->maps.maps[i];
        const int step = e->maps.assigned->gone[m->tensor];
        if (step <= m->last_forward || step >= m->needed) continue;
        for (int node = m->away_first; node < m->away_end; node++) {
            mm_group *group = &s->groups[s->segment_group[s->plan->nodes[node].src]];
            if (group->hold < e->node_of[step]) group->hold = e->node_of[step];
        }
    }
}

/* SPDX-License-Identifier: MIT */
#include "policies/engine/recompute.h"

#include "policies/rules/rules.h"

/* RECOMPUTE_MEMORY: most tensors that are made or read for one map; a map that would take more is kept. Otherwise steps
 * that run again would grow with the square of the depth. Chosen: networks of up to 150 layers stay below. */
enum { LONGEST_CHAIN = 128 };

/* ---------------------------------------------------------------- which maps can be made again */

/* Whether a step after step `after` and before step `before` writes the tensor, which is persistent or external. */
static bool is_changed(const mm_schedule *s, mm_tensor tensor, int after, int before) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    if (info->writes == 0) return false;
    const mm_layer_info *writer = mm_graph_layer(s->graph, info->producer); /* the layer that writes it first */
    int first = info->last_use;
    for (int phase = MM_FORWARD; phase <= MM_UPDATE; phase++)
        if (writer->step[phase] >= 0 && writer->step[phase] < first) first = writer->step[phase];
    for (int i = first > after ? first : after + 1; i < before && i <= info->last_use; i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        for (int u = 0; u < step->n_uses; u++)
            if (step->uses[u].tensor == tensor && step->uses[u].access != MM_READ) return true;
    }
    return false;
}

typedef struct query {
    const mm_schedule *schedule;
    mm_maps *maps;
    const mm_map *map; /* the map that the search is for; it may not be in `maps` yet */
    bool all;          /* expensive layers may run again, too */
    bool near;         /* the search ends at recomputed maps: what these are made from is known to be available */
    int when;          /* the tensor is needed before this step */
    bool exact;        /* no lossy code was met */
} query;

static bool can_make(query *q, mm_tensor tensor);

/* Marks the tensor; false if this search has marked it already. */
static bool meet(mm_maps *maps, mm_tensor tensor) {
    if (maps->mark[tensor] == maps->marks) return false;
    maps->mark[tensor] = maps->marks;
    maps->met[maps->n_met++] = tensor;
    return true;
}

/* Whether a managed input is available to a step that runs again. */
static bool can_have(query *q, mm_tensor input) {
    const mm_schedule *s = q->schedule;
    if (s->plan->alias[input] != input || mm_graph_tensor(s->graph, input)->writes != 1) return false;
    const mm_map *m = q->maps->map_of[input] >= 0 ? &q->maps->maps[q->maps->map_of[input]] : NULL;
    if (m && m->action != MM_ACTION_RECOMPUTE) {
        if (m->codec >= 0 && !s->facts->codecs[m->codec].lossless) q->exact = false;
        meet(q->maps, input);
        return m->value;
    }
    if (m && q->near && s->tensors[input].last_step >= q->when) {
        q->exact &= m->exact;
        meet(q->maps, input);
        return true;
    }
    return (!m && mm_schedule_outlives(s, input, q->when)) || can_make(q, input);
}

static bool is_expensive(const mm_schedule *s, mm_tensor tensor) {
    return mm_graph_step_properties(s->graph, mm_schedule_producer(s->graph, tensor))->cost == MM_LAYER_EXPENSIVE;
}

/* Whether an expensive layer may run again for the tensor. */
static bool may_be_expensive(const query *q, mm_tensor tensor) {
    const int map = q->maps->map_of[tensor];
    const mm_map *m = tensor == q->map->tensor ? q->map : map >= 0 ? &q->maps->maps[map] : NULL;
    return q->all || (m && m->action == MM_ACTION_RECOMPUTE && m->expensive);
}

/* Whether a tensor can be made again before step q->when, by layers that may run again, from tensors that are still
 * there then, can be fetched, or can be made again. Marks all tensors that it fetches or makes. */
static bool can_make(query *q, mm_tensor tensor) {
    const mm_schedule *s = q->schedule;
    if (!meet(q->maps, tensor)) return true;
    int producer = mm_schedule_producer(s->graph, tensor);
    if (producer < 0 || producer >= q->when) return false;
    const mm_step_info *step = mm_graph_step(s->graph, producer);
    const mm_layer_properties *layer = mm_graph_step_properties(s->graph, producer);
    if (!layer->repeatable || (layer->cost == MM_LAYER_EXPENSIVE && !may_be_expensive(q, tensor))) return false;
    if (!s->facts->variants[s->facts->variant_first[producer]].deterministic) return false;
    for (int u = 0; u < step->n_uses; u++) {
        mm_tensor used = step->uses[u].tensor;
        bool managed = mm_graph_tensor(s->graph, used)->ownership == MM_MANAGED;
        if (step->uses[u].access == (managed ? MM_MODIFY : MM_WRITE)) return false;
        if (step->uses[u].access != MM_READ) continue;
        if (managed ? !can_have(q, used) : is_changed(s, used, producer, q->when)) return false;
    }
    return true;
}

/* Finds what the map is made from, back to maps that are kept or fetched. In nested recomputation the search ends at
 * the nearest maps, recomputed or not, since these may be made from any number of others. False: the map cannot be made
 * again. */
static bool search(const mm_schedule *s, mm_maps *maps, mm_recompute_mode mode, mm_map *m) {
    query q = {.schedule = s,
               .maps = maps,
               .map = m,
               .all = mode >= MM_RECOMPUTE_SQRT,
               .near = mode >= MM_RECOMPUTE_NESTED,
               .when = s->tensors[m->tensor].last_step,
               .exact = true};
    maps->marks++;
    maps->n_met = 0;
    if (!can_make(&q, m->tensor)) return false;
    m->exact = q.exact;
    return true;
}

/* ---------------------------------------------------------------- segments */

/* The last map of a map's segment: union-find with path halving. */
static int find_segment(mm_maps *maps, int map) {
    while (maps->maps[map].segment != map) {
        int *leads = &maps->maps[map].segment;
        *leads = maps->maps[*leads].segment;
        map = *leads;
    }
    return map;
}

static int64_t bytes_of(const mm_schedule *s, mm_tensor tensor) {
    return mm_align(mm_graph_tensor(s->graph, tensor)->bytes);
}

/* The map of the i-th tensor that the last search marked, if it is recomputed; else -1. */
static int made_again(const mm_maps *maps, int i) {
    int map = maps->map_of[maps->met[i]];
    return map >= 0 && maps->maps[map].action == MM_ACTION_RECOMPUTE ? map : -1;
}

/* Bytes of the segment that would result if the tensor joined all segments that the last search reached. */
static int64_t joined_bytes(const mm_schedule *s, mm_maps *maps, mm_tensor tensor) {
    int64_t bytes = bytes_of(s, tensor);
    for (int i = 0; i < maps->n_met; i++) {
        int map = made_again(maps, i);
        mm_map *segment = map >= 0 ? &maps->maps[find_segment(maps, map)] : NULL;
        if (!segment || segment->counted == maps->marks) continue;
        bytes += segment->segment_bytes;
        segment->counted = maps->marks;
    }
    return bytes;
}

void mm_recompute_join(const mm_schedule *s, mm_maps *maps, int map) {
    mm_map *m = &maps->maps[map];
    m->segment = map;
    m->segment_bytes = bytes_of(s, m->tensor);
    for (int i = 0; i < maps->n_met; i++) {
        int source = maps->map_of[maps->met[i]], again = made_again(maps, i);
        if (source >= 0 && source != map && maps->maps[source].needed > m->first_backward)
            maps->maps[source].needed = m->first_backward;
        int segment = again >= 0 ? find_segment(maps, again) : map;
        if (segment == map) continue;
        maps->maps[segment].segment = map;
        m->segment_bytes += maps->maps[segment].segment_bytes;
    }
}

int64_t mm_recompute_layer_peak(const mm_schedule *s) {
    int64_t peak = 0;
    for (int i = 0; i < mm_graph_steps(s->graph); i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        int64_t bytes = s->facts->variants[s->facts->variant_first[i]].workspace_bytes;
        for (int u = 0; u < step->n_uses; u++) {
            mm_tensor t = step->uses[u].tensor;
            bool counts = mm_graph_tensor(s->graph, t)->ownership == MM_MANAGED && s->plan->alias[t] == t;
            if (counts) bytes += bytes_of(s, t);
        }
        if (bytes > peak) peak = bytes;
    }
    return peak;
}

/* A map is needed as early as any map that is made from it. */
static void pass_on_needs(const mm_schedule *s, mm_maps *maps) {
    for (int i = maps->n - 1; i >= 0; i--) {
        mm_map *m = &maps->maps[i];
        if (m->action != MM_ACTION_RECOMPUTE || m->along || !search(s, maps, MM_RECOMPUTE_NESTED, m)) continue;
        for (int k = 0; k < maps->n_met; k++) {
            int source = maps->map_of[maps->met[k]];
            if (source >= 0 && maps->maps[source].needed > m->needed) maps->maps[source].needed = m->needed;
        }
    }
}

void mm_recompute_choose_retaining(const mm_schedule *s, mm_maps *maps, mm_recompute_mode mode) {
    if (mode >= MM_RECOMPUTE_NESTED) pass_on_needs(s, maps);
    for (int i = 0; i < maps->n; i++) {
        mm_map *m = &maps->maps[i];
        if (m->action != MM_ACTION_RECOMPUTE) continue;
        bool large =
            mode == MM_RECOMPUTE_COST && maps->maps[find_segment(maps, i)].segment_bytes > maps->survey->layer_peak;
        m->anew = !m->along && (m->anew || large || mode == MM_RECOMPUTE_MEMORY);
    }
}

/* ---------------------------------------------------------------- the action `recompute` */

/* Number of maps that the layer which writes the tensor reads. */
static int count_sources(const mm_graph *graph, mm_tensor tensor) {
    const mm_step_info *step = mm_graph_step(graph, mm_schedule_producer(graph, tensor));
    int n = 0;
    for (int u = 0; u < step->n_uses; u++)
        n += step->uses[u].access == MM_READ && mm_graph_tensor(graph, step->uses[u].tensor)->kind == MM_FEATURE_MAP;
    return n;
}

/* Whether a sum or a concatenation is among the layers whose outputs lie in the map's storage. */
static bool is_join(const mm_schedule *s, mm_tensor tensor) {
    for (; tensor >= 0; tensor = s->tensors[tensor].over)
        if (count_sources(s->graph, tensor) > 1) return true;
    return false;
}

bool mm_recompute_choose(const mm_schedule *s, mm_maps *maps, mm_recompute_mode mode, mm_map *m) {
    m->codec = -1;
    if (!search(s, maps, mode, m)) return false;
    if (mode == MM_RECOMPUTE_MEMORY && maps->n_met > LONGEST_CHAIN) return false;
    if (mode == MM_RECOMPUTE_COST && (is_join(s, m->tensor) || is_expensive(s, m->tensor)) &&
        joined_bytes(s, maps, m->tensor) > maps->survey->layer_peak)
        return false;
    if (m->exact || !m->sign) {
        mm_maps_read_signs_from_value(s, m);
        return true;
    }
    /* The map does not come back exactly, so its mask is kept for readers of its signs. */
    int mask = mm_facts_codec(s->facts, mm_mask_spec);
    return mask >= 0 && mm_facts_code(s->facts, mask, m->tensor)->code_bytes >= 0;
}

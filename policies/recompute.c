#include "policies/recompute.h"

#include <stdlib.h>

#include "mm/core/status.h"

/* Layers that are cheap to run again: no convolution, no matrix product. */
static const uint32_t cheap_kinds = 1u << MM_LAYER_BATCH_NORM | 1u << MM_LAYER_LRN | 1u << MM_LAYER_RELU |
                                    1u << MM_LAYER_POOL | 1u << MM_LAYER_ADD | 1u << MM_LAYER_CONCAT |
                                    1u << MM_LAYER_CROP | 1u << MM_LAYER_UPSAMPLE | 1u << MM_LAYER_DROPOUT;
static const uint32_t dear_kinds = 1u << MM_LAYER_CONV | 1u << MM_LAYER_LINEAR;

/* ---------------------------------------------------------------- what can be made again */

/* Whether any step between two changes a persistent or external tensor. */
static bool is_changed(const mm_schedule *s, mm_tensor tensor, int after, int before) {
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    if (info->writes == 0) return false;
    for (int i = after + 1; i < before && i <= info->last_use; i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        for (int u = 0; u < step->n_uses; u++)
            if (step->uses[u].tensor == tensor && step->uses[u].access != MM_READ) return true;
    }
    return false;
}

typedef struct query {
    const mm_schedule *schedule;
    mm_maps *maps;
    uint32_t kinds; /* of the layers that may run again */
    int when;       /* before this step */
    bool exact;     /* nothing on the way was lossy */
} query;

static bool can_make(query *q, mm_tensor tensor);

/* Whether a step that runs again finds a managed tensor. */
static bool can_have(query *q, mm_tensor tensor, mm_tensor input) {
    const mm_schedule *s = q->schedule;
    if (s->plan->alias[input] != input || mm_graph_tensor(s->graph, input)->writes != 1) return false;
    const mm_map *m = q->maps->map_of[input] >= 0 && input < tensor ? &q->maps->maps[q->maps->map_of[input]] : NULL;
    if (m && m->action != MM_ACTION_RECOMPUTE) {
        if (m->codec >= 0 && !s->facts->codecs[m->codec].lossless) q->exact = false;
        return m->value;
    }
    if (!m && input > tensor) return false; /* not settled yet */
    return (!m && mm_maps_outlives(s, input, q->when)) || can_make(q, input);
}

/* Whether a tensor can be made before step q->when: by layers of those kinds, from what is still there then, or can be
 * fetched, or made on the way. Marks all that is. */
static bool can_make(query *q, mm_tensor tensor) {
    const mm_schedule *s = q->schedule;
    if (q->maps->mark[tensor] == q->maps->marks) return true;
    q->maps->mark[tensor] = q->maps->marks;
    int producer = mm_maps_producer(s->graph, tensor);
    if (producer < 0 || producer >= q->when) return false;
    const mm_step_info *step = mm_graph_step(s->graph, producer);
    if (!(1u << mm_graph_layer(s->graph, step->layer)->kind & q->kinds)) return false;
    if (!s->facts->variants[s->facts->variant_first[producer]].deterministic) return false;
    for (int u = 0; u < step->n_uses; u++) {
        mm_tensor used = step->uses[u].tensor;
        bool managed = mm_graph_tensor(s->graph, used)->ownership == MM_MANAGED;
        if (step->uses[u].access == (managed ? MM_MODIFY : MM_WRITE)) return false;
        if (step->uses[u].access != MM_READ) continue;
        if (managed ? !can_have(q, tensor, used) : is_changed(s, used, producer, q->when)) return false;
    }
    return true;
}

static int find_segment(const mm_maps *maps, int map) {
    while (maps->maps[map].segment != map) map = maps->maps[map].segment;
    return map;
}

bool mm_recompute_settle(const mm_schedule *s, mm_maps *maps, mm_recompute_mode mode, mm_map *m) {
    bool sqrt_mode = mode == MM_RECOMPUTE_SQRT;
    query q = {.schedule = s,
               .maps = maps,
               .kinds = cheap_kinds | (sqrt_mode ? dear_kinds : 0),
               .when = s->last_step[m->tensor],
               .exact = true};
    maps->marks++;
    m->codec = -1;
    if (!can_make(&q, m->tensor)) return false;
    if (q.exact || !m->sign) {
        mm_maps_read_signs_from_value(s, m);
        return true;
    }
    /* What comes back is not exact: the mask is kept beside it. */
    int mask = mm_facts_codec(s->facts, mm_mask_spec);
    return mask >= 0 && mm_facts_code(s->facts, mask, m->tensor)->code_bytes >= 0;
}

/* ---------------------------------------------------------------- what becomes of it */

/* The most that one layer's step takes: SuperNeurons' l_peak, below which no plan of its kind comes. */
static int64_t layer_peak(const mm_schedule *s) {
    int64_t peak = 0;
    for (int i = 0; i < mm_graph_steps(s->graph); i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        int64_t bytes = s->facts->variants[s->facts->variant_first[i]].workspace_bytes;
        for (int u = 0; u < step->n_uses; u++) {
            mm_tensor t = step->uses[u].tensor;
            bool counts = mm_graph_tensor(s->graph, t)->ownership == MM_MANAGED && s->plan->alias[t] == t;
            if (counts) bytes += mm_align(mm_graph_tensor(s->graph, t)->bytes);
        }
        if (bytes > peak) peak = bytes;
    }
    return peak;
}

/* Joins the maps that are made again from one another: one recomputation segment. */
static void join_segments(const mm_schedule *s, mm_maps *maps, int map, mm_recompute_mode mode) {
    mm_map probe = maps->maps[map];
    if (!mm_recompute_settle(s, maps, mode, &probe)) return;
    for (int i = 0; i < map; i++)
        if (maps->maps[i].action == MM_ACTION_RECOMPUTE && maps->mark[maps->maps[i].tensor] == maps->marks)
            maps->maps[find_segment(maps, i)].segment = find_segment(maps, map);
}

mm_status mm_recompute_settle_keeping(const mm_schedule *s, mm_maps *maps, mm_recompute_mode mode) {
    for (int i = 0; i < maps->n; i++) maps->maps[i].anew = mode == MM_RECOMPUTE_MEMORY;
    if (mode != MM_RECOMPUTE_COST) return MM_OK;
    int64_t *bytes = calloc((size_t)maps->n + 1, sizeof *bytes), peak = layer_peak(s);
    if (!bytes) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    for (int i = 0; i < maps->n; i++) maps->maps[i].segment = i;
    for (int i = 0; i < maps->n; i++)
        if (maps->maps[i].action == MM_ACTION_RECOMPUTE) join_segments(s, maps, i, mode);
    for (int i = 0; i < maps->n; i++)
        bytes[find_segment(maps, i)] += mm_align(mm_graph_tensor(s->graph, maps->maps[i].tensor)->bytes);
    for (int i = 0; i < maps->n; i++) maps->maps[i].anew = bytes[find_segment(maps, i)] > peak;
    free(bytes);
    return MM_OK;
}

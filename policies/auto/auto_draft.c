/* SPDX-License-Identifier: MIT */
/* Drafts of choices: plans without places, what they take at each node, and when each map's bytes are there. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_touch.h"
#include "mm/core/status.h"
#include "policies/auto/auto_state.h"

/* Bytes alive at each node. */
static mm_status profile(mm_auto *a) {
    const mm_plan *plan = a->draft.plan;
    if (plan->n_nodes + 2 > a->room) {
        free(a->live);
        a->room = 2 * plan->n_nodes + 2;
        a->live = malloc((size_t)a->room * sizeof *a->live);
        if (!a->live) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(a->graph));
    }
    memset(a->live, 0, ((size_t)plan->n_nodes + 2) * sizeof *a->live);
    for (int i = 0; i < plan->n_segments; i++) {
        if (a->draft.spans[i].bytes == 0) continue;
        a->live[a->draft.spans[i].first] += a->draft.spans[i].bytes;
        a->live[a->draft.spans[i].last + 1] -= a->draft.spans[i].bytes;
    }
    int64_t live = mm_align(plan->base_bytes) + plan->external_bytes;
    for (int i = 0; i < plan->n_nodes; i++) a->live[i] = live += a->live[i];
    return MM_OK;
}

/* The map or gradient map (mm_auto.touch_of) that lies in a segment; -1: none. */
static int map_in(const mm_auto *a, int segment) {
    const mm_segment *s = &a->draft.plan->segments[segment];
    return s->tensor < 0 || s->memory != MM_MEM_DEVICE || s->content != MM_CONTENT_RAW ? -1 : a->touch_of[s->tensor];
}

/* Makes room for `more` uses. */
static mm_status make_room(mm_auto *a, int more) {
    if (a->n_used + more <= a->used_room) return MM_OK;
    const int room = 2 * a->used_room + more + 1024;
    mm_auto_used *used = realloc(a->used, (size_t)room * sizeof *used);
    mm_auto_touch *touches = realloc(a->touches, (size_t)room * sizeof *touches);
    if (used) a->used = used;
    if (touches) a->touches = touches;
    if (!used || !touches) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(a->graph));
    a->used_room = room;
    return MM_OK;
}

/* Lists the nodes that use each map's elements, and those of gradient maps (mm_auto.used). MM_ERR_NOMEM. */
static mm_status list_uses(mm_auto *a) {
    const mm_plan *plan = a->draft.plan;
    mm_touch_rows rows;
    a->n_used = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        mm_node_touch_rows(plan, &plan->nodes[i], &rows);
        for (int r = 0; r < MM_TOUCH_ROWS; r++) {
            MM_TRY(make_room(a, rows.row[r].n));
            for (int k = 0; k < rows.row[r].n; k++) {
                const int segment = rows.row[r].segments[k], map = segment < 0 ? -1 : map_in(a, segment);
                if (map >= 0) a->used[a->n_used++] = (mm_auto_used){map, {i, segment}};
            }
        }
    }
    return MM_OK;
}

/* Sorts what the backward pass uses by its map (mm_auto.touches). */
static void list_touches(mm_auto *a) {
    int last_forward, turn, from = 0;
    mm_plan_turning_point(a->draft.plan, &last_forward, &turn);
    if (turn < 0) turn = a->draft.plan->n_nodes;
    while (from < a->n_used && a->used[from].touch.node < turn) from++;
    memset(a->touch_first, 0, ((size_t)a->n_maps + (size_t)a->n_gradients + 2) * sizeof *a->touch_first);
    for (int i = from; i < a->n_used; i++) a->touch_first[a->used[i].map + 2]++;
    for (int i = 0; i < a->n_maps + a->n_gradients; i++) a->touch_first[i + 2] += a->touch_first[i + 1];
    for (int i = from; i < a->n_used; i++) a->touches[a->touch_first[a->used[i].map + 1]++] = a->used[i].touch;
}

/* Finds the nodes after and before which each map's bytes are free, or could be (mm_auto_map.from, to). */
static void find_windows(mm_auto *a) {
    const mm_plan *plan = a->draft.plan;
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_STEP) a->node_of[plan->nodes[i].step] = i;
    for (int k = 0; k < a->n_maps; k++) {
        mm_auto_map *m = &a->maps[k];
        m->from = m->last = a->node_of[m->last_forward];
        m->need = a->node_of[m->first_backward];
        m->to = plan->n_nodes;
        m->taken = (int)a->draft.taken[m->tensor];
    }
    for (int i = 0; i < a->n_used; i++) {
        const mm_auto_used *used = &a->used[i];
        mm_auto_map *m = used->map < a->n_maps ? &a->maps[used->map] : NULL;
        if (!m || used->touch.node <= m->last || used->touch.node >= m->to) continue;
        /* whether the segment is the storage that the map had before it left */
        const bool first = m->taken >= 0 && plan->segments[used->touch.segment].first_node <= m->last;
        if (!first) m->to = used->touch.node;
    }
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        mm_auto_map *m = s->tensor >= 0 && a->map_of[s->tensor] >= 0 ? &a->maps[a->map_of[s->tensor]] : NULL;
        if (!m || m->taken < 0 || s->memory != MM_MEM_DEVICE || s->content != MM_CONTENT_RAW || s->first_node > m->last)
            continue;
        if (a->draft.spans[i].last > m->from) m->from = a->draft.spans[i].last;
    }
}

mm_status mm_auto_draft(mm_auto *a, mm_auto_choice *c) {
    if (c->lead > 0) mm_auto_time(a, c);
    MM_TRY(mm_auto_memo_draft(a, c));
    MM_TRY(profile(a));
    MM_TRY(list_uses(a));
    find_windows(a);
    list_touches(a);
    return MM_OK;
}

/* SPDX-License-Identifier: MIT */
/* Lower bounds of a plan's peak and time, from its maps alone.
 *
 *      forward    |  backward
 *      kept ============================      from its first to its last use
 *      map  =======    ..     =    .. =       until it is evicted or dropped, and at each step that reads its elements
 *      workspaces  =  =  = =   = =  =  =      each at its step */
#include "policies/engine/engine_floor.h"

#include <stdlib.h>

#include "mm/core/status.h"
#include "mm/core/time/node_time.h"
#include "policies/schedule/draft_time.h"

static void add(int64_t *change, int first, int last, int64_t bytes) {
    if (last < first) return;
    change[first] += bytes;
    change[last + 1] -= bytes;
}

/* Adds what a tensor takes from its first use on. An output that is written in place lies in its input's storage at
 * its first step, where the input is counted. */
static void add_life(const mm_engine *e, mm_tensor t, int64_t *change) {
    const mm_schedule *s = &e->schedule;
    const mm_tensor_info *info = mm_graph_tensor(s->graph, t);
    if (info->ownership != MM_MANAGED || s->plan->alias[t] != t || info->first_use < 0 || e->maps.leaves[t]) return;
    const int index = e->maps.map_of[t];
    const int last = index < 0 ? s->tensors[t].last_step : e->maps.maps[index].last_forward;
    add(change, info->first_use + (s->tensors[t].over >= 0), last, mm_align(info->bytes));
}

/* Whether a step's use needs the elements of a map that came back, or of a gradient map that leaves; not if it is
 * written in place, as above. */
static bool needs(const mm_engine *e, int step, const mm_use *use) {
    const mm_schedule *s = &e->schedule;
    const mm_tensor root = s->plan->alias[use->tensor];
    const int index = e->maps.map_of[root];
    if (e->maps.leaves[root]) return s->tensors[root].over < 0 || mm_graph_tensor(s->graph, root)->first_use < step;
    return index >= 0 && use->form == MM_FORM_VALUE && !e->maps.maps[index].in_step &&
           mm_graph_step(s->graph, step)->phase == MM_BACKWARD;
}

/* Bytes that a step needs beside those of add_life. */
static int64_t bytes_of_step(const mm_engine *e, int step) {
    const mm_schedule *s = &e->schedule;
    const mm_step_info *info = mm_graph_step(s->graph, step);
    const int variant = s->facts->variant_first[step] + (s->variant ? s->variant[step] : 0);
    int64_t bytes = mm_align(s->facts->variants[variant].workspace_bytes);
    for (int u = 0; u < info->n_uses; u++) {
        const mm_tensor root = s->plan->alias[info->uses[u].tensor];
        bool counted = false;
        if (!needs(e, step, &info->uses[u])) continue;
        for (int k = 0; k < u; k++)
            counted |= s->plan->alias[info->uses[k].tensor] == root && needs(e, step, &info->uses[k]);
        if (!counted) bytes += mm_align(mm_graph_tensor(s->graph, root)->bytes);
    }
    return bytes;
}

mm_status mm_engine_floor(const mm_engine *e, int64_t *bytes_out) {
    const mm_schedule *s = &e->schedule;
    const int steps = mm_graph_steps(s->graph);
    int64_t *change = calloc((size_t)steps + 2, sizeof *change), live = 0, most = 0;
    if (!change) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    for (int t = 0; t < mm_graph_tensors(s->graph); t++) add_life(e, t, change);
    for (int step = 0; step < steps; step++) {
        live += change[step];
        const int64_t bytes = live + bytes_of_step(e, step);
        if (bytes > most) most = bytes;
    }
    free(change);
    *bytes_out = mm_align(s->plan->base_bytes) + s->plan->external_bytes + most - MM_ALIGN + 1;
    return MM_OK;
}

/* ---------------------------------------------------------------- time */

typedef struct work {
    const mm_engine *engine;
    double busy[MM_STREAM_COUNT]; /* ns */
    int n;                        /* nodes that are counted */
} work;

static void add_ns(work *w, mm_stream_id stream, int64_t ns) {
    w->busy[stream] += (double)ns;
    w->n++;
}

static int64_t step_ns(const mm_schedule *s, int step) {
    return s->facts->variants[s->facts->variant_first[step] + (s->variant ? s->variant[step] : 0)].ns;
}

/* Counts the step that makes a map again, unless it was counted. */
static void add_again(work *w, const mm_map *m, uint8_t *counted) {
    const mm_schedule *s = &w->engine->schedule;
    const int step = mm_schedule_producer(s->graph, m->tensor);
    if (!m->value || m->along || counted[step]) return;
    counted[step] = true;
    const int64_t ns = step_ns(s, step);
    add_ns(w, MM_STREAM_COMPUTE, mm_graph_step(s->graph, step)->given ? ns - ns / 3 : ns);
}

/* Counts the operations that take a map's elements away and bring them back. */
static void add_moves(work *w, const mm_map *m) {
    const mm_graph_facts *facts = w->engine->schedule.facts;
    int64_t bytes = mm_graph_tensor(w->engine->schedule.graph, m->tensor)->bytes;
    if (!m->value || m->in_step) return;
    if (m->action != MM_ACTION_SWAP) {
        const mm_code_facts *code = mm_facts_code(facts, m->codec, m->tensor);
        add_ns(w, MM_STREAM_ENCODE, code->encode_ns);
        add_ns(w, MM_STREAM_DECODE, code->decode_ns);
        bytes = m->action == MM_ACTION_CODE_SWAP && code->body_bound_bytes == 0 ? code->code_bytes : 0;
    }
    if (bytes == 0) return;
    add_ns(w, MM_STREAM_OUT, mm_rate_ns(facts->out_bytes_per_s, bytes));
    add_ns(w, MM_STREAM_IN, mm_rate_ns(facts->in_bytes_per_s, bytes));
}

mm_status mm_engine_least_time(const mm_engine *e, int64_t *ns_out) {
    const mm_schedule *s = &e->schedule;
    work w = {.engine = e};
    uint8_t *counted = calloc((size_t)mm_graph_steps(s->graph) + 1, sizeof *counted);
    if (!counted) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    for (int step = 0; step < mm_graph_steps(s->graph); step++) add_ns(&w, MM_STREAM_COMPUTE, step_ns(s, step));
    for (int i = 0; i < e->maps.n; i++) {
        const mm_map *m = &e->maps.maps[i];
        if (m->action == MM_ACTION_RECOMPUTE)
            add_again(&w, m, counted);
        else
            add_moves(&w, m);
    }
    free(counted);
    *ns_out = mm_ns_at_least(mm_busiest_ns(w.busy, s->facts), w.n);
    return MM_OK;
}

/* SPDX-License-Identifier: MIT */
/* Makes a plan from the decisions of modnn's simulation. */
#include <stdlib.h>

#include "policies/modnn/modnn.h"

typedef struct writer {
    const modnn *m;
    mm_schedule *schedule;
    int32_t *out_node, *out_segment; /* per offload */
    int32_t *writer_node;            /* per step: its node */
    int out, in;                     /* number of transfers written so far */
} writer;

/* Sets where a segment lies. */
static void put_at(mm_schedule *s, int segment, int64_t offset) {
    mm_group *group = &s->groups[s->segment_group[segment]];
    group->region = MM_REGION_GIVEN;
    group->offset = offset;
}

static mm_status write_offload(writer *w, int i) {
    mm_schedule *s = w->schedule;
    const mm_tensor root = w->m->outs.list[i].root;
    const int64_t bytes = mm_graph_tensor(s->graph, root)->bytes;
    const int node =
        mm_schedule_op(s, MM_NODE_OUT, root, s->tensors[root].value, -1, MM_REGION_PINNED, bytes, &w->out_segment[i]);
    if (node < 0) return MM_ERR_NOMEM;
    mm_plan_wait(s->plan, node, w->writer_node[w->m->outs.list[i].written]);
    w->out_node[i] = node;
    return MM_OK;
}

static mm_status write_prefetch(writer *w, const modnn_transfer *t) {
    mm_schedule *s = w->schedule;
    const int64_t bytes = mm_graph_tensor(s->graph, t->root)->bytes;
    int segment;
    const int node =
        mm_schedule_op(s, MM_NODE_IN, t->root, w->out_segment[t->copy], -1, MM_REGION_GIVEN, bytes, &segment);
    if (node < 0) return MM_ERR_NOMEM;
    mm_plan_wait(s->plan, node, w->out_node[t->copy]);
    put_at(s, segment, t->offset);
    s->tensors[t->root].value = segment;
    s->tensors[t->root].value_node = node;
    return MM_OK;
}

/* Writes the transfers that are issued right after `step`. Offloads come first, because prefetches take the bytes that
 * offloads free. */
static mm_status write_transfers(writer *w, int step) {
    const modnn *m = w->m;
    for (; w->out < m->outs.n && m->outs.list[w->out].after == step; w->out++) MM_TRY(write_offload(w, w->out));
    for (; w->in < m->ins.n && m->ins.list[w->in].after == step; w->in++)
        if (!m->ins.list[w->in].cancelled) MM_TRY(write_prefetch(w, &m->ins.list[w->in]));
    return MM_OK;
}

static mm_status write_step(writer *w, int step) {
    const modnn *m = w->m;
    mm_schedule *s = w->schedule;
    for (int i = m->first_need[step]; i < m->first_need[step + 1]; i++) {
        const modnn_need *need = &m->needs[i];
        if (need->made < 0) continue;
        s->tensors[need->root].value = s->tensors[need->root].value_node = -1;
        /* undoes an in-place pair, if the storage was first made in place over another tensor */
        mm_schedule_split(s, need->root);
    }
    const int node = mm_schedule_step(s, step, NULL);
    if (node < 0) return MM_ERR_NOMEM;
    w->writer_node[step] = node;
    for (int i = m->first_need[step]; i < m->first_need[step + 1]; i++)
        if (m->needs[i].made >= 0) put_at(s, s->tensors[m->needs[i].root].value, m->needs[i].made);
    if (s->plan->nodes[node].work >= 0) put_at(s, s->plan->nodes[node].work, m->work_offset[step]);
    return MM_OK;
}

static mm_status write_all(writer *w, mm_plan **plan_out) {
    mm_schedule *s = w->schedule;
    mm_bounds ignored;
    for (int step = 0; step < w->m->n_steps; step++) {
        MM_TRY(write_step(w, step));
        MM_TRY(write_transfers(w, step));
    }
    MM_TRY(mm_schedule_close(s, 0, false, &ignored));
    s->plan->defragmentations = w->m->defragmentations;
    return mm_schedule_finish(s, plan_out);
}

mm_status mm_modnn_write(modnn *m, mm_plan **plan_out) {
    const size_t outs = (size_t)m->outs.n + 1;
    writer w = {.m = m,
                .schedule = m->schedule,
                .out_node = malloc(outs * sizeof *w.out_node),
                .out_segment = malloc(outs * sizeof *w.out_segment),
                .writer_node = malloc(((size_t)m->n_steps + 1) * sizeof *w.writer_node)};
    m->schedule->variant = m->variant;
    m->variant = NULL;
    mm_status status = MM_ERR_NOMEM;
    if (w.out_node && w.out_segment && w.writer_node)
        status = write_all(&w, plan_out);
    else
        mm_fail_set("out of memory for planning %s", mm_graph_name(m->graph));
    free(w.out_node);
    free(w.out_segment);
    free(w.writer_node);
    return status;
}

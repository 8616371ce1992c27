/* SPDX-License-Identifier: MIT */
/* Checks at run time, for tests and for debugging. A segment is overwritten with NaNs after its last use, so that a
 * later use shows. A map that comes back exactly (lossless codec, copy) is compared with the map as it was evicted; a
 * persistent tensor that visits the device, with what is in its home. */
#include "pipeline/self_check.h"

#include <stdlib.h>

#include "mm/core/plan/plan_touch.h"
#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"

enum { POISON = 0xff }; /* each element is a NaN in f32, f16 and bf16 */

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for the self-check"); }

/* dominated_out: per segment, whether all of its users are known to have ended when its last user ends. */
static void find_dominated(const mm_execution *p, const int32_t (*clocks)[MM_STREAM_COUNT], bool *dominated_out) {
    const mm_plan *plan = p->plan;
    const mm_program *program = p->program;
    for (int i = 0; i < plan->n_segments; i++) dominated_out[i] = true;
    for (int i = 0; i < plan->n_nodes; i++) {
        mm_touch touch;
        for (int t = 0; mm_node_next_touch(plan, &plan->nodes[i], &t, &touch);) {
            int last = plan->segments[touch.segment].last_node;
            int end = mm_program_piece(program, last, mm_program_pieces(program, last) - 1);
            if (clocks[end][plan->nodes[i].stream] < program->last[i]) dominated_out[touch.segment] = false;
        }
    }
}

/* Whether a segment's bytes are dead after its last user. Not dead are: persistent tensors, bytes that another segment
 * takes over in place, and bytes that another stream may still use. */
static bool dies(const mm_plan *plan, const bool *dominated, int segment) {
    const mm_segment *s = &plan->segments[segment];
    return mm_segment_has_life(s) && s->live_last == s->last_node && dominated[segment];
}

static mm_status list_dying(mm_execution *p, const bool *dominated) {
    const mm_plan *plan = p->plan;
    mm_self_check *check = &p->check;
    check->first = calloc((size_t)plan->n_nodes + 2, sizeof *check->first);
    check->dying = malloc(((size_t)plan->n_segments + 1) * sizeof *check->dying);
    if (!check->first || !check->dying) return no_memory();
    for (int i = 0; i < plan->n_segments; i++)
        if (dies(plan, dominated, i)) check->first[plan->segments[i].last_node + 2]++;
    for (int i = 0; i < plan->n_nodes; i++) check->first[i + 2] += check->first[i + 1];
    for (int i = 0; i < plan->n_segments; i++)
        if (dies(plan, dominated, i)) check->dying[check->first[plan->segments[i].last_node + 1]++] = i;
    return MM_OK;
}

mm_status mm_self_check_init(mm_execution *p) {
    if (!p->dispatch->config.self_check) return MM_OK;
    size_t tensors = (size_t)mm_graph_tensors(p->plan->graph) + 1;
    p->check.before = calloc(tensors, sizeof *p->check.before);
    p->check.after = calloc(tensors, sizeof *p->check.after);
    p->check.compared = calloc(tensors, sizeof *p->check.compared);
    if (!p->check.before || !p->check.after || !p->check.compared) return no_memory();
    int32_t(*clocks)[MM_STREAM_COUNT] = malloc(((size_t)p->program->n + 1) * sizeof *clocks);
    bool *dominated = malloc(((size_t)p->plan->n_segments + 1) * sizeof *dominated);
    mm_status status = clocks && dominated ? MM_OK : no_memory();
    if (status == MM_OK) {
        mm_program_clocks(p->program, clocks);
        find_dominated(p, (const int32_t(*)[MM_STREAM_COUNT])clocks, dominated);
        status = list_dying(p, dominated);
    }
    free(clocks);
    free(dominated);
    return status;
}

void mm_self_check_fini(mm_execution *p) {
    free(p->check.first);
    free(p->check.dying);
    free(p->check.before);
    free(p->check.after);
    free(p->check.compared);
}

/* Whether the operation evicts or fetches a map bit for bit: with a lossless codec, or as a copy of the map itself. A
 * shared tensor does not come back bit for bit, but as a sum over ranks. */
static bool is_exact(const mm_execution *p, const mm_node *node) {
    if (mm_graph_tensor(p->plan->graph, node->tensor)->shared != MM_ALLREDUCE_NOT) return false;
    if (node->kind == MM_NODE_OUT || node->kind == MM_NODE_IN)
        return p->plan->segments[node->src].content == MM_CONTENT_RAW;
    int code = node->kind == MM_NODE_ENCODE ? node->dst : node->src;
    const mm_codec_facts *codec = &p->facts->codecs[p->plan->segments[code].codec];
    return codec->lossless && codec->gives_value;
}

mm_status mm_self_check_before(mm_execution *p, int index) {
    const mm_node *node = &p->plan->nodes[index];
    bool puts_away = node->kind == MM_NODE_ENCODE || node->kind == MM_NODE_OUT;
    if (node->tensor >= 0 && mm_plan_visits(p->plan, node->tensor)) puts_away = node->kind == MM_NODE_IN;
    if (!p->dispatch->config.self_check || !puts_away || !is_exact(p, node)) return MM_OK;
    return mm_checksum_async(mm_dispatch_stream(p->dispatch, node), mm_dispatch_address(p->dispatch, node->src),
                             mm_graph_tensor(p->plan->graph, node->tensor)->bytes, &p->check.before[node->tensor]);
}

mm_status mm_self_check_after(mm_execution *p, int index) {
    if (!p->dispatch->config.self_check) return MM_OK;
    const mm_node *node = &p->plan->nodes[index];
    mm_stream *stream = mm_dispatch_stream(p->dispatch, node);
    if ((node->kind == MM_NODE_DECODE || node->kind == MM_NODE_IN) && is_exact(p, node)) {
        p->check.compared[node->tensor] = 1;
        MM_TRY(mm_checksum_async(stream, mm_dispatch_address(p->dispatch, node->dst),
                                 mm_graph_tensor(p->plan->graph, node->tensor)->bytes, &p->check.after[node->tensor]));
    }
    for (int i = p->check.first[index]; i < p->check.first[index + 1]; i++) {
        int segment = p->check.dying[i];
        MM_TRY(
            mm_fill_async(stream, mm_dispatch_address(p->dispatch, segment), POISON, p->plan->segments[segment].bytes));
    }
    return MM_OK;
}

mm_status mm_self_check_end(mm_execution *p) {
    if (!p->dispatch->config.self_check) return MM_OK;
    for (int t = 0; t < mm_graph_tensors(p->plan->graph); t++) {
        bool wrong = p->check.compared[t] && p->check.before[t] != p->check.after[t];
        p->check.compared[t] = 0;
        if (wrong)
            return mm_fail(MM_ERR_DEVICE, "self-check: %s came back different from what was evicted",
                           mm_graph_tensor(p->plan->graph, t)->name);
    }
    return MM_OK;
}

/* SPDX-License-Identifier: MIT */
#include "tests/golden/whole_digest.h"

#include "mm/core/plan/plan_codes.h"

/* FNV-1a, by words, with a shift that mixes the upper bits down. */
static void mix(uint64_t *digest, int64_t word) {
    *digest = (*digest ^ (uint64_t)word) * UINT64_C(0x100000001b3);
    *digest ^= *digest >> 29;
}

static void mix_all(uint64_t *digest, const int64_t *words, size_t n) {
    for (size_t i = 0; i < n; i++) mix(digest, words[i]);
}

#define MIX(digest, ...)                                                                                               \
    mix_all(digest, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void mix_waits(uint64_t *d, const int32_t wait[MM_STREAM_COUNT]) {
    for (int s = 0; s < MM_STREAM_HOST; s++) mix(d, wait[s]);
    if (wait[MM_STREAM_HOST] >= 0) mix(d, wait[MM_STREAM_HOST]); /* most plans have no step on the host */
}

static void mix_node(uint64_t *d, const mm_plan *plan, const mm_node *n) {
    MIX(d, n->kind, n->stream, n->seq, n->step, n->variant, (int64_t)n->given, n->tensor, n->src, n->dst, n->work,
        n->stage, n->throttle);
    mix_waits(d, n->wait);
    if (!mm_node_runs_step(n)) return;
    const int uses = mm_graph_step(plan->graph, n->step)->n_uses;
    for (int u = 0; u < uses; u++) MIX(d, plan->bindings[n->first_binding + u], mm_node_code(plan, n, u));
}

static void mix_segment(uint64_t *d, const mm_segment *s) {
    MIX(d, s->content, s->category, s->tensor, s->codec, s->pool, s->spill, s->memory, s->dynamic,
        s->dynamic ? 0 : s->offset, s->bytes, s->first_node, s->last_node, s->live_last);
}

static void mix_piece(uint64_t *d, const mm_piece *p) {
    MIX(d, p->node, p->stream, p->seq, p->first_row, p->rows, p->map_offset, p->stored_offset, p->stored_bytes);
    mix_waits(d, p->wait);
}

uint64_t whole_digest(const mm_program *program) {
    const mm_plan *plan = program->plan;
    uint64_t d = UINT64_C(0xcbf29ce484222325);
    MIX(&d, plan->n_nodes, plan->n_segments, program->n, plan->keeps_all, plan->base_bytes, plan->heap_offset,
        plan->heap_bytes, plan->heap_code_bytes, plan->code_region_bytes, plan->buffer_region_bytes, plan->buffers,
        plan->defragmentations, plan->extent_bytes, plan->external_bytes, plan->live_peak_bytes, plan->peak_step,
        plan->stash_bytes);
    for (int t = 0; t < mm_graph_tensors(plan->graph); t++) mix(&d, plan->alias[t]);
    for (int i = 0; i < plan->n_nodes; i++) mix_node(&d, plan, &plan->nodes[i]);
    for (int i = 0; i < plan->n_segments; i++) mix_segment(&d, &plan->segments[i]);
    for (int i = 0; i < program->n; i++) mix_piece(&d, &program->pieces[i]);
    return d;
}

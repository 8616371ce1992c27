/* SPDX-License-Identifier: MIT */
/* Copies over the link, and to the disk and back. */

#include "tests/core/plan_mutate_parts.h"

/* A copy over the link no longer waits for one of the streams that it waited for. */
static bool move_too_early(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_move);
    if (!n || !node_has_wait(n)) return false;
    int s = mutant_below(m, MM_STREAM_COUNT);
    while (n->wait[s] < 0) s = (s + 1) % MM_STREAM_COUNT;
    n->wait[s] = -1;
    return true;
}

/* A copy in is made a copy out, or a load a store, or the reverse, on that kind's stream; sometimes its ends are
 * exchanged, too. */
static bool turn_move(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_move);
    if (!n) return false;
    n->kind = n->kind == MM_NODE_OUT    ? MM_NODE_IN
              : n->kind == MM_NODE_IN   ? MM_NODE_OUT
              : n->kind == MM_NODE_LOAD ? MM_NODE_STORE
                                        : MM_NODE_LOAD;
    n->stream = mm_node_stream(n->kind);
    n->wait[n->stream] = -1;
    if (mutant_below(m, 2)) {
        int32_t src = n->src;
        n->src = n->dst;
        n->dst = src;
    }
    mutant_renumber(m->plan);
    return true;
}

/* A copy has another segment of the same tensor as its source or target. */
static bool other_end_of_move(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_move);
    if (!n) return false;
    int32_t *end = mutant_below(m, 2) ? &n->src : &n->dst;
    int sibling = mutant_find_sibling(m, *end);
    if (sibling >= 0) *end = sibling;
    return sibling >= 0;
}

/* One end of a copy differs from the other: raw and coded, in size, or on the same side of the link. */
static bool unlike_ends_of_move(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_move);
    if (!n) return false;
    mm_segment *s = &m->plan->segments[mutant_below(m, 2) ? n->src : n->dst];
    switch (mutant_below(m, 3)) {
    case 0:
        s->codec = s->content == MM_CONTENT_RAW ? mutant_below(m, m->facts->n_codecs) : -1;
        s->content = s->codec < 0 ? MM_CONTENT_RAW : MM_CONTENT_CODED;
        s->bytes = s->codec < 0 ? mm_graph_tensor(m->plan->graph, s->tensor)->bytes
                                : mm_facts_code(m->facts, s->codec, s->tensor)->code_bytes;
        return s->bytes > 0;
    case 1:
        s->bytes += 1 + mutant_below(m, 300);
        return true;
    default:
        s->memory = s->memory == MM_MEM_PINNED ? MM_MEM_DEVICE : MM_MEM_PINNED;
        return true;
    }
}

/* Both ends of a copied code are of another codec, and of the right size for it. */
static bool other_codec_of_move(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_move);
    if (!n || m->plan->segments[n->src].content != MM_CONTENT_CODED) return false;
    int codec = mutant_below(m, m->facts->n_codecs);
    int64_t bytes = mm_facts_code(m->facts, codec, n->tensor)->code_bytes;
    int32_t ends[] = {n->src, n->dst};
    for (int i = 0; bytes > 0 && i < 2; i++) {
        m->plan->segments[ends[i]].codec = codec;
        m->plan->segments[ends[i]].bytes = bytes;
    }
    return bytes > 0;
}

static bool work_for_move(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_move);
    if (n) *(mutant_below(m, 2) ? &n->work : &n->stage) = mutant_below(m, m->plan->n_segments);
    return n != NULL;
}

/* An encode reads its map from the copy in pinned memory, after that was made. */
static bool encode_pinned(mutant *m) {
    mm_plan *plan = m->plan;
    for (int i = 0; i < plan->n_nodes; i++)
        for (int out = 0; out < i; out++) {
            if (!node_is_encode(&plan->nodes[i]) || plan->nodes[out].kind != MM_NODE_OUT) continue;
            int copy = plan->nodes[out].dst;
            if (plan->nodes[out].tensor != plan->nodes[i].tensor || !segment_is_raw(&plan->segments[copy])) continue;
            plan->nodes[i].src = copy;
            mm_plan_wait(plan, i, out);
            return true;
        }
    return false;
}

/* A step reads or writes a tensor in pinned memory. */
static bool bind_pinned(mutant *m) {
    int32_t *binding = mutant_find_binding(m);
    for (int i = 0; binding && i < m->plan->n_segments; i++) {
        const mm_segment *s = &m->plan->segments[i];
        if (s->memory == MM_MEM_DEVICE || s->tensor != m->plan->segments[*binding].tensor) continue;
        *binding = i;
        return true;
    }
    return false;
}

/* What a copy to or from the disk moves lies in another memory at one end. */
static bool disk_end_elsewhere(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_store_or_load);
    if (!n) return false;
    mm_segment *s = &m->plan->segments[mutant_below(m, 2) ? n->src : n->dst];
    s->memory = (mm_memory)(((int)s->memory + 1 + mutant_below(m, 2)) % MM_MEMORY_COUNT);
    return true;
}

/* A segment on the disk begins within a block. */
static bool within_a_block(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_store_or_load);
    if (!n) return false;
    m->plan->segments[n->kind == MM_NODE_STORE ? n->dst : n->src].offset += MM_ALIGN * (1 + mutant_below(m, 15));
    return true;
}

/* Two segments on the disk lie at one place. */
static bool one_place_on_disk(mutant *m) {
    const mm_node *a = mutant_find_node(m, node_is_store_or_load), *b = mutant_find_node(m, node_is_store_or_load);
    if (!a || a == b) return false;
    mm_segment *segments = m->plan->segments;
    mm_segment *of_a = &segments[a->kind == MM_NODE_STORE ? a->dst : a->src];
    const mm_segment *of_b = &segments[b->kind == MM_NODE_STORE ? b->dst : b->src];
    of_a->offset = of_b->offset;
    return of_a != of_b;
}

/* A load reads what was stored last, not what it should. */
static bool load_another(mutant *m) {
    mm_plan *plan = m->plan;
    for (int i = 0; i < plan->n_nodes; i++)
        for (int other = 0; plan->nodes[i].kind == MM_NODE_LOAD && other < i; other++) {
            if (plan->nodes[other].kind != MM_NODE_STORE || plan->nodes[other].dst == plan->nodes[i].src) continue;
            plan->nodes[i].src = plan->nodes[other].dst;
            return true;
        }
    return false;
}

const mutation mutations_of_moves[] = {
    {"move_too_early", move_too_early},
    {"turn_move", turn_move},
    {"other_end_of_move", other_end_of_move},
    {"unlike_ends_of_move", unlike_ends_of_move},
    {"other_codec_of_move", other_codec_of_move},
    {"work_for_move", work_for_move},
    {"encode_pinned", encode_pinned},
    {"bind_pinned", bind_pinned},
    {"disk_end_elsewhere", disk_end_elsewhere},
    {"within_a_block", within_a_block},
    {"one_place_on_disk", one_place_on_disk},
    {"load_another", load_another},
    {NULL, NULL},
};

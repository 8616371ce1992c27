/* SPDX-License-Identifier: MIT */
/* Mutations of pools, of their spills, and of the codes whose bodies lie there. */
#include "tests/core/plan_mutate_parts.h"
#include "tests/core/random_graph.h"

static int index_of(const mutant *m, const mm_segment *s) { return (int)(s - m->plan->segments); }

static bool node_is_coder(const mm_node *n) { return n->kind == MM_NODE_ENCODE || n->kind == MM_NODE_DECODE; }

/* An encode or decode of a code with a body. */
static mm_node *find_coder(mutant *m, bool (*fits)(const mm_node *)) {
    mm_node *found = NULL;
    for (int i = 0, seen = 0; i < m->plan->n_nodes; i++) {
        mm_node *n = &m->plan->nodes[i];
        if (node_is_coder(n) && fits(n) && m->plan->segments[n->kind == MM_NODE_ENCODE ? n->dst : n->src].pool >= 0 &&
            mutant_below(m, ++seen) == 0)
            found = n;
    }
    return found;
}

/* A pool that is not itself a spill. */
static mm_segment *find_pool(mutant *m) {
    const mm_segment *code = mutant_find_segment(m, segment_has_pool);
    return code ? &m->plan->segments[code->pool] : NULL;
}

static bool short_pool(mutant *m) {
    mm_segment *pool = find_pool(m);
    if (pool) pool->bytes -= 1 + (mutant_below(m, 2) ? mutant_below(m, (int)pool->bytes) : 0);
    return pool != NULL;
}

static bool long_pool(mutant *m) {
    mm_segment *pool = find_pool(m);
    if (pool) pool->bytes += 1 + mutant_below(m, 1000);
    return pool != NULL;
}

static bool short_spill(mutant *m) {
    const mm_segment *pool = mutant_find_segment(m, segment_has_spill);
    if (pool) m->plan->segments[pool->spill].bytes -= mutant_below(m, 2) ? 1 : MM_CHUNK_BYTES;
    return pool != NULL;
}

static bool lose_spill(mutant *m) {
    mm_segment *pool = mutant_find_segment(m, segment_has_spill);
    if (pool) pool->spill = -1;
    return pool != NULL;
}

static bool other_spill(mutant *m) {
    mm_segment *pool = find_pool(m);
    if (pool) pool->spill = mutant_below(m, m->plan->n_segments);
    return pool != NULL;
}

static bool spill_on_device(mutant *m) {
    const mm_segment *pool = mutant_find_segment(m, segment_has_spill);
    if (pool) m->plan->segments[pool->spill].memory = MM_MEM_DEVICE;
    return pool != NULL;
}

static bool pool_to_pinned(mutant *m) {
    mm_segment *pool = find_pool(m);
    if (pool) pool->memory = pool->memory == MM_MEM_PINNED ? MM_MEM_DEVICE : MM_MEM_PINNED;
    return pool != NULL;
}

static bool pool_in_heap(mutant *m) {
    mm_segment *pool = mutant_find_segment(m, segment_is_pool);
    if (pool) pool->dynamic = true;
    return pool != NULL;
}

/* Two pools with one spill, which has room for both. */
static bool share_spill(mutant *m) {
    mm_segment *pool = mutant_find_segment(m, segment_has_spill), *other = find_pool(m);
    if (!pool || pool == other || other->memory == MM_MEM_PINNED) return false;
    other->spill = pool->spill;
    m->plan->segments[pool->spill].bytes += INT64_C(1) << 20;
    return true;
}

static bool body_in_spill(mutant *m) {
    const mm_segment *pool = mutant_find_segment(m, segment_has_spill);
    mm_segment *code = mutant_find_segment(m, segment_has_pool);
    if (!pool) return false;
    code->pool = pool->spill;
    m->plan->segments[pool->spill].bytes += INT64_C(1) << 20;
    return true;
}

static bool lose_pool(mutant *m) {
    mm_segment *code = mutant_find_segment(m, segment_has_pool);
    if (code) code->pool = -1;
    return code != NULL;
}

/* A code has its body in another pool, which may have room for it. */
static bool other_pool(mutant *m) {
    mm_segment *code = mutant_find_segment(m, segment_has_pool);
    mm_segment *pool = mutant_find_segment(m, segment_is_pool);
    if (!code) return false;
    code->pool = index_of(m, pool);
    if (mutant_below(m, 2)) pool->bytes += INT64_C(1) << 16;
    return true;
}

/* A map, a workspace, a pool or a code of fixed size that names a pool. */
static bool pool_for_all(mutant *m) {
    const mm_segment *pool = mutant_find_segment(m, segment_is_pool);
    mm_segment *s = mutant_segment(m);
    if (!pool || s->pool >= 0) return false;
    s->pool = index_of(m, pool);
    return true;
}

static bool spill_for_all(mutant *m) {
    mm_segment *s = mutant_segment(m);
    const mm_segment *pool = mutant_find_segment(m, segment_is_pool);
    if (!pool || s->spill >= 0) return false;
    s->spill = index_of(m, pool);
    return true;
}

static bool other_head_size(mutant *m) {
    mm_segment *code = mutant_find_segment(m, segment_has_pool);
    if (code) code->bytes += mutant_below(m, 2) ? 8 : -1;
    return code != NULL;
}

static bool stage_body(mutant *m) {
    mm_node *n = find_coder(m, node_is_encode);
    if (!n) return false;
    n->stage = m->plan->n_segments++;
    m->plan->segments[n->stage] = (mm_segment){.content = MM_CONTENT_WORK,
                                               .category = MM_CAT_WORKSPACE,
                                               .tensor = -1,
                                               .codec = -1,
                                               .pool = -1,
                                               .spill = -1,
                                               .offset = mm_align(m->plan->extent_bytes),
                                               .bytes = m->plan->segments[n->dst].bytes};
    return true;
}

/* Both ends of a copied code are heads of bodies in a pool with room for them. */
static bool copy_body(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_move);
    mm_segment *pool = mutant_find_segment(m, segment_is_pool);
    if (!n || !pool) return false;
    const int64_t bytes = mm_facts_code(m->facts, RANDOM_VARIABLE, n->tensor)->code_bytes;
    const int32_t ends[] = {n->src, n->dst};
    for (int i = 0; bytes > 0 && i < 2; i++) {
        mm_segment *s = &m->plan->segments[ends[i]];
        s->content = MM_CONTENT_CODED;
        s->codec = RANDOM_VARIABLE;
        s->bytes = bytes;
        s->pool = index_of(m, pool);
        pool->bytes += INT64_C(1) << 16;
    }
    return bytes > 0;
}

/* A step uses the head of a code in place of the tensor. */
static bool bind_body(mutant *m) {
    mm_segment *code = mutant_find_segment(m, segment_has_pool);
    for (int i = 0; code && i < m->plan->n_bindings; i++) {
        int32_t *binding = &m->plan->bindings[i];
        if (*binding < 0 || m->plan->segments[*binding].tensor != code->tensor || mutant_below(m, 2)) continue;
        *binding = index_of(m, code);
        return true;
    }
    return false;
}

static bool use_pool_itself(mutant *m) {
    const mm_segment *pool = mutant_find_segment(m, segment_is_pool);
    mm_node *n = mutant_node(m);
    if (!pool) return false;
    int32_t *fields[] = {&n->src, &n->dst, &n->work, &n->stage,
                         n->first_binding < m->plan->n_bindings ? &m->plan->bindings[n->first_binding] : &n->work};
    *fields[mutant_below(m, 5)] = index_of(m, pool);
    return true;
}

/* An encode into a pool runs on another stream. */
static bool encode_elsewhere(mutant *m) {
    mm_node *n = find_coder(m, node_is_encode);
    if (!n) return false;
    n->stream = (mm_stream_id)mutant_below(m, MM_STREAM_COUNT);
    n->wait[n->stream] = -1;
    mutant_renumber(m->plan);
    return true;
}

/* A segment lies in the place of a pool or of its spill, where bodies may still be. */
static bool lie_in_pool(mutant *m) {
    mm_segment *pool = mutant_find_segment(m, segment_is_pool), *other = mutant_find_segment(m, segment_is_placed);
    if (!pool || other == pool || other->memory != pool->memory) return false;
    if (mutant_below(m, 2))
        other->offset = pool->offset + mutant_below(m, (int)pool->bytes) / MM_ALIGN * MM_ALIGN;
    else
        pool->offset = other->offset;
    return true;
}

/* A user of a pool no longer waits for one of the streams that it waited for. */
static bool use_pool_early(mutant *m) {
    mm_node *n = find_coder(m, node_has_wait);
    if (!n) return false;
    int s = mutant_below(m, MM_STREAM_COUNT);
    while (n->wait[s] < 0) s = (s + 1) % MM_STREAM_COUNT;
    n->wait[s] = -1;
    return true;
}

static bool own_pool(mutant *m) {
    mm_segment *pool = mutant_find_segment(m, segment_is_pool);
    if (!pool) return false;
    if (mutant_below(m, 2))
        pool->tensor = mutant_below(m, mm_graph_tensors(m->plan->graph));
    else
        pool->codec = mutant_below(m, m->facts->n_codecs);
    return true;
}

const mutation mutations_of_pools[] = {
    {"short_pool", short_pool},
    {"long_pool", long_pool},
    {"short_spill", short_spill},
    {"lose_spill", lose_spill},
    {"other_spill", other_spill},
    {"spill_on_device", spill_on_device},
    {"pool_to_pinned", pool_to_pinned},
    {"pool_in_heap", pool_in_heap},
    {"share_spill", share_spill},
    {"body_in_spill", body_in_spill},
    {"lose_pool", lose_pool},
    {"other_pool", other_pool},
    {"pool_for_all", pool_for_all},
    {"spill_for_all", spill_for_all},
    {"other_head_size", other_head_size},
    {"stage_body", stage_body},
    {"copy_body", copy_body},
    {"bind_body", bind_body},
    {"use_pool_itself", use_pool_itself},
    {"encode_elsewhere", encode_elsewhere},
    {"lie_in_pool", lie_in_pool},
    {"use_pool_early", use_pool_early},
    {"own_pool", own_pool},
    {NULL, NULL},
};

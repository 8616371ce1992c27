/* SPDX-License-Identifier: MIT */
#include "mm/core/plan/plan_digest.h"

#include "mm/core/hash.h"

/* Adds a word with mm_hash_word, then mixes the upper bits of the hash into the lower ones. */
static uint64_t mix(uint64_t digest, int64_t word) {
    digest = mm_hash_word(digest, (uint64_t)word);
    return digest ^ digest >> 29;
}

uint64_t mm_plan_digest(const mm_plan *plan) {
    uint64_t d = MM_HASH_BEGIN;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        const int64_t words[] = {n->kind,  n->step,     n->tensor,  n->src,    n->dst,       n->work,
                                 n->stage, n->throttle, n->variant, n->stream, n->first_code};
        for (size_t w = 0; w < sizeof words / sizeof *words; w++) d = mix(d, words[w]);
        for (int s = 0; s < MM_STREAM_HOST; s++) d = mix(d, n->wait[s]);
        for (int s = MM_STREAM_HOST; s < MM_STREAM_COUNT; s++) /* most plans have none there */
            if (n->wait[s] >= 0) d = mix(d, n->wait[s]);
        d = mix(d, (int64_t)n->given);
    }
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        const int64_t words[] = {s->content, s->tensor, s->codec, s->pool, s->spill, s->memory, s->offset, s->bytes};
        for (size_t w = 0; w < sizeof words / sizeof *words; w++) d = mix(d, words[w]);
    }
    for (int i = 0; i < plan->n_bindings; i++) d = mix(d, plan->bindings[i]);
    return d;
}

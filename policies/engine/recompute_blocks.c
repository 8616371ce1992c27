/* SPDX-License-Identifier: MIT */
#include "policies/engine/recompute_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"

enum { SLOTS = MM_BLOCKS_SLOTS };

/* ---------------------------------------------------------------- the dynamic programme */

static int slots(const mm_blocks *b, int64_t bytes) {
    const int64_t n = (bytes + b->slot_bytes - 1) / b->slot_bytes;
    return n < SLOTS ? (int)n : SLOTS;
}

static int larger(int a, int b) { return a > b ? a : b; }

/* Offers blocks s to t a choice that needs `least` slots: `own` ns, then rest[] with `taken` slots less, then left[]
 * with all slots. rest, left NULL: nothing. */
static void offer(mm_blocks *b, int s, int t, int what, int least, int taken, int64_t own, const int64_t *rest,
                  const int64_t *left) {
    const size_t at = mm_blocks_at(b, s, t, 0);
    for (int m = larger(least, taken); m < SLOTS; m++) {
        const int64_t ns = own + (rest ? rest[m - taken] : 0) + (left ? left[m] : 0);
        if (ns >= b->ns[at + (size_t)m]) continue;
        b->ns[at + (size_t)m] = ns;
        b->choice[at + (size_t)m] = (uint8_t)what;
    }
}

static void solve(mm_blocks *b, const mm_chain *chain, int s, int t) {
    const mm_stage *stages = chain->stages, *first = &stages[s];
    const int64_t entry = stages[t].entry_bytes;
    const int least = larger(slots(b, first->backward_bytes), slots(b, first->forward_bytes + entry));
    int64_t ns = 0, most = 0;
    offer(b, s, t, MM_BLOCKS_KEEP, least, slots(b, first->bytes), first->ns,
          s < t ? b->ns + mm_blocks_at(b, s + 1, t, 0) : NULL, NULL);
    for (int k = s + 1; k <= t; k++) {
        ns += stages[k - 1].ns;
        if (stages[k - 1].forward_bytes > most) most = stages[k - 1].forward_bytes;
        offer(b, s, t, k - s, slots(b, most + entry), slots(b, mm_chain_across(chain, s, k)), ns,
              b->ns + mm_blocks_at(b, k, t, 0), b->ns + mm_blocks_at(b, s, k - 1, 0));
    }
}

mm_status mm_blocks_solve(const mm_chain *chain, int64_t slot_bytes, mm_blocks *b) {
    const size_t n = (size_t)chain->n, cells = n * n * SLOTS;
    *b = (mm_blocks){.n = chain->n,
                     .slot_bytes = slot_bytes,
                     .ns = malloc(cells * sizeof *b->ns),
                     .choice = calloc(cells, sizeof *b->choice)};
    if (!b->ns || !b->choice) {
        mm_blocks_fini(b);
        return mm_fail(MM_ERR_NOMEM, "out of memory for checkpointing %d blocks", chain->n);
    }
    for (size_t i = 0; i < cells; i++) b->ns[i] = MM_BLOCKS_NEVER;
    for (int t = 0; t < b->n; t++)
        for (int s = t; s >= 0; s--) solve(b, chain, s, t);
    return MM_OK;
}

void mm_blocks_fini(mm_blocks *b) {
    free(b->ns);
    free(b->choice);
    *b = (mm_blocks){0};
}

/* ---------------------------------------------------------------- levels of the maps */

typedef struct marker {
    const mm_chains *chains;
    const mm_blocks *blocks;
    uint8_t *level, *cut;
} marker;

/* Gives maps of the stages a to b that a step after `across` reads in the forward pass the level, unless they have a
 * smaller one. */
static void mark(const marker *k, int a, int b, int across, uint8_t level) {
    const mm_stage *stages = k->chains->coarse.stages;
    for (int m = k->chains->first_map[stages[a].first]; m < k->chains->first_map[stages[b].last + 1]; m++) {
        const mm_tensor t = k->chains->maps[m];
        if (mm_graph_tensor(k->chains->schedule->graph, t)->last_forward > across && level < k->level[t])
            k->level[t] = level;
    }
}

static void mark_blocks(const marker *k, int s, int t, int m, uint8_t level) {
    const mm_chain *chain = &k->chains->coarse;
    const uint8_t deeper = level < MM_LEVEL_STAGE - 1 ? level + 1 : level;
    while (s <= t) {
        const int row = k->blocks->choice[mm_blocks_at(k->blocks, s, t, m)];
        const int end = row == MM_BLOCKS_KEEP ? s : s + row - 1, last = chain->stages[end].last;
        if (row == MM_BLOCKS_KEEP) {
            mark(k, s, s, -1, level);
            m -= slots(k->blocks, chain->stages[s].bytes);
        } else {
            mark(k, s, end, last, level);
            mark_blocks(k, s, end, m, deeper);
            m -= slots(k->blocks, mm_chain_across(chain, s, end + 1));
        }
        if (end < t) k->cut[last] = level;
        s = end + 1;
    }
}

/* ---------------------------------------------------------------- the choices */

/* Adds the choice of m slots, unless it is the last one again. */
static void choose(mm_nesting *nesting, const mm_chains *chains, const mm_blocks *blocks, int m) {
    const size_t tensors = (size_t)nesting->n_tensors, steps = (size_t)nesting->n_steps;
    marker k = {.chains = chains,
                .blocks = blocks,
                .level = nesting->level + (size_t)nesting->n * tensors,
                .cut = nesting->cut + (size_t)nesting->n * steps};
    memset(k.level, MM_LEVEL_STAGE, tensors);
    memset(k.cut, MM_LEVEL_STAGE, steps);
    mark_blocks(&k, 0, blocks->n - 1, m, 0);
    if (nesting->n == 0 || memcmp(k.level, k.level - tensors, tensors) != 0 || memcmp(k.cut, k.cut - steps, steps) != 0)
        nesting->n++;
}

/* The size of slots with which the table reaches to what keeps all maps. Each block is rounded up to a slot. */
static int64_t slot_bytes_of(const mm_chain *chain) {
    int64_t bytes = 0, most = 0;
    for (int k = 0; k < chain->n; k++) {
        const mm_stage *stage = &chain->stages[k];
        bytes += stage->bytes;
        if (stage->backward_bytes > most) most = stage->backward_bytes;
        if (stage->forward_bytes + stage->entry_bytes > most) most = stage->forward_bytes + stage->entry_bytes;
    }
    return (bytes + most) / (SLOTS - 2 - chain->n) + 1;
}

/* Choices for amounts of memory from one table: from `from` slots on, each about 3 % larger than the last. */
static void choose_from(mm_nesting *nesting, const mm_chains *chains, const mm_blocks *b, int from, int most) {
    int64_t before = MM_BLOCKS_NEVER;
    for (int m = from; m < SLOTS && nesting->n < most; m += 1 + m / 32) { /* chosen */
        const int64_t ns = b->ns[mm_blocks_at(b, 0, b->n - 1, m)];
        if (ns < before) choose(nesting, chains, b, m);
        before = ns;
    }
}

/* Two tables: one with slots of a quarter of the size, for the least quarter of the memory, and one for the rest. */
mm_status mm_blocks_choose(mm_nesting *nesting, const mm_schedule *s, int most) {
    enum { FINER = 4 };
    mm_chains chains;
    mm_blocks b;
    *nesting = (mm_nesting){.n_tensors = mm_graph_tensors(s->graph), .n_steps = mm_graph_steps(s->graph)};
    MM_TRY(mm_chains_init_blocks(&chains, s, MM_BLOCKS_MOST));
    nesting->level = malloc(((size_t)most + 1) * (size_t)nesting->n_tensors + 1);
    nesting->cut = malloc(((size_t)most + 1) * (size_t)nesting->n_steps + 1);
    mm_status status =
        nesting->level && nesting->cut ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for checkpointing blocks");
    const int64_t slot_bytes = slot_bytes_of(&chains.coarse);
    for (int factor = FINER; status == MM_OK && chains.coarse.n > 0 && factor > 0; factor /= FINER) {
        status = mm_blocks_solve(&chains.coarse, slot_bytes / factor + 1, &b);
        if (status != MM_OK) break;
        choose_from(nesting, &chains, &b, factor > 1 ? 0 : SLOTS / FINER, factor > 1 ? 2 * most / 3 : most);
        mm_blocks_fini(&b);
    }
    mm_chains_fini(&chains);
    if (status != MM_OK) mm_nesting_fini(nesting);
    return status;
}

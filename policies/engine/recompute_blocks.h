/* SPDX-License-Identifier: MIT */
/* Private to the engine: RECOMPUTE_BLOCKS, the optimal checkpointing of Beaumont, Eyraud-Dubois, Herrmann, Joly and
 * Shilova, "Optimal checkpointing for heterogeneous chains: how to train deep neural networks with limited memory"
 * (rotor, 2019; their algorithm 1), for comparison with RECOMPUTE_NESTED, which is finer.
 *
 * The forward pass is a chain of blocks, each of which reads a single map of the one before. Block s either keeps all
 * its maps, or a row of blocks s to k - 1 runs with nothing kept but what block k reads, and runs again later. Over all
 * persistent schedules (what is kept stays until its block's backward pass is done) the dynamic programme finds the one
 * with the least time within an amount of memory. Backward steps run once whatever is chosen, so their time is left
 * out. */
#ifndef POLICIES_ENGINE_RECOMPUTE_BLOCKS_H
#define POLICIES_ENGINE_RECOMPUTE_BLOCKS_H

#include "policies/engine/recompute_chain.h"
#include "policies/engine/recompute_levels.h"

/* Most blocks: neighbours are joined beyond that. Chosen: the time of the search grows with the third power. */
enum { MM_BLOCKS_MOST = 128 };

enum { MM_BLOCKS_SLOTS = 500 /* amounts of memory, as in rotor's own implementation */ };

/* The programme's table: for blocks s to t within m slots of memory, m < MM_BLOCKS_SLOTS. */
typedef struct mm_blocks {
    int n;
    int64_t slot_bytes;
    int64_t *ns;     /* [s][t][m]: least time of forward steps; MM_BLOCKS_NEVER: there is too little memory */
    uint8_t *choice; /* [s][t][m]: what gives it: MM_BLOCKS_KEEP, or k: run s to s + k - 1, and again later */
} mm_blocks;

enum { MM_BLOCKS_KEEP = 0 };
#define MM_BLOCKS_NEVER (INT64_C(1) << 60)

static inline size_t mm_blocks_at(const mm_blocks *b, int s, int t, int m) {
    return ((size_t)s * (size_t)b->n + (size_t)t) * MM_BLOCKS_SLOTS + (size_t)m;
}

/* Solves a chain of at most MM_BLOCKS_MOST stages. Bytes are rounded up to slots. MM_ERR_NOMEM. The caller frees the
 * table with mm_blocks_fini. */
MM_CHECKED mm_status mm_blocks_solve(const mm_chain *chain, int64_t slot_bytes, mm_blocks *blocks_out);
void mm_blocks_fini(mm_blocks *blocks);

/* At most `most` choices, for amounts of memory from the least that serves to what keeps all maps. They do not depend
 * on the budget. MM_ERR_NOMEM. The caller frees them with mm_nesting_fini. */
MM_CHECKED mm_status mm_blocks_choose(mm_nesting *nesting, const mm_schedule *schedule, int most);

#endif

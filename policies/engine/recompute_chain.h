/* SPDX-License-Identifier: MIT */
/* Private to the engine: the forward pass as a chain of stages, which nested recomputation keeps or runs again.
 *
 *      steps     1   2   3 | 4   5 | 6   7   8   9         stages 1-3, 4-5, 6-9 of a coarse chain
 *                1 | 2 | 3   4 | 5   6 | 7 | 8   9         each is a fine chain itself: 1 | 2 | 3, and so on */
#ifndef POLICIES_ENGINE_RECOMPUTE_CHAIN_H
#define POLICIES_ENGINE_RECOMPUTE_CHAIN_H

#include "policies/engine/recompute_cuts.h"

/* Most stages of the coarse chain, and of each of its fine chains. Chosen: one stage of 64 is 1.6 % of the network's
 * maps, and the time of the search (recompute_levels.c) grows with the third power of their number. */
enum { MM_CHAIN_COARSE = 64, MM_CHAIN_FINE = 20 };

typedef struct mm_stage {
    int first, last;        /* steps */
    int64_t ns;             /* time of its forward steps */
    int64_t cheap_ns;       /* of these, time of the cheap ones whose maps `thin_bytes` leaves out */
    int64_t bytes;          /* maps that it makes and that the backward pass reads */
    int64_t thin_bytes;     /* of these, maps that expensive layers make, or that later stages read */
    int64_t forward_bytes;  /* most that a forward step uses: maps and workspace */
    int64_t backward_bytes; /* most that its backward pass needs: all its maps, gradient maps and workspace */
    int64_t entry_bytes;    /* gradient maps alive when its backward pass begins */
} mm_stage;

typedef struct mm_chain {
    int n;
    mm_stage *stages;
    int64_t
        *across; /* [a][b], b <= n: bytes of maps that stages a to b - 1 make, and that stage b or a later one reads */
} mm_chain;

static inline int64_t mm_chain_across(const mm_chain *chain, int a, int b) {
    return chain->across[(size_t)a * ((size_t)chain->n + 1) + (size_t)b];
}

/* The coarse chain and its fine ones; the maps are in order of the steps that make them. */
typedef struct mm_chains {
    const mm_schedule *schedule;
    int n_steps;        /* up to the last forward step */
    mm_chain coarse;    /* all forward steps */
    mm_chain *fine;     /* per stage of the coarse chain */
    mm_tensor *maps;    /* those that the backward pass reads */
    int32_t *first_map; /* per step, and one more: index of the first of its maps */
} mm_chains;

/* Borrows the schedule. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_chains_init(mm_chains *chains, const mm_schedule *schedule);
/* The same with a coarse chain alone, of at most `most` stages, cut only where a single map is read across. */
MM_CHECKED mm_status mm_chains_init_blocks(mm_chains *chains, const mm_schedule *schedule, int most);
void mm_chains_fini(mm_chains *chains);

/* Whether cheap layers make the map, and no step after `last` reads it in the forward pass: it can be made again where
 * it is needed, from maps of its own stage. */
bool mm_chain_leaves_out(const mm_schedule *schedule, mm_tensor map, int last);

#endif

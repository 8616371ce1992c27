/* SPDX-License-Identifier: MIT */
/* Private to the engine: RECOMPUTE_NESTED, recomputation in as many levels as pay.
 *
 * The forward pass is a chain of stages (recompute_chain.h). Some maps between stages are kept. When the backward pass
 * comes to the stages between two of them, these run again from the first; some maps between them are kept meanwhile,
 * and so on. With checkpoints a, b, c at level 0, and d, e at level 1:
 *
 *      forward       a . . . . . b . . . . . c . . . .
 *      backward                              < < < < <      stages from c on: their maps were kept
 *                                b . . d . .                 run again from b: d is kept, and the maps after it
 *                                      < < <
 *                                b . .                       run again from b
 *                                < < <
 *
 * A dynamic programme over the chain and over memory finds which maps to keep at which level: Griewank and Walther,
 * "Revolve" (2000), for equal stages; Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal checkpointing for
 * heterogeneous chains" (rotor, 2019), for any stages. Added here: a stage may keep only what expensive layers make,
 * since cheap ones run again in little time; chains of chains, because the time of the search grows with the third
 * power of their length; and maps that cross several stages (skip connections), which count until their own backward
 * use. */
#ifndef POLICIES_ENGINE_RECOMPUTE_LEVELS_H
#define POLICIES_ENGINE_RECOMPUTE_LEVELS_H

#include "policies/engine/engine.h"

/* One choice for each of several amounts of memory, the least first. They do not depend on the budget. */
typedef struct mm_nesting {
    int n, n_tensors, n_steps;
    uint8_t
        *level;   /* [choice][tensor]: 0: kept from the forward pass on. Else, made again and then there as long as the
                       backward pass is between two cuts of smaller levels */
    uint8_t *cut; /* [choice][step]: level of the cut after the step; MM_LEVEL_STAGE: there is none */
} mm_nesting;

/* Finds at most `most` choices. MM_ERR_NOMEM. The caller frees them with mm_nesting_fini. */
MM_CHECKED mm_status mm_nesting_init(mm_nesting *nesting, const mm_schedule *schedule, int most);
void mm_nesting_fini(mm_nesting *nesting);

static inline const uint8_t *mm_nesting_levels(const mm_nesting *nesting, int choice) {
    return nesting->level + (size_t)choice * (size_t)nesting->n_tensors;
}

static inline const uint8_t *mm_nesting_cuts(const mm_nesting *nesting, int choice) {
    return nesting->cut + (size_t)choice * (size_t)nesting->n_steps;
}

#endif

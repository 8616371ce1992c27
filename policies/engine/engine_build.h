/* SPDX-License-Identifier: MIT */
/* Private to the engine: a plan while it is built, step by step, from the maps that are acted on. */
#ifndef POLICIES_ENGINE_ENGINE_BUILD_H
#define POLICIES_ENGINE_ENGINE_BUILD_H

#include "policies/engine/body_pools.h"
#include "policies/engine/engine_gradients.h"
#include "policies/engine/engine_maps.h"

typedef struct mm_engine {
    const mm_engine_config *config;
    mm_schedule schedule;
    mm_maps maps;
    mm_gradients gradients;
    int mask;             /* the codec of masks, in the facts */
    int64_t pinned_bytes; /* the limit */
    mm_body_pools pools;
    int issued; /* entries of the queue that have had their turn */
    /* Groups of the map that was evicted last. They live until the next eviction ends, so that the computation does not
     * wait for an eviction in flight. */
    int32_t holding[3];
    int n_holding;
    uint8_t *made;               /* per tensor: it was made again, and is there */
    uint8_t *wanted;             /* per tensor: it is to be made again for the next step */
    uint8_t *again;              /* per step: it is to run again for that */
    int first_again, last_again; /* the first and the last such step */
    uint8_t *low;     /* RECOMPUTE_NESTED: per step of them, the smallest level of the cuts between it and the last */
    mm_tensor *wants; /* the wanted tensors */
    int n_wants;
    /* Per step: the last node of an eviction that it must wait for (leave_steps); -1: none. */
    int *leaving;
    int *node_of; /* per step: its node */
} mm_engine;

/* Makes the plan without placing the regions that are placed by lifetime. Borrows the arguments. The caller frees it
 * with mm_engine_fini. MM_ERR_INFEASIBLE: it needs more than config->k buffers; MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_engine_make(mm_engine *engine, const mm_survey *survey, const mm_engine_config *config,
                                    const mm_selection *selection, mm_bounds *bounds_out);
void mm_engine_fini(mm_engine *engine);

#endif

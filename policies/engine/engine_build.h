/* SPDX-License-Identifier: MIT */
/* Private to the engine: a plan while it is built, step by step. */
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
    int mask;             /* index of the mask codec in the facts */
    int64_t pinned_bytes; /* limit of pinned memory */
    mm_body_pools pools;
    int issued; /* number of entries of maps.queue that were fetched or skipped */
    /* Groups of the map that was evicted last. They live until the next eviction ends, so that the computation does not
     * wait for an eviction in flight. */
    int32_t holding[3];
    int n_holding;
    uint8_t *made;               /* per tensor: it was made again, and is there */
    uint8_t *wanted;             /* per tensor: it is to be made again for the next step */
    uint8_t *again;              /* per step: it is to run again, to make wanted tensors */
    int first_again, last_again; /* the first and the last such step */
    uint8_t *low;                /* RECOMPUTE_NESTED: per step from first_again on, the smallest level of the cuts up to
                         last_again */
    mm_tensor *wants;            /* the wanted tensors */
    int n_wants;
    uint8_t *is_lent; /* per tensor: a brief map that is there for steps that run again now */
    mm_tensor *lent;  /* these maps */
    int n_lent;
    /* Per step: the last node of an eviction that it must wait for (leave_steps); -1: none. */
    int *leaving;
    int *node_of; /* per step: its node */
} mm_engine;

/* Chooses the maps. Borrows the arguments. The caller frees it with mm_engine_fini. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_engine_begin(mm_engine *engine, const mm_survey *survey, const mm_engine_config *config,
                                     const mm_selection *selection);
/* Then builds the plan, without placing the regions that are placed by lifetime. MM_ERR_INFEASIBLE: it needs more than
 * config->k buffers; MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_engine_build(mm_engine *engine, mm_bounds *bounds_out);

/* Both; frees it on failure. */
MM_CHECKED mm_status mm_engine_make(mm_engine *engine, const mm_survey *survey, const mm_engine_config *config,
                                    const mm_selection *selection, mm_bounds *bounds_out);
void mm_engine_fini(mm_engine *engine);

#endif

/* SPDX-License-Identifier: MIT */
/* The pools of a plan that the engine builds: all bodies on the device lie in one, all in pinned memory in another. */
#ifndef POLICIES_ENGINE_BODY_POOLS_H
#define POLICIES_ENGINE_BODY_POOLS_H

#include "policies/schedule/schedule.h"

typedef struct mm_body_pools {
    struct {
        int segment, group;                 /* segment -1: no code has needed it yet */
        int64_t reserve_bytes, bound_bytes; /* sums over its codes, each aligned */
    } pool[2];                              /* on the device, in pinned memory */
} mm_body_pools;

/* Puts the body of the code in segment `code` into a pool. False: out of memory. */
bool mm_body_pools_add(mm_body_pools *pools, mm_schedule *schedule, int code, bool pinned);

/* Sizes the pools when all bodies are in them, and all else that lies in pinned memory is there. The device's pool has
 * the reserve, and a spill for the rest. Where pinned_bytes, the limit of pinned memory, has no room for that spill,
 * the spill takes what is left, and the pool is so much larger. A pool in pinned memory has room for all.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_body_pools_size(mm_body_pools *pools, mm_schedule *schedule, int64_t pinned_bytes);

#endif

/* SPDX-License-Identifier: MIT */
/* Pools for the bodies of codes of variable size: one for all bodies on the device, one for all in pinned memory. */
#ifndef POLICIES_ENGINE_BODY_POOLS_H
#define POLICIES_ENGINE_BODY_POOLS_H

#include "policies/schedule/schedule.h"

typedef struct mm_body_pools {
    struct {
        int segment, group;                 /* segment -1: no code has needed it yet */
        int64_t reserve_bytes, bound_bytes; /* sums over its codes, each aligned */
    } pool[2];                              /* [0]: on the device; [1]: in pinned memory */
} mm_body_pools;

/* Puts the body of the code in segment `code` into a pool. False: out of memory. */
bool mm_body_pools_add(mm_body_pools *pools, mm_schedule *schedule, int code, bool pinned);

/* Sizes the pools. Call it once all bodies, and all else in pinned memory, have been added. The device's pool gets the
 * codes' reserves, and a spill in pinned memory for the rest. If pinned_bytes, the limit of pinned memory, has no room
 * for the whole spill, the device's pool gets the difference. The pool in pinned memory has room for all its bodies.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_body_pools_size(mm_body_pools *pools, mm_schedule *schedule, int64_t pinned_bytes);

#endif

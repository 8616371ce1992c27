/* SPDX-License-Identifier: MIT */
/* Private to the engine: gradient maps of which lean swapping leaves nothing on the device between backward steps that
 * are far apart, as that of a residual sum is while its block is gone through.
 *
 *      write   >g . . . . . <g   read       > a copy to pinned memory, < one back, right before the step */
#ifndef POLICIES_ENGINE_ENGINE_GRADIENTS_H
#define POLICIES_ENGINE_ENGINE_GRADIENTS_H

#include "policies/schedule/schedule.h"

/* Steps from one reader of a map to the next from which on lean swapping leaves nothing of it between them; chosen. */
enum { MM_FAR_STEPS = 4 };

typedef struct mm_gradients {
    mm_schedule *schedule;
    const uint8_t *leave;    /* per tensor: it may leave */
    int32_t *node, *segment; /* per tensor: the copy to pinned memory, and what that wrote; -1: it is on the device */
} mm_gradients;

/* Borrows the arguments. MM_ERR_NOMEM. The caller frees it with mm_gradients_fini. */
MM_CHECKED mm_status mm_gradients_init(mm_gradients *gradients, mm_schedule *schedule, const uint8_t *leave);
void mm_gradients_fini(mm_gradients *gradients);

/* Adds copies back of what the step uses; to be called right before the step is added. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_gradients_return(mm_gradients *gradients, int step);

/* Adds copies to pinned memory of what the step, which is `node`, uses and no near step does. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_gradients_go(mm_gradients *gradients, int step, int node);

#endif

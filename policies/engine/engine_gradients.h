/* SPDX-License-Identifier: MIT */
/* Private to the engine: gradient maps that lean swapping moves out between two backward steps that are far apart, such
 * as the gradient of a residual sum while the backward pass is inside the block.
 *
 *      write   >g . . . . . <g   read       > a copy to pinned memory, < one back, right before the step */
#ifndef POLICIES_ENGINE_ENGINE_GRADIENTS_H
#define POLICIES_ENGINE_ENGINE_GRADIENTS_H

#include "policies/schedule/schedule.h"

/* Lean swapping moves a map out between two readers that are at least so many steps apart; chosen. */
enum { MM_FAR_STEPS = 4, MM_NEAR_STEPS = 2 /* of brief maps (mm_assignment.brief) */ };

typedef struct mm_gradients {
    mm_schedule *schedule;
    const uint8_t *leave;    /* per tensor: how far apart two steps must be for it to be moved out; 0: it stays */
    int32_t *node, *segment; /* per tensor: its copy to pinned memory, and the segment written; -1: it is on the
                                device */
} mm_gradients;

/* Borrows the arguments. MM_ERR_NOMEM. The caller frees it with mm_gradients_fini. */
MM_CHECKED mm_status mm_gradients_init(mm_gradients *gradients, mm_schedule *schedule, const uint8_t *leave);
void mm_gradients_fini(mm_gradients *gradients);

/* Copies back the gradient maps that the step uses. Call it right before the step is added. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_gradients_return(mm_gradients *gradients, int step);

/* Copies to pinned memory the gradient maps that the step, added at `node`, uses and no near step does.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_gradients_go(mm_gradients *gradients, int step, int node);

#endif

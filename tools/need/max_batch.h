/* SPDX-License-Identifier: MIT */
/* The largest batch whose plan fits a budget. */
#ifndef TOOLS_NEED_MAX_BATCH_H
#define TOOLS_NEED_MAX_BATCH_H

#include "tools/need/need.h"

enum { BATCH_MAX = 1 << 20 }; /* chosen, far above any that trains well */

typedef struct max_batch {
    int64_t batch;      /* the largest that fits; 0: not even one image fits */
    int64_t next_batch; /* the next larger one; 0: none up to BATCH_MAX */
    int64_t next_bytes; /* peak of its plan: above the budget, unless pinned memory is what is missing */
} max_batch;

/* Finds the batch by planning: upwards in growing strides until a batch does not fit, then by bisection. The bytes of
 * a plan grow with the batch, except for gaps of its placement; so the batch after the first that does not fit is
 * tried too, and the search goes on from there if it fits. A backend that times algorithms is first asked for bounds,
 * so that few batches are timed. The case's own batch does not count; its facts, if any, are a machine's rates. */
MM_CHECKED mm_status max_batch_find(const need_case *c, max_batch *found_out);

#endif

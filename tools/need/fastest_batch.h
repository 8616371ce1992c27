/* SPDX-License-Identifier: MIT */
/* The batch with the most images, or tokens, a second whose plan fits a budget. */
#ifndef TOOLS_NEED_FASTEST_BATCH_H
#define TOOLS_NEED_FASTEST_BATCH_H

#include "tools/need/largest.h"

typedef struct batch_tried {
    int64_t batch;
    int64_t ns;       /* predicted time of an iteration; INT64_MAX: no plan fits, or it was not planned */
    int64_t bound_ns; /* no plan takes less (mm/core/time/time_bound.h); INT64_MAX: unknown */
    bool planned;     /* false: its bound says that it is not worth planning */
} batch_tried;

enum { BATCHES_TRIED = 48 }; /* 22 of the grid, one of liveness, and FINER of each round (fastest_batch.c) */

typedef struct fastest_batch {
    int64_t batch;                    /* 0: not even one image fits */
    largest most;                     /* the largest batch that fits */
    batch_tried tried[BATCHES_TRIED]; /* smallest first */
    int n;
} fastest_batch;

/* Images a second; 0: not planned, or no plan fits. */
static inline double batch_tried_speed(const batch_tried *t) {
    return t->planned && t->ns < INT64_MAX ? (double)t->batch * 1e9 / (double)t->ns : 0;
}

/* Finds the batch by planning: the largest that fits, its half, quarter and so on, and the largest whose maps all fit;
 * then, speeds being no monotone function of the batch, batches on both sides of the best so far, until neighbours are
 * less than a tenth apart. A batch that by its bound is not faster by a hundredth is not planned. The case's own batch
 * is ignored. Its facts must be a machine's. Errors of largest_batch_find. */
MM_CHECKED mm_status fastest_batch_find(const need_case *c, fastest_batch *found_out);

#endif

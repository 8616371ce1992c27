/* SPDX-License-Identifier: MIT */
/* The largest batch whose plan fits a budget. */
#ifndef TOOLS_NEED_MAX_BATCH_H
#define TOOLS_NEED_MAX_BATCH_H

#include "tools/need/need.h"

enum { BATCH_MAX = 1 << 20 }; /* chosen: far above any batch that trains well */

typedef struct max_batch {
    int64_t batch;      /* the largest that fits; 0: not even one image fits */
    int64_t next_batch; /* the next larger batch, which does not fit; 0: none up to BATCH_MAX */
    int64_t next_bytes; /* peak of next_batch's plan: above the budget, unless pinned memory is too small */
} max_batch;

/* Finds the batch by planning: tries growing batches until one does not fit, then bisects. A plan's bytes grow with the
 * batch, except for gaps in its placement. So the batch after the first that does not fit is tried too, and the search
 * goes on from there if it fits. If the backend times algorithms, the search first uses lower bounds of their
 * workspaces, so that few are timed. The case's own batch is ignored; its facts must be a machine's, or NULL. */
MM_CHECKED mm_status max_batch_find(const need_case *c, max_batch *found_out);

#endif

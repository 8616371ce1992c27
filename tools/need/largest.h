/* SPDX-License-Identifier: MIT */
/* The largest batch, or the longest context, whose plan fits a budget. */
#ifndef TOOLS_NEED_LARGEST_H
#define TOOLS_NEED_LARGEST_H

#include "tools/need/need.h"

/* Chosen: far above any batch or context that trains well. CONTEXT_STEP: tokens; contexts are its multiples, as kernels
 * go by tiles of 64 tokens. */
enum { BATCH_MAX = 1 << 20, CONTEXT_MAX = 1 << 20, CONTEXT_STEP = 64 };

/* Images of a batch, or tokens of a context. */
typedef struct largest {
    int64_t n;          /* the largest that fits; 0: not even the smallest fits */
    int64_t next;       /* the next larger one, which does not fit; 0: none up to the limit above */
    int64_t next_bytes; /* peak of next's plan: above the budget, unless pinned memory is too small */
} largest;

/* Finds the batch by planning: tries growing batches until one does not fit, then bisects. A plan's bytes grow with the
 * batch, except for gaps in its placement. So the batch after the first that does not fit is tried too, and the search
 * goes on from there if it fits. If the backend times algorithms, the search first uses lower bounds of their
 * workspaces, so that few are timed. The case's own batch is ignored; its facts must be a machine's, or NULL. */
MM_CHECKED mm_status largest_batch_find(const need_case *c, largest *found_out);

/* The same for the context of a network of tokens, in steps of CONTEXT_STEP, at the case's batch, which is computed
 * whole. A table of positions grows with the context. Errors of nets_net_with_tokens. */
MM_CHECKED mm_status largest_context_find(const need_case *c, largest *found_out);

#endif

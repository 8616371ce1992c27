/* The largest batch whose plan fits a budget. */
#ifndef TOOLS_MAX_BATCH_H
#define TOOLS_MAX_BATCH_H

#include "nets/net.h"
#include "tools/facts_source.h"
#include "tools/target.h"

enum { BATCH_MAX = 1 << 20 };

typedef struct max_batch {
    int64_t batch;      /* 0: not even one image fits */
    int64_t next_batch; /* the next larger; 0: none up to BATCH_MAX */
    int64_t next_bytes; /* what its plan needs: more than the budget, or it is pinned memory that does not do */
} max_batch;

/* pinned_bytes 0: no limit. Exact, by planning: upwards in growing strides until a batch does not fit, then between the
 * two until they are neighbours; with a backend that times algorithms first by its bound, so that few batches are
 * timed. What a plan needs grows with the batch but for the gaps that its placement leaves, so the batch after the
 * first that does not fit is tried too, and the search goes on from there if it fits. facts: a machine's rates to
 * plan with, of any batch, or NULL. */
MM_CHECKED mm_status max_batch_find(const nets_net *net, const target *target, const char *policy, int64_t budget_bytes,
                                    int64_t pinned_bytes, const facts_source *facts, max_batch *found_out);

#endif

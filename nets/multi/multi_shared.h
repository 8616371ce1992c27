/* SPDX-License-Identifier: MIT */
/* What ranks make of the tensors that graphs of nets share (nets_ranks): sums of gradients, of the loss and of counts
 * of correct labels; means of running statistics. */
#ifndef NETS_MULTI_MULTI_SHARED_H
#define NETS_MULTI_MULTI_SHARED_H

#include "nets/multi/multi.h"

/* For nets_ranks.fns; its ctx is the multi. */
extern const mm_gradient_fns multi_gradient_fns;
/* For nets_ranks.begun. */
int64_t multi_shared_begun(void *ctx);
/* For nets_ranks.agree. */
MM_CHECKED mm_status multi_shared_agree(void *ctx, int32_t *word);

#endif

/* SPDX-License-Identifier: MIT */
/* All-reduces the tensors of nets' graphs through a communicator: sums of gradients, of the loss and of counts of
 * correct labels; means of running statistics; and what divided states need. */
#ifndef NETS_COMM_COMM_ALLREDUCE_H
#define NETS_COMM_COMM_ALLREDUCE_H

#include "nets/comm/comm.h"
#include "nets/exchange.h"

/* For nets_allreduce.fns; its ctx is the communicator. */
extern const mm_allreduce_fns comm_allreduce_fns;
/* For nets_allreduce.exchange. */
extern const nets_exchange comm_exchange;
/* For nets_allreduce.begun. */
int64_t comm_allreduce_begun(void *ctx);
/* For nets_allreduce.agree. */
MM_CHECKED mm_status comm_allreduce_agree(void *ctx, int32_t *word);

#endif

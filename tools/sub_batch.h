/* --sub-batch: how many images of a batch are computed at a time (nets_exec_create_sub). */
#ifndef TOOLS_SUB_BATCH_H
#define TOOLS_SUB_BATCH_H

#include "tools/target.h"

/* Reads the option: "auto" gives 0, a number itself, NULL the batch. MM_ERR_INVALID: neither, or not from 1 to the
 * batch. */
MM_CHECKED mm_status sub_batch_parse(const char *text, int64_t batch, int64_t *sub_batch_out);

/* Chooses it for a budget as moDNN does (Chen et al., equation 8): the largest in which any 15 % of the steps in a row
 * fit together, down to a multiple of 64, or to 32, 16 and so on; or a larger one in which all maps fit. From there it is
 * halved until the policy's plans fit.
 * MM_ERR_INFEASIBLE: they do not even for one image; the message has what they need then. */
MM_CHECKED mm_status sub_batch_choose(const nets_net *net, int64_t batch, const target *target, const char *policy,
                                      int64_t budget_bytes, int64_t pinned_bytes, int64_t *sub_batch_out);

#endif

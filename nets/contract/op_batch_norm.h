/* SPDX-License-Identifier: MIT */
/* Shared by batch norm's implementations. */
#ifndef NETS_CONTRACT_OP_BATCH_NORM_H
#define NETS_CONTRACT_OP_BATCH_NORM_H

#include "nets/contract/op.h"

#define NETS_STATISTICS_BITS (NETS_ROLE_BIT(NETS_SAVED_MEAN) | NETS_ROLE_BIT(NETS_SAVED_VAR))

/* Whether a batch norm's output can be computed again in its backward, bit for bit. */
static inline bool nets_knows_normalised(const nets_op_args *args) {
    const uint64_t needed = NETS_ROLE_BIT(NETS_X) | NETS_STATISTICS_BITS;
    return (args->exact_roles & needed) == needed;
}

#endif

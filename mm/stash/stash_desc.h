/* SPDX-License-Identifier: MIT */
/* Describes what a tensor's bytes are in memory. */
#ifndef MM_STASH_STASH_DESC_H
#define MM_STASH_STASH_DESC_H

#include "mm/stash/stash_order.h"

/* Describes the bytes of a tensor. MM_ERR_INVALID: its dimensions, strides or flags are not legal. */
MM_CHECKED mm_status mm_stash_desc_of(const mm_stash_tensor *tensor, mm_stash_desc *kind_out);

/* The producer's name, for messages. */
static inline const char *mm_stash_producer(const mm_stash_desc *kind) {
    return *kind->producer ? kind->producer : "an unknown producer";
}

#endif

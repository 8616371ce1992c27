/* SPDX-License-Identifier: MIT */
/* What an order needs if it runs unplanned. */
#ifndef MM_STASH_STASH_NEED_H
#define MM_STASH_STASH_NEED_H

#include "mm/stash/stash_order.h"

/* A budget from `least` on in which an iteration of this order runs unplanned (stash_unplanned.c), while nothing else
 * is in the arena; near the least one. *bytes_out: a multiple of MM_ALIGN. MM_ERR_NOMEM. O(events * entries in the
 * arena), for each budget that is tried. */
MM_CHECKED mm_status mm_stash_need(const mm_order *order, int64_t least, int64_t *bytes_out);

#endif

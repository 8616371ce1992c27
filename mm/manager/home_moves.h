/* SPDX-License-Identifier: MIT */
/* The homes of a manager's persistent tensors: where they are, and moving them between iterations. */
#ifndef MM_MANAGER_HOME_MOVES_H
#define MM_MANAGER_HOME_MOVES_H

#include "mm/manager/manager.h"

/* The address of a persistent tensor's home. */
static inline uint8_t *mm_home_address(const mm_manager *m, const mm_persistent *entry) {
    return (uint8_t *)mm_pool_base(entry->place.pinned ? m->pinned : m->pool) + entry->place.offset;
}

/* Moves all persistent tensors to these homes, with their values, and zeroes those that are being added. The streams
 * must be idle. MM_ERR_NOMEM: nothing changed. MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_homes_move(mm_manager *m, const mm_homes *homes);

#endif

/* SPDX-License-Identifier: MIT */
/* Entries that are placed at run time. The oldest leave the arena first, because a backward pass needs them last. */
#ifndef MM_STASH_STASH_UNPLANNED_H
#define MM_STASH_STASH_UNPLANNED_H

#include "mm/stash/stash_table.h"

/* Copies the caller's bytes into the arena. On failure the slot has no memory. MM_ERR_INFEASIBLE: entries that are held
 * (got and not released) or that the caller keeps leave no room; stash->refused then has the details. MM_ERR_NOMEM,
 * MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_stash_unplanned_put(mm_stash *stash, mm_stash_slot *slot, const void *data);
/* Brings the bytes into the arena, if they are not there. Fails like mm_stash_unplanned_put; the bytes then stay where
 * they are. */
MM_CHECKED mm_status mm_stash_unplanned_bring(mm_stash *stash, mm_stash_slot *slot);
/* Frees all memory of the slot. */
void mm_stash_unplanned_free(mm_stash *stash, mm_stash_slot *slot);
/* Takes over n slots (some may be NULL), whose bytes lie in the arena, in pinned memory or on the disk already, in
 * pieces that no other entry has. Call mm_stash_unplanned_reserve before. */
void mm_stash_unplanned_take_over(mm_stash *stash, mm_stash_slot *const *slots, int n);
/* Reserves memory for the bookkeeping of n slots that are taken over. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stash_unplanned_reserve(mm_stash *stash, int n);
/* Moves all entries to ordinary host memory, so that a plan may have the arena, pinned memory and the disk. False: an
 * entry is held, a copy failed, or there is no host memory. */
bool mm_stash_unplanned_clear(mm_stash *stash);

#endif

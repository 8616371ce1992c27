/* SPDX-License-Identifier: MIT */
/* Begins and ends iterations, and passes events to their plan, if they follow one. */
#ifndef MM_STASH_STASH_ITERATION_H
#define MM_STASH_STASH_ITERATION_H

#include "mm/stash/stash_table.h"

/* Called before a put: begins an iteration, if none is under way. MM_ERR_INFEASIBLE as mm_stash_planned_try. */
MM_CHECKED mm_status mm_stash_begin(mm_stash *stash, const mm_stash_desc *first);
/* Puts a new entry. On failure the entry has no memory. */
MM_CHECKED mm_status mm_stash_take_in(mm_stash *stash, mm_stash_slot *slot, void *data);
/* Makes the bytes of an entry that nobody holds available at slot->place; if the caller keeps them, they are at
 * slot->kept. */
MM_CHECKED mm_status mm_stash_serve(mm_stash *stash, mm_stash_slot *slot);
/* Called when nobody holds the entry any more. If it is dropped, its memory is freed; if it was the last entry, the
 * iteration ends. */
void mm_stash_unhold(mm_stash *stash, mm_stash_slot *slot);

#endif

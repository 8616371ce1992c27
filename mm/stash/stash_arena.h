/* SPDX-License-Identifier: MIT */
/* The memory of the arena: how much of it is usable, and how much was touched. */
#ifndef MM_STASH_STASH_ARENA_H
#define MM_STASH_STASH_ARENA_H

#include "mm/stash/stash_plan.h"

/* Makes the first `bytes` of the arena usable, and gives the rest back. No entry may lie in the arena. MM_ERR_NOMEM,
 * MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_stash_arena_limit(mm_stash *stash, int64_t bytes);
/* Gives the pages back to the system that unplanned iterations touched from `bytes` on, if they can be used again
 * without a call, as on the host. No entry may lie in the arena. MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_stash_arena_give_back(mm_stash *stash, int64_t bytes);
/* Updates stats.peak_bytes with what the arena and callers take now. */
void mm_stash_note_peak(mm_stash *stash);
/* Call it before an iteration that follows a plan, or (plan NULL) runs without: bytes that iterations with a plan touch
 * are counted apart from those of iterations without one. No-op unless measure_touched. */
MM_CHECKED mm_status mm_stash_cover(mm_stash *stash, const mm_stash_plan *plan);
/* mm_stash_touched_get, for the call that is inside. */
MM_CHECKED mm_status mm_stash_touched(mm_stash *stash, mm_touched *touched_out);

#endif

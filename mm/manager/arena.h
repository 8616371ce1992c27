/* SPDX-License-Identifier: MIT */
/* The arena's memory: gives it back to the system, takes it back, and counts touched bytes. */
#ifndef MM_MANAGER_ARENA_H
#define MM_MANAGER_ARENA_H

#include "mm/manager/manager.h"

/* Gives the memory above the limit of plans, and above the persistent tensors, back to the system. */
void mm_arena_trim(mm_manager *manager);
/* Takes memory back from the system, so that the arena has at least `bytes`. MM_ERR_NOMEM. On failure nothing
 * changed. */
MM_CHECKED mm_status mm_arena_extend(mm_manager *manager, int64_t bytes);
/* Counts touched bytes of the whole arena, including memory that was given back. Between iterations. */
MM_CHECKED mm_status mm_arena_touched(mm_manager *manager, mm_touched *touched_out);

#endif

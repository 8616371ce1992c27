/* The arena's memory: how much of it is there, and what of it was touched. */
#ifndef MM_ARENA_H
#define MM_ARENA_H

#include "mm/manager.h"

/* Gives back to the system what lies above the limit of plans, and above the persistent tensors. */
void mm_arena_trim(mm_manager *manager);
/* Takes memory back from the system, so that there are `bytes`. On failure nothing changed. */
MM_CHECKED mm_status mm_arena_extend(mm_manager *manager, int64_t bytes);
/* What was touched of all of it, what was given back included. Between iterations. */
MM_CHECKED mm_status mm_arena_touched(mm_manager *manager, mm_touched *touched_out);

#endif

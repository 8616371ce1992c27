/* SPDX-License-Identifier: MIT */
/* An iteration leaves its plan. */
#ifndef MM_STASH_STASH_OFF_PLAN_H
#define MM_STASH_STASH_OFF_PLAN_H

#include "mm/mm.h"

/* Makes the iteration unplanned from now on. Entries whose bytes cannot be read, because of a device fault, are
 * lost. */
void mm_stash_go_off_plan(mm_stash *stash);

#endif

/* SPDX-License-Identifier: MIT */
/* The functions of persistent.c for the manager's other files. Its other functions are calls of mm.h. */
#ifndef MM_MANAGER_PERSISTENT_H
#define MM_MANAGER_PERSISTENT_H

#include "mm/manager/manager.h"

/* Ends an addition to the table of persistent tensors, which had `entries` entries before. With MM_OK the new entries
 * stay; with a failure they are removed. Returns `status`. */
MM_CHECKED mm_status mm_persistent_commit(mm_manager *manager, int entries, mm_status status);

#endif

/* What persistent.c has for the rest of the session; its calls are in mm.h. */
#ifndef MM_PERSISTENT_H
#define MM_PERSISTENT_H

#include "mm/manager.h"

/* Ends an addition to the directory that began when it had so many entries: with MM_OK the new ones stay and count,
 * with a failure they go. Returns `status`. */
MM_CHECKED mm_status mm_persistent_settle(mm_manager *manager, int entries, mm_status status);

#endif

/* The values (mm.h: MM_VALUES): one persistent tensor whose bytes the CPU changes between iterations. They are copied
 * to the device on the compute stream, before the iteration that they are for. The tensor's address never changes, so
 * recordings can read it. */
#ifndef MM_VALUES_H
#define MM_VALUES_H

#include "mm/manager.h"

/* Sends the values of the iteration that is about to begin, if a graph declares MM_VALUES. `call`: the user's call, for
 * messages. Fails if enqueuing fails, or with the failure of an earlier iteration, ended without waiting, for which it
 * had to wait. No iteration is running after a failure. */
MM_CHECKED mm_status mm_manager_send_values(mm_manager *manager, const char *call);

#endif

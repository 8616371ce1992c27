/* The values (mm.h: MM_VALUES): one persistent tensor whose bytes the host changes between iterations. What changes goes to
 * the device on the compute stream, ahead of the iteration that it is for: recordings read it where it always lies. */
#ifndef MM_VALUES_H
#define MM_VALUES_H

#include "mm/manager.h"

/* Sends the values of the iteration that is about to begin, if any graph declares some. `call`: the user's, for messages.
 * Fails with a failure of iterations that were ended without waiting if it had to wait for them, and where enqueuing
 * fails: no iteration is running then. */
MM_CHECKED mm_status mm_manager_send_values(mm_manager *manager, const char *call);

#endif

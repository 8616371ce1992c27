/* SPDX-License-Identifier: MIT */
/* What the CPU changes between iterations: the values (mm.h: MM_VALUES), which are one persistent tensor; and, of each
 * graph, the block that its codecs read (pipeline/codec/code_block.h). Both are copied to the device on the compute
 * stream, before the iteration that they are for. Their addresses stay as long as recordings do, so recordings can read
 * them. */
#ifndef MM_MANAGER_VALUES_H
#define MM_MANAGER_VALUES_H

#include "mm/manager/manager.h"

/* Sends the values of the iteration of that graph that is about to begin, if a graph declares MM_VALUES, and the
 * graph's block, if it has one; `exactly`: with bounds of 0. `call`: the user's call, for messages. Fails if enqueuing
 * fails, or with the failure of an earlier iteration, ended without waiting, for which it had to wait. No iteration is
 * running after a failure. */
MM_CHECKED mm_status mm_manager_send_values(mm_manager *manager, const mm_ready *ready, bool exactly, const char *call);

#endif

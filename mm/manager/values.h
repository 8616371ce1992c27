/* SPDX-License-Identifier: MIT */
/* Sends to the device the numbers that the CPU changes between iterations: the values (mm.h: MM_VALUES), which are one
 * persistent tensor; and, for each graph, the block of numbers that its codecs read (pipeline/codec/code_block.h). Both
 * are copied on the compute stream, before the iteration that they are for. While a recording exists, their addresses
 * do not change, so the recording can read them. */
#ifndef MM_MANAGER_VALUES_H
#define MM_MANAGER_VALUES_H

#include "mm/manager/manager.h"

/* Called when an iteration of `ready` is about to begin: sends the values, if a graph declares MM_VALUES, and the block
 * of the graph, if it has one. exactly: all error bounds in the block are 0. call: the user's call, for messages.
 * Returns a failure to enqueue, or the failure of an earlier iteration (ended without waiting) for which it had to
 * wait. After a failure, no iteration is running. */
MM_CHECKED mm_status mm_manager_send_values(mm_manager *manager, const mm_ready *ready, bool exactly, const char *call);

#endif

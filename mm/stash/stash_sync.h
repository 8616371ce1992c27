/* SPDX-License-Identifier: MIT */
/* Orders work between the callers' streams and the stash's own stream. */
#ifndef MM_STASH_STASH_SYNC_H
#define MM_STASH_STASH_SYNC_H

#include "mm/device/contract/device.h"

/* Makes the stash's stream wait for what the caller has enqueued on `stream` so far. */
MM_CHECKED mm_status mm_stash_sync_enter(mm_stash *stash, void *stream);
/* Makes the caller's stream wait for all that is enqueued on the stash's stream so far. */
MM_CHECKED mm_status mm_stash_sync_exit(mm_stash *stash, void *stream);
/* Makes the stash's stream wait for the event. */
MM_CHECKED mm_status mm_stash_sync_wait(mm_stash *stash, mm_event *event);
MM_CHECKED mm_status mm_stash_sync_copy(mm_stash *stash, void *dst, const void *src, int64_t bytes, mm_copy_kind kind);
/* Blocks until the stash's stream has run all that is enqueued. */
MM_CHECKED mm_status mm_stash_sync_drain(mm_stash *stash);

#endif

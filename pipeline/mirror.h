/* A small block of host memory with a mirror on the device, which is brought up to date in stream order: work that is
 * enqueued before sees the old bytes, work that is enqueued behind sees the new ones. The bytes pass through pinned memory,
 * so that they can be changed again at once. */
#ifndef PIPELINE_MIRROR_H
#define PIPELINE_MIRROR_H

#include "mm/device/device.h"

typedef struct mm_mirror mm_mirror;

/* Chosen: so many sends may be on their way at a time. One more waits for the first of them. */
enum { MM_MIRROR_AHEAD = 8 };

/* `target`: `bytes` (> 0) of device memory, borrowed. The host's bytes are zero. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_mirror_create(mm_device *device, void *target, int64_t bytes, mm_mirror **mirror_out);
/* Nothing that was sent may be on its way. NULL is legal. */
void mm_mirror_destroy(mm_mirror *mirror);

/* The host's bytes, for the caller to change. They are the mirror's. */
void *mm_mirror_data(mm_mirror *mirror);

/* Enqueues a copy of the host's bytes, as they are now, to the device. Not while the stream is captured. Fails where
 * enqueuing does, or with the failure of an earlier send that it had to wait for. One thread at a time. */
MM_CHECKED mm_status mm_mirror_send(mm_mirror *mirror, mm_stream *stream);

#endif

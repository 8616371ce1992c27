/* SPDX-License-Identifier: MIT */
/* Upload: a small block of host memory with a copy on the device that is updated in stream order: work enqueued before
 * a send sees the old bytes, work enqueued after it the new ones. A send copies the bytes to pinned memory, so they may
 * be changed again at once. */
#ifndef PIPELINE_UPLOAD_H
#define PIPELINE_UPLOAD_H

#include "mm/device/contract/device.h"

typedef struct mm_upload mm_upload;

/* How many sends may be under way at a time; a further send waits until the oldest has ended. Chosen. */
enum { MM_UPLOADS_AHEAD = 8 };

/* `target` is device memory of `bytes` (> 0), borrowed. The host's bytes start as zero. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_upload_create(mm_device *device, void *target, int64_t bytes, mm_upload **mirror_out);
/* No send may be under way. NULL is legal. */
void mm_upload_destroy(mm_upload *mirror);

/* The host's bytes, for the caller to change. The upload owns them. */
void *mm_upload_data(mm_upload *mirror);

/* Later sends go to `target`, of as many bytes: for when the block on the device has moved. */
void mm_upload_retarget(mm_upload *mirror, void *target);

/* Enqueues a copy of the host's bytes, as they are now, to the device. The stream must not be captured. Fails if
 * enqueuing fails, or with the failure of an earlier send for which it had to wait. One thread at a time may call
 * it. */
MM_CHECKED mm_status mm_upload_send(mm_upload *mirror, mm_stream *stream);

#endif

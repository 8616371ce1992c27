/* SPDX-License-Identifier: MIT */
/* The host device's launcher: runs C functions on a host stream. For host ops, host codecs and tests only. */
#ifndef MM_DEVICE_HOST_DEVICE_HOST_H
#define MM_DEVICE_HOST_DEVICE_HOST_H

#include "mm/device/contract/device.h"
#include "mm/device/host/host_pool.h"

enum { MM_HOST_ARG_CAPACITY = 256 };

/* Enqueues fn(arg), which runs on the stream's thread. `arg` (arg_bytes <= MM_HOST_ARG_CAPACITY) is copied into the
 * queue, aligned to 16. If fn returns a status other than MM_OK (set with mm_fail), the stream is poisoned:
 * device.h. */
MM_CHECKED mm_status mm_host_launch(mm_stream *stream, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes);

/* Called by a task of the stream that has itself written `bytes` to pinned memory (MM_COPY_OUT), or read them there
 * (MM_COPY_IN): books the simulated link for them, as a copy does, and sleeps until a copy that began at began_ns
 * (clock.h) would be over. Returns at once if the link has no rate. */
void mm_host_link_charge(mm_stream *stream, mm_copy_kind kind, int64_t bytes, int64_t began_ns);

/* Called by a task that only waits for something outside of all streams: says that what it waited for happened at `ns`
 * (clock.h). Copies after the task count as begun then, however late the thread woke. Ignored on threads that are no
 * stream's, and in tasks of other devices. */
void mm_host_waited_until(int64_t ns);

/* The pool that operations of codecs on the stream run on (mm_device_config.codec_threads); NULL: the stream's own
 * thread alone. The device owns it and all of its streams share it; concurrent operations do not wait for one another
 * (mm_host_pool_run). */
mm_host_pool *mm_host_codec_pool(mm_stream *stream);

extern const mm_device_ops mm_device_host_ops;
MM_CHECKED mm_status mm_device_host_create(const mm_device_config *config, mm_device **device_out);

#endif

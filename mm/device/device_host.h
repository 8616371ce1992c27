/* The host device's launcher: work of one's own on a host stream. For host ops, host codecs and tests only. */
#ifndef MM_DEVICE_DEVICE_HOST_H
#define MM_DEVICE_DEVICE_HOST_H

#include "mm/device/device.h"
#include "mm/device/host_pool.h"

enum { MM_HOST_ARG_CAPACITY = 256 };

/* Runs fn(arg) on the stream's thread, in order. `arg` (arg_bytes <= MM_HOST_ARG_CAPACITY) is copied into the queue,
 * 16-byte aligned. A status other than MM_OK (say why with mm_fail) fails the stream: see device.h. */
MM_CHECKED mm_status mm_host_launch(mm_stream *stream, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes);

/* The threads that a codec's operation on the stream may use (mm_device_config.codec_threads); NULL: the stream's own
 * alone. The device's: operations of several streams at a time do not wait for one another (mm_host_pool_run). */
mm_host_pool *mm_host_codec_pool(mm_stream *stream);

extern const mm_device_ops mm_device_host_ops;
MM_CHECKED mm_status mm_device_host_create(const mm_device_config *config, mm_device **device_out);

#endif

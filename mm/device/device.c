/* The contract's functions: what every device would have to check is checked here, once; the rest is the device's. */
#include <stdio.h>
#include <string.h>

#include "mm/device/device.h"

#include "mm/device/host_pool.h"

/* "host, cuda" */
static void list_devices(char *text, size_t capacity) {
    size_t used = 0;
    const mm_device_ops *ops;
    text[0] = '\0';
    for (size_t i = 0; (ops = mm_device_table(i)) != NULL && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i > 0 ? ", " : "", ops->name);
}

static mm_status config_check(const mm_device_config *config) {
    if (config->link_out_bytes_per_s < 0 || config->link_in_bytes_per_s < 0)
        return mm_fail(MM_ERR_INVALID, "device config: link bandwidths must not be negative: out %lld, in %lld bytes/s",
                       (long long)config->link_out_bytes_per_s, (long long)config->link_in_bytes_per_s);
    if (config->alloc_cost_ns < 0 || config->delay_max_ns < 0)
        return mm_fail(MM_ERR_INVALID,
                       "device config: times must not be negative: alloc_cost_ns %lld, delay_max_ns %lld",
                       (long long)config->alloc_cost_ns, (long long)config->delay_max_ns);
    if (config->codec_threads < 0 || config->codec_threads > MM_HOST_THREADS_MOST)
        return mm_fail(MM_ERR_INVALID, "device config: %d threads for codecs, must be 0 (one) to %d",
                       config->codec_threads, MM_HOST_THREADS_MOST);
    return MM_OK;
}

mm_status mm_device_create(const char *name, const mm_device_config *config, mm_device **device_out) {
    static const mm_device_config defaults;
    const mm_device_ops *ops;
    char known[128];
    if (config == NULL) config = &defaults;
    MM_TRY(config_check(config));
    for (size_t i = 0; (ops = mm_device_table(i)) != NULL; i++)
        if (strcmp(ops->name, name) == 0) return ops->create(config, device_out);
    const char *absent = mm_device_absent(name);
    list_devices(known, sizeof known);
    return mm_fail(MM_ERR_NOT_FOUND, "no device '%s' in this build, which has: %s%s%s", name, known,
                   absent != NULL ? "; " : "", absent != NULL ? absent : "");
}

void mm_device_destroy(mm_device *device) {
    if (device != NULL) device->ops->destroy(device);
}

/* ---------------------------------------------------------------- memory */

mm_status mm_device_reserve(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out) {
    if (kind != MM_MEMORY_DEVICE && kind != MM_MEMORY_PINNED)
        return mm_fail(MM_ERR_INVALID, "reserve: no memory kind %d", (int)kind);
    if (bytes <= 0) return mm_fail(MM_ERR_INVALID, "reserve: %lld bytes asked, at least 1 needed", (long long)bytes);
    return device->ops->reserve(device, kind, bytes, memory_out);
}

void mm_device_trim(mm_device *device, void *memory, int64_t bytes) {
    if (bytes > 0) device->ops->trim(device, memory, bytes);
}

mm_status mm_device_restore(mm_device *device, void *memory, int64_t bytes) {
    return bytes > 0 && device->ops->restore != NULL ? device->ops->restore(device, memory, bytes) : MM_OK;
}

bool mm_device_next_written(mm_device *device, const void *memory, int64_t bytes, int64_t *at, int64_t *end_out) {
    if (*at >= bytes) return false;
    if (device->ops->next_written != NULL) return device->ops->next_written(device, memory, bytes, at, end_out);
    *end_out = bytes;
    return true;
}

void mm_device_release(mm_device *device, mm_memory_kind kind, void *memory, int64_t bytes) {
    if (memory != NULL) device->ops->release(device, kind, memory, bytes);
}

void mm_device_memory_info(mm_device *device, mm_memory_info *info_out) { device->ops->memory_info(device, info_out); }

void mm_device_describe(mm_device *device, mm_device_description *description_out) {
    device->ops->describe(device, description_out);
}

void mm_device_charge_alloc(mm_device *device) { device->ops->charge_alloc(device); }

/* ---------------------------------------------------------------- streams */

mm_status mm_stream_create(mm_device *device, const char *name, int priority, mm_stream **stream_out) {
    return device->ops->stream_create(device, name, priority, stream_out);
}

void mm_stream_destroy(mm_stream *stream) {
    if (stream != NULL) stream->device->ops->stream_destroy(stream);
}

static mm_status same_device(const mm_stream *stream, const mm_event *event) {
    if (stream->device == event->device) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "a stream of device %s and an event of another device %s", stream->device->ops->name,
                   event->device->ops->name);
}

mm_status mm_stream_wait(mm_stream *stream, mm_event *event) {
    MM_TRY(same_device(stream, event));
    return stream->device->ops->stream_wait(stream, event);
}

mm_status mm_stream_sync(mm_stream *stream) { return stream->device->ops->stream_sync(stream); }

void mm_stream_reset(mm_stream *stream) { stream->device->ops->stream_reset(stream); }

void *mm_stream_handle(mm_stream *stream) {
    return stream != NULL && stream->device->ops->stream_handle != NULL ? stream->device->ops->stream_handle(stream)
                                                                        : NULL;
}

void mm_stream_stats_get(mm_stream *stream, mm_stream_stats *stats_out) {
    stream->device->ops->stream_stats(stream, stats_out);
}

/* ---------------------------------------------------------------- events */

mm_status mm_event_create(mm_device *device, mm_event **event_out) {
    return device->ops->event_create(device, event_out);
}

void mm_event_destroy(mm_event *event) {
    if (event != NULL) event->device->ops->event_destroy(event);
}

mm_status mm_event_record(mm_event *event, mm_stream *stream) {
    MM_TRY(same_device(stream, event));
    return event->device->ops->event_record(event, stream);
}

mm_status mm_event_sync(mm_event *event) { return event->device->ops->event_sync(event); }

bool mm_event_done(mm_event *event) { return event->device->ops->event_done(event); }

int64_t mm_event_ns(mm_event *event) { return event->device->ops->event_ns(event); }

/* ---------------------------------------------------------------- work */

static mm_status range_check(const char *what, const void *memory, int64_t bytes) {
    if (bytes < 0 || (memory == NULL && bytes > 0))
        return mm_fail(MM_ERR_INVALID, "%s: %lld bytes at %p", what, (long long)bytes, memory);
    return MM_OK;
}

mm_status mm_copy_async(mm_stream *stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind) {
    if (kind != MM_COPY_DEVICE && kind != MM_COPY_OUT && kind != MM_COPY_IN)
        return mm_fail(MM_ERR_INVALID, "copy: no copy kind %d", (int)kind);
    MM_TRY(range_check("copy to", dst, bytes));
    MM_TRY(range_check("copy from", src, bytes));
    return stream->device->ops->copy_async(stream, dst, src, bytes, kind);
}

mm_status mm_fill_async(mm_stream *stream, void *dst, uint8_t byte, int64_t bytes) {
    MM_TRY(range_check("fill", dst, bytes));
    return stream->device->ops->fill_async(stream, dst, byte, bytes);
}

mm_status mm_checksum_async(mm_stream *stream, const void *src, int64_t bytes, uint64_t *sum_out) {
    MM_TRY(range_check("checksum", src, bytes));
    return stream->device->ops->checksum_async(stream, src, bytes, sum_out);
}

/* ---------------------------------------------------------------- captured work */

static mm_status captures_check(const mm_stream *stream) {
    if (stream->device->ops->capture_begin != NULL) return MM_OK;
    return mm_fail(MM_ERR_UNSUPPORTED, "device %s does not capture work", stream->device->ops->name);
}

mm_status mm_capture_begin(mm_stream *stream) {
    MM_TRY(captures_check(stream));
    return stream->device->ops->capture_begin(stream);
}

mm_status mm_capture_end(mm_stream *stream, mm_replay **replay_out) {
    MM_TRY(captures_check(stream));
    return stream->device->ops->capture_end(stream, replay_out);
}

mm_status mm_replay_launch(mm_replay *replay, mm_stream *stream) {
    if (replay->device != stream->device)
        return mm_fail(MM_ERR_INVALID, "a stream of device %s and work captured on another", stream->device->ops->name);
    return replay->device->ops->replay_launch(replay, stream);
}

void mm_replay_destroy(mm_replay *replay) {
    if (replay != NULL) replay->device->ops->replay_destroy(replay);
}

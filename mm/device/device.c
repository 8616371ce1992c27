/* SPDX-License-Identifier: MIT */
/* The contract's functions. Checks that are the same for every device are made here; the rest is in the device. */
#include <stdio.h>

#include "mm/device/contract/device.h"

#include "mm/device/host/host_pool.h"

static mm_status config_check(const mm_device_config *config) {
    if (config->link_out_bytes_per_s < 0 || config->link_in_bytes_per_s < 0)
        return mm_fail(MM_ERR_INVALID, "device config: link bandwidths must not be negative: out %lld, in %lld bytes/s",
                       (long long)config->link_out_bytes_per_s, (long long)config->link_in_bytes_per_s);
    if (config->alloc_cost_ns < 0 || config->delay_max_ns < 0)
        return mm_fail(MM_ERR_INVALID,
                       "device config: times must not be negative: alloc_cost_ns %lld, delay_max_ns %lld",
                       (long long)config->alloc_cost_ns, (long long)config->delay_max_ns);
    if (config->codec_threads < 0 || config->codec_threads > MM_HOST_THREADS_MOST)
        return mm_fail(MM_ERR_INVALID, "device config: codec_threads is %d: must be 0 (one thread) to %d",
                       config->codec_threads, MM_HOST_THREADS_MOST);
    return MM_OK;
}

mm_status mm_device_create(const char *name, const mm_device_config *config, mm_device **device_out) {
    static const mm_device_config defaults;
    const mm_device_ops *ops;
    int ordinal;
    mm_device *device;
    if (config == NULL) config = &defaults;
    MM_TRY(config_check(config));
    MM_TRY(mm_device_find(name, &ops, &ordinal));
    MM_TRY(ops->create(ordinal, config, &device));
    snprintf(device->name, sizeof device->name, "%s", name);
    device->ordinal = ordinal;
    *device_out = device;
    return MM_OK;
}

void mm_device_destroy(mm_device *device) {
    if (device != NULL) device->ops->destroy(device);
}

/* ---------------------------------------------------------------- the thread's current device */

mm_status mm_device_enter(mm_device *device, bool *entered_out) {
    *entered_out = false;
    return device->ops->enter != NULL ? device->ops->enter(device, false, entered_out) : MM_OK;
}

void mm_device_leave(mm_device *device, bool entered) {
    if (entered) device->ops->leave(device);
}

static mm_status leave(mm_device *device, bool entered, mm_status status) {
    mm_device_leave(device, entered);
    return status;
}

/* Leaves the device after a call, and tells the device's watch if it has succeeded. */
static mm_status leave_issued(mm_device *device, bool entered, mm_status status, const mm_issued *entry) {
    if (status == MM_OK) mm_device_tell(device, entry);
    return leave(device, entered, status);
}

static uint64_t number_of(const void *stream_or_event) { return (uint64_t)(uintptr_t)stream_or_event; }

/* For calls that return no status: they go on even if the device cannot be entered, and mm_last_error stays as it
 * is. */
static bool enter_silently(mm_device *device) {
    bool entered = false;
    if (device->ops->enter != NULL && device->ops->enter(device, true, &entered) != MM_OK) return false;
    return entered;
}

/* ---------------------------------------------------------------- memory */

mm_status mm_device_reserve(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out) {
    bool entered;
    if (kind != MM_MEMORY_DEVICE && kind != MM_MEMORY_PINNED)
        return mm_fail(MM_ERR_INVALID, "reserve: no memory kind %d", (int)kind);
    if (bytes <= 0) return mm_fail(MM_ERR_INVALID, "reserve: %lld bytes asked, at least 1 needed", (long long)bytes);
    MM_TRY(mm_device_enter(device, &entered));
    return leave(device, entered, device->ops->reserve(device, kind, bytes, memory_out));
}

mm_status mm_device_reserve_trimmed(mm_device *device, int64_t bytes, void **memory_out) {
    bool entered;
    if (bytes <= 0) return mm_fail(MM_ERR_INVALID, "reserve: %lld bytes asked, at least 1 needed", (long long)bytes);
    if (device->ops->reserve_trimmed) {
        MM_TRY(mm_device_enter(device, &entered));
        return leave(device, entered, device->ops->reserve_trimmed(device, bytes, memory_out));
    }
    MM_TRY(mm_device_reserve(device, MM_MEMORY_DEVICE, bytes, memory_out));
    mm_device_trim(device, *memory_out, bytes);
    return MM_OK;
}

void mm_device_trim(mm_device *device, void *memory, int64_t bytes) {
    if (bytes <= 0) return;
    bool entered = enter_silently(device);
    device->ops->trim(device, memory, bytes);
    mm_device_leave(device, entered);
}

mm_status mm_device_restore(mm_device *device, void *memory, int64_t bytes) {
    bool entered;
    if (bytes <= 0 || device->ops->restore == NULL) return MM_OK;
    MM_TRY(mm_device_enter(device, &entered));
    return leave(device, entered, device->ops->restore(device, memory, bytes));
}

mm_status mm_device_protect(mm_device *device, void *memory, int64_t bytes, mm_permit permit) {
    if (!device->ops->protect) return mm_fail(MM_ERR_UNSUPPORTED, "device %s cannot protect memory", device->name);
    return bytes > 0 ? device->ops->protect(device, memory, bytes, permit) : MM_OK;
}

bool mm_device_next_written(mm_device *device, const void *memory, int64_t bytes, int64_t *at, int64_t *end_out) {
    if (*at >= bytes) return false;
    if (device->ops->next_written != NULL) return device->ops->next_written(device, memory, bytes, at, end_out);
    *end_out = bytes;
    return true;
}

void mm_device_release(mm_device *device, mm_memory_kind kind, void *memory, int64_t bytes) {
    if (memory == NULL) return;
    bool entered = enter_silently(device);
    device->ops->release(device, kind, memory, bytes);
    mm_device_leave(device, entered);
}

void mm_device_memory_info(mm_device *device, mm_memory_info *info_out) {
    bool entered = enter_silently(device);
    device->ops->memory_info(device, info_out);
    mm_device_leave(device, entered);
}

int64_t mm_device_outside_bytes(mm_device *device) {
    bool entered = enter_silently(device);
    int64_t bytes = device->ops->outside_bytes(device);
    mm_device_leave(device, entered);
    return bytes;
}

void mm_device_describe(mm_device *device, mm_device_description *description_out) {
    device->ops->describe(device, description_out);
}

void mm_device_charge_alloc(mm_device *device) { device->ops->charge_alloc(device); }

/* ---------------------------------------------------------------- streams */

mm_status mm_stream_create(mm_device *device, const char *name, int priority, mm_stream **stream_out) {
    bool entered;
    MM_TRY(mm_device_enter(device, &entered));
    return leave(device, entered, device->ops->stream_create(device, name, priority, stream_out));
}

void mm_stream_destroy(mm_stream *stream) {
    if (stream == NULL) return;
    mm_device *device = stream->device;
    bool entered = enter_silently(device);
    device->ops->stream_destroy(stream);
    mm_device_leave(device, entered);
}

static mm_status same_device(const mm_stream *stream, const mm_event *event) {
    if (stream->device == event->device) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "a stream of device %s cannot use an event of another device, %s",
                   stream->device->name, event->device->name);
}

mm_status mm_stream_wait(mm_stream *stream, mm_event *event) {
    bool entered;
    MM_TRY(same_device(stream, event));
    MM_TRY(mm_device_enter(stream->device, &entered));
    return leave_issued(stream->device, entered, stream->device->ops->stream_wait(stream, event),
                        &(mm_issued){MM_ISSUED_WAIT, .stream = number_of(stream), .event = number_of(event)});
}

mm_status mm_stream_sync(mm_stream *stream) {
    bool entered;
    MM_TRY(mm_device_enter(stream->device, &entered));
    return leave_issued(stream->device, entered, stream->device->ops->stream_sync(stream),
                        &(mm_issued){MM_ISSUED_SYNC, .stream = number_of(stream)});
}

mm_status mm_stream_check(mm_stream *stream) {
    bool entered;
    if (stream->device->ops->stream_check == NULL) return MM_OK;
    MM_TRY(mm_device_enter(stream->device, &entered));
    return leave(stream->device, entered, stream->device->ops->stream_check(stream));
}

void mm_stream_reset(mm_stream *stream) {
    bool entered = enter_silently(stream->device);
    stream->device->ops->stream_reset(stream);
    mm_device_leave(stream->device, entered);
}

void *mm_stream_handle(mm_stream *stream) {
    if (stream == NULL || stream->device->ops->stream_handle == NULL) return NULL;
    bool entered = enter_silently(stream->device);
    void *handle = stream->device->ops->stream_handle(stream);
    mm_device_leave(stream->device, entered);
    return handle;
}

void mm_stream_stats_get(mm_stream *stream, mm_stream_stats *stats_out) {
    bool entered = enter_silently(stream->device);
    stream->device->ops->stream_stats(stream, stats_out);
    mm_device_leave(stream->device, entered);
}

/* ---------------------------------------------------------------- events */

mm_status mm_event_create(mm_device *device, mm_event **event_out) {
    bool entered;
    MM_TRY(mm_device_enter(device, &entered));
    return leave(device, entered, device->ops->event_create(device, event_out));
}

void mm_event_destroy(mm_event *event) {
    if (event == NULL) return;
    mm_device *device = event->device;
    bool entered = enter_silently(device);
    device->ops->event_destroy(event);
    mm_device_leave(device, entered);
}

mm_status mm_event_record(mm_event *event, mm_stream *stream) {
    bool entered;
    MM_TRY(same_device(stream, event));
    MM_TRY(mm_device_enter(event->device, &entered));
    return leave_issued(event->device, entered, event->device->ops->event_record(event, stream),
                        &(mm_issued){MM_ISSUED_RECORD, .stream = number_of(stream), .event = number_of(event)});
}

mm_status mm_event_sync(mm_event *event) {
    bool entered;
    MM_TRY(mm_device_enter(event->device, &entered));
    return leave_issued(event->device, entered, event->device->ops->event_sync(event),
                        &(mm_issued){MM_ISSUED_SYNC, .event = number_of(event)});
}

bool mm_event_done(mm_event *event) {
    bool entered = enter_silently(event->device), done = event->device->ops->event_done(event);
    mm_device_leave(event->device, entered);
    return done;
}

int64_t mm_event_ns(mm_event *event) {
    bool entered = enter_silently(event->device);
    int64_t ns = event->device->ops->event_ns(event);
    mm_device_leave(event->device, entered);
    return ns;
}

mm_task_times mm_event_tasks(mm_event *event) {
    if (!event->device->ops->event_tasks) return (mm_task_times){0};
    bool entered = enter_silently(event->device);
    mm_task_times times = event->device->ops->event_tasks(event);
    mm_device_leave(event->device, entered);
    return times;
}

/* ---------------------------------------------------------------- the caller's streams */

bool mm_device_is_inline(const mm_device *device) { return device->ops->foreign_record == NULL; }

static mm_status check_no_handle(const mm_device *device, const void *handle) {
    if (handle == NULL) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "device %s: a stream of the caller must be NULL, not %p", device->name, handle);
}

mm_status mm_foreign_record(mm_event *event, void *handle) {
    bool entered;
    if (mm_device_is_inline(event->device)) return check_no_handle(event->device, handle);
    MM_TRY(mm_device_enter(event->device, &entered));
    return leave_issued(event->device, entered, event->device->ops->foreign_record(event, handle),
                        &(mm_issued){MM_ISSUED_RECORD, .stream = number_of(handle), .event = number_of(event)});
}

mm_status mm_foreign_check(mm_device *device, void *handle) {
    bool entered;
    if (mm_device_is_inline(device)) return check_no_handle(device, handle);
    if (device->ops->foreign_check == NULL) return MM_OK;
    MM_TRY(mm_device_enter(device, &entered));
    return leave(device, entered, device->ops->foreign_check(device, handle));
}

mm_status mm_foreign_wait(mm_device *device, void *handle, mm_event *event) {
    bool entered;
    if (mm_device_is_inline(device)) {
        MM_TRY(check_no_handle(device, handle));
        return mm_event_sync(event);
    }
    MM_TRY(mm_device_enter(device, &entered));
    return leave_issued(device, entered, device->ops->foreign_wait(device, handle, event),
                        &(mm_issued){MM_ISSUED_WAIT, .stream = number_of(handle), .event = number_of(event)});
}

/* ---------------------------------------------------------------- work */

static mm_status range_check(const char *what, const void *memory, int64_t bytes) {
    if (bytes < 0 || (memory == NULL && bytes > 0))
        return mm_fail(MM_ERR_INVALID, "%s: invalid range: %lld bytes at %p", what, (long long)bytes, memory);
    return MM_OK;
}

mm_status mm_copy_async(mm_stream *stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind) {
    bool entered;
    if ((int)kind < MM_COPY_DEVICE || kind > MM_COPY_ANY)
        return mm_fail(MM_ERR_INVALID, "copy: no copy kind %d", (int)kind);
    MM_TRY(range_check("copy to", dst, bytes));
    MM_TRY(range_check("copy from", src, bytes));
    MM_TRY(mm_device_enter(stream->device, &entered));
    return leave_issued(stream->device, entered, stream->device->ops->copy_async(stream, dst, src, bytes, kind),
                        &(mm_issued){MM_ISSUED_COPY, .stream = number_of(stream), .dst = number_of(dst),
                                     .src = number_of(src), .bytes = bytes});
}

mm_status mm_fill_async(mm_stream *stream, void *dst, uint8_t byte, int64_t bytes) {
    bool entered;
    MM_TRY(range_check("fill", dst, bytes));
    MM_TRY(mm_device_enter(stream->device, &entered));
    return leave_issued(
        stream->device, entered, stream->device->ops->fill_async(stream, dst, byte, bytes),
        &(mm_issued){MM_ISSUED_FILL, .stream = number_of(stream), .dst = number_of(dst), .bytes = bytes});
}

mm_status mm_checksum_async(mm_stream *stream, const void *src, int64_t bytes, uint64_t *sum_out) {
    bool entered;
    MM_TRY(range_check("checksum", src, bytes));
    MM_TRY(mm_device_enter(stream->device, &entered));
    return leave_issued(stream->device, entered, stream->device->ops->checksum_async(stream, src, bytes, sum_out),
                        &(mm_issued){MM_ISSUED_TASK, .stream = number_of(stream)});
}

mm_status mm_mark_async(mm_stream *stream, void *dst, int64_t bytes, uint64_t word) {
    bool entered;
    MM_TRY(range_check("mark", dst, bytes));
    MM_TRY(mm_device_enter(stream->device, &entered));
    return leave_issued(
        stream->device, entered, stream->device->ops->mark_async(stream, dst, bytes, word),
        &(mm_issued){MM_ISSUED_FILL, .stream = number_of(stream), .dst = number_of(dst), .bytes = bytes});
}

mm_status mm_find_mark_async(mm_stream *stream, const void *src, int64_t bytes, const mm_mark *mark, uint64_t *at_out) {
    bool entered;
    MM_TRY(range_check("find a mark in", src, bytes));
    if (mark->elem_bytes != 2 && mark->elem_bytes != 4 && mark->elem_bytes != 8)
        return mm_fail(MM_ERR_INVALID, "find a mark: elements of %d bytes", mark->elem_bytes);
    MM_TRY(mm_device_enter(stream->device, &entered));
    return leave_issued(stream->device, entered, stream->device->ops->find_mark_async(stream, src, bytes, mark, at_out),
                        &(mm_issued){MM_ISSUED_TASK, .stream = number_of(stream)});
}

mm_status mm_sums_async(mm_stream *stream, const float *src, int64_t elems, void *scratch, mm_sums *sums_out) {
    enum { ALIGN = 16 };
    bool entered;
    const int64_t most = INT64_MAX / (int64_t)sizeof *src;
    MM_TRY(range_check("sums", src, elems > most ? -1 : elems * (int64_t)sizeof *src));
    if ((uintptr_t)src % ALIGN != 0)
        return mm_fail(MM_ERR_INVALID, "sums: elements at %p, which is not a multiple of %d", (const void *)src, ALIGN);
    MM_TRY(mm_device_enter(stream->device, &entered));
    return leave_issued(stream->device, entered, stream->device->ops->sums_async(stream, src, elems, scratch, sums_out),
                        &(mm_issued){MM_ISSUED_TASK, .stream = number_of(stream)});
}

mm_status mm_call_async(mm_stream *stream, const mm_call *call) {
    bool entered;
    MM_TRY(mm_device_enter(stream->device, &entered));
    return leave_issued(stream->device, entered, stream->device->ops->call_async(stream, call),
                        &(mm_issued){MM_ISSUED_TASK, .stream = number_of(stream)});
}

mm_status mm_call_blocking(mm_stream *stream, const mm_call *call, mm_event *after) {
    if (stream->device->ops->calls_may_block) return mm_call_async(stream, call);
    MM_TRY(after ? mm_event_sync(after) : mm_stream_sync(stream));
    MM_TRY(call->fn(call->arg));
    mm_device_tell(stream->device, &(mm_issued){MM_ISSUED_TASK, .stream = number_of(stream)});
    return MM_OK;
}

/* ---------------------------------------------------------------- captured work */

static mm_status captures_check(const mm_stream *stream) {
    if (stream->device->ops->capture_begin != NULL) return MM_OK;
    return mm_fail(MM_ERR_UNSUPPORTED, "device %s cannot capture tasks", stream->device->name);
}

mm_status mm_capture_begin(mm_stream *stream) {
    bool entered;
    MM_TRY(captures_check(stream));
    MM_TRY(mm_device_enter(stream->device, &entered));
    return leave(stream->device, entered, stream->device->ops->capture_begin(stream));
}

/* The capture ends even if the device cannot be entered. */
mm_status mm_capture_end(mm_stream *stream, mm_replay **replay_out) {
    MM_TRY(captures_check(stream));
    bool entered = enter_silently(stream->device);
    return leave(stream->device, entered, stream->device->ops->capture_end(stream, replay_out));
}

mm_status mm_replay_launch(mm_replay *replay, mm_stream *stream) {
    bool entered;
    if (replay->device != stream->device)
        return mm_fail(MM_ERR_INVALID, "a stream of device %s cannot replay what was captured on another device, %s",
                       stream->device->name, replay->device->name);
    MM_TRY(mm_device_enter(stream->device, &entered));
    return leave(stream->device, entered, replay->device->ops->replay_launch(replay, stream));
}

void mm_replay_destroy(mm_replay *replay) {
    if (replay == NULL) return;
    mm_device *device = replay->device;
    bool entered = enter_silently(device);
    device->ops->replay_destroy(replay);
    mm_device_leave(device, entered);
}

/* SPDX-License-Identifier: MIT */
/* Streams and events. */
#include <stdio.h>
#include <stdlib.h>

#include "mm/device/cuda/cuda_internal.h"

/* ---------------------------------------------------------------- streams */

/* CUDA clamps a priority to the nearest that it has. */
static mm_status stream_open(int priority, cuda_stream *stream) {
    CUDA_TRY(cudaEventCreateWithFlags(&stream->join, cudaEventDisableTiming), "cudaEventCreate");
    mm_status status = mm_cuda_check(cudaStreamCreateWithPriority(&stream->stream, cudaStreamNonBlocking, priority),
                                     "cudaStreamCreate");
    if (status != MM_OK) cudaEventDestroy(stream->join);
    return status;
}

mm_status cuda_stream_create(mm_device *base, const char *name, int priority, mm_stream **stream_out) {
    cuda_device *device = (cuda_device *)base;
    cuda_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) return mm_fail(MM_ERR_NOMEM, "stream %s: no memory for %zu bytes", name, sizeof *stream);
    stream->base.device = base;
    snprintf(stream->name, sizeof stream->name, "%s", name);
    mm_status status = stream_open(priority, stream);
    if (status != MM_OK) {
        free(stream);
        return mm_fail_in(status, "stream %s", name);
    }
    pthread_mutex_init(&stream->lock, NULL);
    atomic_fetch_add(&device->alive, 1);
    *stream_out = &stream->base;
    return MM_OK;
}

/* Failures are ignored: mm_stream_sync returned them. */
void cuda_stream_destroy(mm_stream *base) {
    cuda_stream *stream = (cuda_stream *)base;
    cudaStreamSynchronize(stream->stream);
    cuda_time_stream_fini(stream);
    cudaStreamDestroy(stream->stream);
    cudaEventDestroy(stream->join);
    cudaGetLastError();
    pthread_mutex_destroy(&stream->lock);
    atomic_fetch_sub(&cuda_device_of(base)->alive, 1);
    free(stream);
}

mm_status cuda_stream_sync(mm_stream *base) {
    cuda_stream *stream = (cuda_stream *)base;
    cuda_time_pause(stream);
    return cuda_stream_fail(stream, mm_cuda_check(cudaStreamSynchronize(stream->stream), "cudaStreamSynchronize"));
}

/* The call that failed has returned the failure. A failure that CUDA does not clear is final, and cannot be reset. */
void cuda_stream_reset(mm_stream *base) {
    (void)base;
    cudaGetLastError();
}

/* Whether the event can be waited for: it was recorded outside of captures, or in the capture under way. */
static bool was_recorded(const mm_event *base) {
    const cuda_device *device = (const cuda_device *)base->device;
    long recorded = atomic_load(&((const cuda_event *)base)->recorded);
    return recorded == CUDA_EVENT_RECORDED ||
           (recorded != CUDA_EVENT_NEVER && recorded == atomic_load(&device->capturing));
}

mm_status cuda_stream_wait(mm_stream *base, mm_event *event_base) {
    cuda_stream *stream = (cuda_stream *)base;
    cuda_event *event = (cuda_event *)event_base;
    if (!was_recorded(event_base))
        return mm_fail(MM_ERR_ORDER, "stream %s cannot wait for an event that was never recorded", stream->name);
    long recorded = atomic_load(&event->recorded);
    if (recorded != CUDA_EVENT_RECORDED) cuda_capture_join(stream, recorded);
    cuda_time_wait_begin(stream);
    mm_status status = mm_cuda_check(cudaStreamWaitEvent(stream->stream, event->event, 0), "cudaStreamWaitEvent");
    cuda_time_wait_end(stream);
    return cuda_stream_fail(stream, status);
}

/* ---------------------------------------------------------------- events */

mm_status cuda_event_create(mm_device *base, mm_event **event_out) {
    cuda_device *device = (cuda_device *)base;
    cuda_event *event = calloc(1, sizeof *event);
    if (event == NULL) return mm_fail(MM_ERR_NOMEM, "cuda: no memory for an event");
    event->base.device = base;
    unsigned flags = device->config.timed ? cudaEventDefault : cudaEventDisableTiming;
    mm_status status = mm_cuda_check(cudaEventCreateWithFlags(&event->event, flags), "cudaEventCreate");
    if (status != MM_OK) {
        free(event);
        return status;
    }
    atomic_fetch_add(&device->alive, 1);
    *event_out = &event->base;
    return MM_OK;
}

void cuda_event_destroy(mm_event *base) {
    cuda_event *event = (cuda_event *)base;
    cudaEventDestroy(event->event);
    atomic_fetch_sub(&((cuda_device *)base->device)->alive, 1);
    free(event);
}

mm_status cuda_event_record(mm_event *base, mm_stream *stream_base) {
    cuda_event *event = (cuda_event *)base;
    cuda_stream *stream = (cuda_stream *)stream_base;
    cuda_time_pause(stream);
    mm_status status = mm_cuda_check(cudaEventRecord(event->event, stream->stream), "cudaEventRecord");
    if (status == MM_OK) atomic_store(&event->recorded, stream->capture != 0 ? stream->capture : CUDA_EVENT_RECORDED);
    return cuda_stream_fail(stream, status);
}

mm_status cuda_event_sync(mm_event *base) {
    cuda_event *event = (cuda_event *)base;
    return was_recorded(base) ? mm_cuda_check(cudaEventSynchronize(event->event), "cudaEventSynchronize") : MM_OK;
}

/* A recording that failed counts as completed. One in a capture has not run. */
bool cuda_event_done(mm_event *base) {
    cuda_event *event = (cuda_event *)base;
    if (!was_recorded(base)) return true;
    if (atomic_load(&event->recorded) != CUDA_EVENT_RECORDED) return false;
    return cuda_event_completed(event->event);
}

/* ---------------------------------------------------------------- the caller's streams and captures */

/* CUDA refuses to say it of the legacy stream while a stream that waits for that one is captured; then what is enqueued
 * there is refused, too. */
static mm_status check_uncaptured(cudaStream_t stream, const char *whose) {
    enum cudaStreamCaptureStatus status;
    cudaError_t error = cudaStreamIsCapturing(stream, &status);
    if (error == cudaSuccess && status == cudaStreamCaptureStatusNone) return MM_OK;
    if (error != cudaSuccess && error != cudaErrorStreamCaptureImplicit)
        return mm_cuda_check(error, "cudaStreamIsCapturing");
    cudaGetLastError();
    return mm_fail(
        MM_ERR_ORDER,
        "%s is being captured into a CUDA graph (cudaStreamBeginCapture, torch.cuda.graph, torch.compile with "
        "reduce-overhead), and mm's work cannot be part of one: capture without mm, or use mm without a capture",
        whose);
}

mm_status cuda_stream_check(mm_stream *base) {
    const cuda_stream *stream = (cuda_stream *)base;
    return stream->capture != 0 ? MM_OK : check_uncaptured(stream->stream, "mm's own stream");
}

mm_status cuda_foreign_check(mm_device *base, void *handle) {
    (void)base;
    return check_uncaptured((cudaStream_t)handle, "the caller's stream");
}

mm_status cuda_foreign_record(mm_event *base, void *handle) {
    cuda_event *event = (cuda_event *)base;
    MM_TRY(cuda_foreign_check(base->device, handle));
    CUDA_TRY(cudaEventRecord(event->event, (cudaStream_t)handle), "cudaEventRecord on a stream of the caller");
    atomic_store(&event->recorded, CUDA_EVENT_RECORDED);
    return MM_OK;
}

mm_status cuda_foreign_wait(mm_device *base, void *handle, mm_event *event) {
    (void)base;
    if (!was_recorded(event))
        return mm_fail(MM_ERR_ORDER, "a stream of the caller cannot wait for an event that was never recorded");
    return mm_cuda_check(cudaStreamWaitEvent((cudaStream_t)handle, ((cuda_event *)event)->event, 0),
                         "cudaStreamWaitEvent on a stream of the caller");
}

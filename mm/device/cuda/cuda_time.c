/* SPDX-License-Identifier: MIT */
/* Completion times of events, and busy and waiting times of streams. CUDA has only the time between two events, as a
 * float of milliseconds.
 *
 * A span is the time between two events on one stream: either work, from the first task after a pause to the next
 * recording, wait or synchronisation, or a wait. So an idle stream is not counted as busy. */
#include <math.h>
#include <stdlib.h>

#include "mm/device/cuda/cuda_internal.h"

struct cuda_span {
    cuda_span *next;
    cudaEvent_t begin, end;
    bool is_wait;
};

/* Both chosen. ORIGIN_TRIES: how often the origin of times is recorded; the fastest try is used. UNREAD_SPANS bounds
 * the number of events of a stream whose statistics nobody reads. */
enum { ORIGIN_TRIES = 8, UNREAD_SPANS = 256 };

/* ---------------------------------------------------------------- events' times */

/* Records `event` on the service stream and waits for it. It completed between *before_out and *after_out. */
static mm_status record_origin(cuda_device *device, cudaEvent_t event, int64_t *before_out, int64_t *after_out) {
    cudaStream_t stream = ((cuda_stream *)device->service)->stream;
    *before_out = mm_now_ns();
    CUDA_TRY(cudaEventRecord(event, stream), "cudaEventRecord");
    CUDA_TRY(cudaEventSynchronize(event), "cudaEventSynchronize");
    *after_out = mm_now_ns();
    return MM_OK;
}

/* The error of the origin's time is at most the time that recording the event and waiting for it take. So of
 * ORIGIN_TRIES tries, the fastest is used. */
mm_status cuda_time_init(cuda_device *device) {
    if (!device->config.timed) return MM_OK;
    CUDA_TRY(cudaEventCreateWithFlags(&device->origin, cudaEventDefault), "cudaEventCreate");
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < ORIGIN_TRIES; i++) {
        int64_t before, after;
        cudaEvent_t event;
        CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreate");
        mm_status status = record_origin(device, event, &before, &after);
        if (status == MM_OK && after - before < best_ns) {
            cudaEvent_t worse = device->origin;
            best_ns = after - before;
            device->origin = event;
            device->origin_ns = before + best_ns / 2;
            event = worse;
        }
        cudaEventDestroy(event);
        MM_TRY(status);
    }
    return MM_OK;
}

void cuda_time_fini(cuda_device *device) {
    if (device->origin != NULL) cudaEventDestroy(device->origin);
}

/* Moves the origin on after ORIGIN_MS. A float of milliseconds resolves a microsecond up to some 10 s (24 bits of
 * mantissa: 16 s); ORIGIN_MS is chosen well below. */
static void move_origin_locked(cuda_device *device) {
    int64_t before, after;
    float ms;
    cudaEvent_t next;
    if (cudaEventCreateWithFlags(&next, cudaEventDefault) != cudaSuccess) return;
    if (record_origin(device, next, &before, &after) == MM_OK &&
        cudaEventElapsedTime(&ms, device->origin, next) == cudaSuccess) {
        cudaEvent_t past = device->origin;
        device->origin = next;
        device->origin_ns += llround((double)ms * 1e6);
        next = past;
    }
    cudaEventDestroy(next);
}

int64_t cuda_event_ns(mm_event *base) {
    enum { ORIGIN_MS = 2000 };
    cuda_device *device = (cuda_device *)base->device;
    cuda_event *event = (cuda_event *)base;
    float ms = 0;
    if (!device->config.timed || atomic_load(&event->recorded) != CUDA_EVENT_RECORDED) return 0;
    if (!cuda_event_completed(event->event)) return 0;
    pthread_mutex_lock(&device->time_lock);
    bool told = cudaEventElapsedTime(&ms, device->origin, event->event) == cudaSuccess;
    int64_t ns = told ? device->origin_ns + llround((double)ms * 1e6) : 0;
    if (told && ms > ORIGIN_MS) move_origin_locked(device);
    pthread_mutex_unlock(&device->time_lock);
    cudaGetLastError();
    return ns;
}

/* ---------------------------------------------------------------- spans */

static void span_destroy(cuda_span *span) {
    if (span->begin != NULL) cudaEventDestroy(span->begin);
    if (span->end != NULL) cudaEventDestroy(span->end);
    free(span);
}

static cuda_span *span_create(void) {
    cuda_span *span = calloc(1, sizeof *span);
    if (span == NULL) return NULL;
    if (cudaEventCreateWithFlags(&span->begin, cudaEventDefault) == cudaSuccess &&
        cudaEventCreateWithFlags(&span->end, cudaEventDefault) == cudaSuccess)
        return span;
    cudaGetLastError();
    span_destroy(span);
    return NULL;
}

/* Adds up the spans that have ended, oldest first. */
static void read_spans(cuda_stream *stream) {
    for (;;) {
        pthread_mutex_lock(&stream->lock);
        cuda_span *span = stream->first;
        if (span != NULL) stream->first = span->next;
        if (stream->first == NULL) stream->last = NULL;
        pthread_mutex_unlock(&stream->lock);
        if (span == NULL) return;
        bool over = cuda_event_completed(span->end);
        float ms = 0;
        if (over && cudaEventElapsedTime(&ms, span->begin, span->end) != cudaSuccess) cudaGetLastError();
        pthread_mutex_lock(&stream->lock);
        if (over) {
            *(span->is_wait ? &stream->wait_ns : &stream->busy_ns) += llround((double)ms * 1e6);
            stream->unread--;
        }
        cuda_span **list = over ? &stream->unused : &stream->first;
        span->next = *list;
        *list = span;
        if (!over && stream->last == NULL) stream->last = span;
        pthread_mutex_unlock(&stream->lock);
        if (!over) return;
    }
}

static void span_begin(cuda_stream *stream, bool is_wait) {
    pthread_mutex_lock(&stream->lock);
    bool read = stream->unused == NULL && stream->unread >= UNREAD_SPANS;
    pthread_mutex_unlock(&stream->lock);
    if (read) read_spans(stream);
    pthread_mutex_lock(&stream->lock);
    cuda_span *span = stream->unused;
    if (span != NULL) stream->unused = span->next;
    pthread_mutex_unlock(&stream->lock);
    if (span == NULL) span = span_create();
    if (span == NULL) return;
    span->is_wait = is_wait;
    span->next = NULL;
    if (cudaEventRecord(span->begin, stream->stream) == cudaSuccess) {
        stream->open = span;
    } else {
        cudaGetLastError();
        span_destroy(span);
    }
}

static void span_end(cuda_stream *stream) {
    cuda_span *span = stream->open;
    stream->open = NULL;
    if (cudaEventRecord(span->end, stream->stream) != cudaSuccess) {
        cudaGetLastError();
        span_destroy(span);
        return;
    }
    pthread_mutex_lock(&stream->lock);
    if (stream->last != NULL)
        stream->last->next = span;
    else
        stream->first = span;
    stream->last = span;
    stream->unread++;
    pthread_mutex_unlock(&stream->lock);
}

static bool is_timed(const cuda_stream *stream) {
    return cuda_device_of(&stream->base)->config.timed && stream->capture == 0;
}

cudaStream_t cuda_stream_task(mm_stream *base) {
    cuda_stream *stream = (cuda_stream *)base;
    atomic_fetch_add_explicit(&stream->tasks, 1, memory_order_relaxed);
    if (is_timed(stream) && stream->open == NULL) span_begin(stream, false);
    return stream->stream;
}

cudaStream_t mm_cuda_stream(mm_stream *stream) {
    mm_device_tell(stream->device, &(mm_issued){MM_ISSUED_TASK, .stream = (uint64_t)(uintptr_t)stream});
    return cuda_stream_task(stream);
}

void *cuda_stream_handle(mm_stream *base) { return cuda_stream_task(base); }

void cuda_time_pause(cuda_stream *stream) {
    if (is_timed(stream) && stream->open != NULL) span_end(stream);
}

void cuda_time_wait_begin(cuda_stream *stream) {
    cuda_time_pause(stream);
    if (is_timed(stream)) span_begin(stream, true);
}

void cuda_time_wait_end(cuda_stream *stream) { cuda_time_pause(stream); }

void cuda_time_stream_fini(cuda_stream *stream) {
    cuda_span *lists[] = {stream->first, stream->unused, stream->open};
    for (int i = 0; i < 3; i++)
        for (cuda_span *span = lists[i], *next; span != NULL; span = next) {
            next = span->next;
            span_destroy(span);
        }
}

void cuda_stream_stats(mm_stream *base, mm_stream_stats *stats_out) {
    cuda_stream *stream = (cuda_stream *)base;
    read_spans(stream);
    pthread_mutex_lock(&stream->lock);
    *stats_out =
        (mm_stream_stats){.tasks = atomic_load(&stream->tasks), .busy_ns = stream->busy_ns, .wait_ns = stream->wait_ns};
    pthread_mutex_unlock(&stream->lock);
}

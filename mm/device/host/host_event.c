/* SPDX-License-Identifier: MIT */
/* Events of the host device. */
#include <stdlib.h>

#include "mm/device/host/host_internal.h"

typedef struct host_event {
    mm_event base;
    pthread_mutex_t lock;
    host_recording *last; /* NULL: never recorded */
} host_event;

mm_status host_event_create(mm_device *base, mm_event **event_out) {
    host_event *event = calloc(1, sizeof *event);
    if (event == NULL) return mm_fail(MM_ERR_NOMEM, "event: no memory for its %zu bytes", sizeof *event);
    event->base.device = base;
    pthread_mutex_init(&event->lock, NULL);
    atomic_fetch_add(&((host_device *)base)->alive, 1);
    *event_out = &event->base;
    return MM_OK;
}

/* Safe at any time: queued tasks hold references to their recordings. */
void host_event_destroy(mm_event *base) {
    host_event *event = (host_event *)base;
    host_device *device = (host_device *)base->device;
    if (event->last != NULL) host_recording_release(event->last);
    pthread_mutex_destroy(&event->lock);
    free(event);
    atomic_fetch_sub(&device->alive, 1);
}

/* Whether nobody else refers to the last recording, so that it can be used again. References are taken only from the
 * event, under its lock, so the event's own stays the only one if it is that now. So an event that is recorded once in
 * each iteration allocates a recording only once. */
static bool event_last_reusable(const host_event *event) {
    return event->last != NULL && atomic_load_explicit(&event->last->references, memory_order_acquire) == 1;
}

static mm_status record_again(host_event *event, mm_stream *stream) {
    host_recording *recording = event->last;
    host_recording_set_done(recording, false);
    atomic_fetch_add_explicit(&recording->references, 1, memory_order_relaxed);
    mm_status status = host_stream_record(stream, recording);
    if (status != MM_OK) {
        host_recording_set_done(recording, true);
        host_recording_release(recording);
    }
    return status;
}

static mm_status record_anew(host_event *event, mm_stream *stream) {
    host_recording *recording = host_recording_create();
    if (recording == NULL) return mm_fail(MM_ERR_NOMEM, "event record: no memory for %zu bytes", sizeof *recording);
    atomic_fetch_add_explicit(&recording->references, 1, memory_order_relaxed);
    mm_status status = host_stream_record(stream, recording);
    if (status != MM_OK) {
        host_recording_release(recording);
        host_recording_release(recording);
        return status;
    }
    if (event->last != NULL) host_recording_release(event->last);
    event->last = recording;
    return MM_OK;
}

mm_status host_event_record(mm_event *base, mm_stream *stream) {
    host_event *event = (host_event *)base;
    pthread_mutex_lock(&event->lock);
    mm_status status = event_last_reusable(event) ? record_again(event, stream) : record_anew(event, stream);
    pthread_mutex_unlock(&event->lock);
    return status;
}

/* The event's latest recording; NULL: there is none. The caller gets a reference, and releases it. */
static host_recording *event_last(mm_event *base) {
    host_event *event = (host_event *)base;
    pthread_mutex_lock(&event->lock);
    host_recording *recording = event->last;
    if (recording != NULL) atomic_fetch_add_explicit(&recording->references, 1, memory_order_relaxed);
    pthread_mutex_unlock(&event->lock);
    return recording;
}

mm_status host_event_wait(mm_stream *stream, mm_event *event) { return host_stream_wait(stream, event_last(event)); }

mm_status host_event_sync(mm_event *event) {
    host_recording *recording = event_last(event);
    if (recording == NULL) return MM_OK;
    host_recording_wait(recording);
    mm_status status = mm_failure_restore(&recording->failure);
    host_recording_release(recording);
    return status;
}

bool host_event_done(mm_event *event) {
    host_recording *recording = event_last(event);
    if (recording == NULL) return true;
    bool done = host_recording_done(recording);
    host_recording_release(recording);
    return done;
}

int64_t host_event_ns(mm_event *event) {
    host_recording *recording = event_last(event);
    if (recording == NULL) return 0;
    int64_t ns = host_recording_done(recording) ? recording->done_ns : 0;
    host_recording_release(recording);
    return ns;
}

mm_task_times host_event_tasks(mm_event *event) {
    host_recording *recording = event_last(event);
    if (recording == NULL) return (mm_task_times){0};
    mm_task_times times = host_recording_done(recording) ? recording->tasks : (mm_task_times){0};
    host_recording_release(recording);
    return times;
}

/* SPDX-License-Identifier: MIT */
/* Private to the host device: device_host.c (memory, the device), host_stream.c (a thread and its queue), host_event.c
 * and host_recording.c (events and their recordings), host_work.c (copies, fills, checksums, sums).
 *
 * Locks by rank; while a lock is held, only locks of higher rank are taken:
 *     1 event->lock   2 stream->lock   3 recording->lock, device->lock
 * No lock is held while a task runs, or while a thread sleeps, other than in pthread_cond_wait on that lock. */
#ifndef MM_DEVICE_HOST_HOST_INTERNAL_H
#define MM_DEVICE_HOST_HOST_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "mm/device/contract/clock.h"
#include "mm/device/host/device_host.h"

typedef struct host_device {
    mm_device base;
    mm_device_config config;
    int64_t heap_bytes;       /* allocated in the C heap when the device was created */
    mm_host_pool *codec_pool; /* NULL: codecs run on their stream's thread alone */
    atomic_int streams_created;
    atomic_int alive; /* streams and events */
    pthread_mutex_t lock;
    int64_t reserved_bytes[2]; /* by mm_memory_kind */
    int64_t link_free_ns[2];   /* out, in: when the simulated link will have finished the copies booked so far */
} host_device;

/* ---------------------------------------------------------------- recordings (host_recording.c) */

/* One recording of an event. Each recording is an object of its own, so a waiter sees the completion, time and failure
 * of the one that was the latest when it asked, in whatever order they complete. Reference-counted: the event (its
 * latest), the queued task and the waits for it hold one each. */
typedef struct host_recording {
    atomic_int references;
    pthread_mutex_t lock;
    pthread_cond_t completed;
    bool done;
    int64_t queued_ns;   /* when it was enqueued */
    mm_task_times tasks; /* times of the stream's tasks since its recording before; both times are done_ns if there was
                            no task */
    int64_t done_ns;     /* done_ns, tasks and failure are set before `done`, and do not change until the object is used
                            for another recording */
    mm_failure failure;  /* failure of the stream when it reached the recording */
} host_recording;

/* A new recording with one reference, the caller's. NULL: out of memory. */
host_recording *host_recording_create(void);
void host_recording_release(host_recording *recording);
bool host_recording_done(host_recording *recording);
void host_recording_set_done(host_recording *recording, bool done);
void host_recording_wait(host_recording *recording);
/* tasks: both times are 0 if there was no task. */
void host_recording_complete(host_recording *recording, mm_task_times tasks, int64_t done_ns,
                             const mm_failure *failure);

/* ---------------------------------------------------------------- events (host_event.c) */

mm_status host_event_create(mm_device *device, mm_event **event_out);
void host_event_destroy(mm_event *event);
mm_status host_event_record(mm_event *event, mm_stream *stream);
mm_status host_event_wait(mm_stream *stream, mm_event *event);
mm_status host_event_sync(mm_event *event);
bool host_event_done(mm_event *event);
int64_t host_event_ns(mm_event *event);
mm_task_times host_event_tasks(mm_event *event);

/* ---------------------------------------------------------------- streams (host_stream.c) */

mm_status host_stream_create(mm_device *device, const char *name, int priority, mm_stream **stream_out);
void host_stream_destroy(mm_stream *stream);
/* mm_host_launch for the device's own tasks, of which device.c tells the watch. */
mm_status host_stream_launch(mm_stream *stream, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes);
mm_status host_stream_sync(mm_stream *stream);
void host_stream_reset(mm_stream *stream);
void host_stream_stats(mm_stream *stream, mm_stream_stats *stats_out);
void host_sleep_until(int64_t ns);
/* Called by the running task: when the device was done with the task before it, and with the events that the stream
 * waited for in between (clock.h). */
int64_t host_stream_at(const mm_stream *stream);
/* Called by the running task: says when it used the link. The end may be in the past. */
void host_stream_on_link(mm_stream *stream, mm_task_times times);
/* Runs a short task in the caller, if the stream has nothing to do. False: it has, and nothing was run. Not for tasks
 * that sleep. */
bool host_stream_run_short(mm_stream *stream, mm_status (*fn)(void *arg), void *arg);
/* Enqueues a wait for the recording, of which the stream takes over the caller's reference, also on failure. NULL: the
 * event was never recorded, MM_ERR_ORDER. */
mm_status host_stream_wait(mm_stream *stream, host_recording *recording);
/* Enqueues the recording. On success the stream takes over the caller's reference. */
mm_status host_stream_record(mm_stream *stream, host_recording *recording);

/* ---------------------------------------------------------------- work (host_work.c) */

mm_status host_copy_async(mm_stream *stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind);
mm_status host_fill_async(mm_stream *stream, void *dst, uint8_t byte, int64_t bytes);
mm_status host_checksum_async(mm_stream *stream, const void *src, int64_t bytes, uint64_t *sum_out);
mm_status host_mark_async(mm_stream *stream, void *dst, int64_t bytes, uint64_t word);
mm_status host_find_mark_async(mm_stream *stream, const void *src, int64_t bytes, const mm_mark *mark,
                               uint64_t *at_out);
mm_status host_sums_async(mm_stream *stream, const float *src, int64_t elems, void *scratch, mm_sums *sums_out);
mm_status host_call_async(mm_stream *stream, const mm_call *call);

#endif

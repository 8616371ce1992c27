/* SPDX-License-Identifier: MIT */
/* A stream of the host device: one thread that runs the tasks of one queue.
 *
 * Two buffers hold tasks one behind the other. Callers append to `filling`. When the thread has run all of `running`,
 * it swaps the two. So it takes the lock once for a batch, and a caller makes a system call only if the thread sleeps.
 *
 * A thread without tasks sleeps at once. Spinning first for 5, 20 or 50 us was measured, with three streams on two
 * cores: steps of 20 to 50 us became up to three times slower (5 us was faster if the caller synchronised after each
 * step); steps of 300 us did not change beyond noise.
 *
 * A caller runs a task itself if the stream has nothing to do and the task is short (host_stream_run_short): to wake
 * the thread would take longer. Meanwhile the stream is "borrowed", and the thread runs nothing.
 *
 *      filling  | task | arg ...    | task | task | arg ... |      free      |   under the lock
 *      running  | task | arg ... | task |               free                |   used by the thread alone
 * */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "mm/core/splitmix.h"
#include "mm/device/host/host_internal.h"
#include "mm/device/host/thread.h"

enum { BUFFER_FIRST_BYTES = 8192 };

typedef enum task_kind { TASK_CALL, TASK_WAIT, TASK_RECORD } task_kind;

typedef struct host_task {
    union {
        mm_status (*fn)(void *arg); /* CALL; the argument follows this struct */
        host_recording *recording;  /* WAIT, RECORD: holds a reference */
    };
    task_kind kind;
    uint32_t bytes; /* distance to the next task, a multiple of 16 */
    unsigned char arg[];
} host_task;

_Static_assert(sizeof(host_task) == 16, "the argument behind a task is aligned as the task is");

typedef struct task_buffer {
    unsigned char *bytes;
    size_t used, capacity;
} task_buffer;

typedef struct host_stream {
    mm_stream base;
    pthread_t thread;
    char name[16];
    bool urgent; /* the stream has a high priority: it has most of the work, and its thread seldom sleeps */
    /* used by the thread alone, or by the caller that has borrowed the stream */
    task_buffer running;
    mm_task_times tasks;   /* times of tasks since the last recording; both 0: no task */
    uint64_t delay_random; /* state of the generator of delays */
    int64_t at_ns;         /* when the device was done with the last task */
    mm_task_times link;    /* when the last task used the link; both 0: it did not */
    int64_t waited_ns;     /* mm_host_waited_until of the task that runs; 0: none */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work;  /* the thread waits here */
    pthread_cond_t progress;
    task_buffer filling;
    bool idle, borrowed, stopping;
    int64_t queued, finished; /* tasks of all kinds, since creation */
    int64_t calls_pending;    /* TASK_CALLs queued and not finished */
    int64_t calls_since_ns;   /* when calls_pending last rose from 0 */
    int syncing;              /* number of callers in mm_stream_sync */
    mm_failure failure;       /* the first since the last reset; only the thread sets it */
    mm_stream_stats stats;
} host_stream;

/* ---------------------------------------------------------------- queue */

static mm_status buffer_grow(host_stream *stream, task_buffer *buffer) {
    size_t capacity = 2 * buffer->capacity;
    unsigned char *bytes = realloc(buffer->bytes, capacity);
    if (bytes == NULL)
        return mm_fail(MM_ERR_NOMEM, "stream %s: no memory for a queue of %zu bytes", stream->name, capacity);
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    return MM_OK;
}

/* Appends a task and sets its bytes and kind; the caller sets the rest. Under the lock. */
static mm_status append_locked(host_stream *stream, task_kind kind, size_t arg_bytes, host_task **task_out) {
    task_buffer *buffer = &stream->filling;
    size_t bytes = (sizeof(host_task) + arg_bytes + 15) / 16 * 16;
    if (buffer->capacity - buffer->used < bytes) MM_TRY(buffer_grow(stream, buffer));
    host_task *task = (host_task *)(buffer->bytes + buffer->used);
    task->kind = kind;
    task->bytes = (uint32_t)bytes;
    buffer->used += bytes;
    stream->queued++;
    if (kind == TASK_CALL && stream->calls_pending++ == 0) stream->calls_since_ns = mm_now_ns();
    *task_out = task;
    return MM_OK;
}

/* Borrows the stream for a task that the caller runs, if nothing is queued or runs. Under the lock. */
static bool borrow_locked(host_stream *stream, task_kind kind) {
    if (!stream->idle || stream->borrowed || stream->filling.used > 0) return false;
    stream->borrowed = true;
    stream->queued++;
    if (kind == TASK_CALL && stream->calls_pending++ == 0) stream->calls_since_ns = mm_now_ns();
    return true;
}

static void unlock_and_wake(host_stream *stream) {
    bool wake = stream->idle;
    stream->idle = false;
    pthread_mutex_unlock(&stream->lock);
    if (wake) pthread_cond_signal(&stream->work);
}

/* ---------------------------------------------------------------- tasks */

void host_sleep_until(int64_t ns) {
    enum { NS_PER_S = 1000000000 };
    struct timespec until = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
}

static void delay(host_stream *stream) {
    const mm_device_config *config = &((host_device *)stream->base.device)->config;
    if (config->delay_seed == 0 || config->delay_max_ns == 0) return;
    uint64_t delay_ns = mm_random_next(&stream->delay_random) % ((uint64_t)config->delay_max_ns + 1);
    stream->at_ns = mm_now_ns() + (int64_t)delay_ns;
    host_sleep_until(stream->at_ns);
}

mm_host_pool *mm_host_codec_pool(mm_stream *stream) { return ((host_device *)stream->device)->codec_pool; }

int64_t host_stream_at(const mm_stream *stream) { return ((const host_stream *)stream)->at_ns; }

void host_stream_on_link(mm_stream *stream, mm_task_times times) { ((host_stream *)stream)->link = times; }

static _Thread_local host_stream *own_stream; /* the stream whose thread this is, or which this one has borrowed */

void mm_host_waited_until(int64_t ns) {
    if (own_stream) own_stream->waited_ns = ns;
}

/* Saves the first failure. Only the stream's thread sets it, so that thread reads it without the lock. */
static void poison(host_stream *stream, const mm_failure *failure) {
    if (stream->failure.status != MM_OK) return;
    pthread_mutex_lock(&stream->lock);
    stream->failure = *failure;
    pthread_mutex_unlock(&stream->lock);
}

/* Returns how long the task ran, in ns; -1 if it was skipped. */
static int64_t run_call(host_stream *stream, mm_status (*fn)(void *arg), void *arg) {
    if (stream->failure.status != MM_OK) return -1;
    delay(stream);
    mm_task_times times = {.began_ns = mm_now_ns()};
    stream->link = (mm_task_times){0};
    stream->waited_ns = 0;
    host_stream *const before = own_stream;
    own_stream = stream;
    mm_status status = fn(arg);
    own_stream = before;
    times.ended_ns = mm_now_ns();
    if (stream->link.ended_ns > 0) times = stream->link;
    if (stream->waited_ns > 0)
        times.began_ns = times.ended_ns = stream->waited_ns > stream->at_ns ? stream->waited_ns : stream->at_ns;
    if (stream->tasks.began_ns == 0) stream->tasks.began_ns = times.began_ns;
    stream->tasks.ended_ns = stream->at_ns = times.ended_ns;
    if (status != MM_OK) {
        mm_failure failure;
        mm_failure_save(&failure, status);
        poison(stream, &failure);
    }
    return times.ended_ns - times.began_ns;
}

/* A poisoned stream waits too, so that a completed event still means that all tasks before it are over. */
static void run_wait(host_stream *stream, host_recording *recording) {
    if (!host_recording_done(recording)) {
        int64_t start_ns = mm_now_ns();
        host_recording_wait(recording);
        pthread_mutex_lock(&stream->lock);
        /* All calls before this wait have finished, so pending calls are queued behind it. */
        if (stream->calls_pending > 0) {
            int64_t since_ns = start_ns > stream->calls_since_ns ? start_ns : stream->calls_since_ns;
            stream->stats.wait_ns += mm_now_ns() - since_ns;
        }
        pthread_mutex_unlock(&stream->lock);
    }
    if (recording->failure.status != MM_OK) poison(stream, &recording->failure);
    if (recording->done_ns > stream->at_ns) stream->at_ns = recording->done_ns;
    host_recording_release(recording);
}

/* After a copy over the link, the recording completes when the link is done, not when the thread comes here. */
static void run_record(host_stream *stream, host_recording *recording) {
    int64_t done_ns = mm_now_ns();
    if (stream->link.ended_ns > 0)
        done_ns = stream->at_ns > recording->queued_ns ? stream->at_ns : recording->queued_ns;
    host_recording_complete(recording, stream->tasks, done_ns, &stream->failure);
    stream->tasks = (mm_task_times){0};
    host_recording_release(recording);
}

/* Counts a task that has run. Returns whether somebody waits for it. Under the lock. */
static bool finish_locked(host_stream *stream, task_kind kind, int64_t busy_ns) {
    stream->finished++;
    if (kind == TASK_CALL) stream->calls_pending--;
    if (busy_ns >= 0) {
        stream->stats.tasks++;
        stream->stats.busy_ns += busy_ns;
    }
    return stream->syncing > 0;
}

static void finish(host_stream *stream, task_kind kind, int64_t busy_ns) {
    pthread_mutex_lock(&stream->lock);
    const bool wake = finish_locked(stream, kind, busy_ns);
    pthread_mutex_unlock(&stream->lock);
    if (wake) pthread_cond_broadcast(&stream->progress);
}

/* Ends the task for which the caller borrowed the stream. */
static void give_back(host_stream *stream, task_kind kind, int64_t busy_ns) {
    pthread_mutex_lock(&stream->lock);
    const bool wake = finish_locked(stream, kind, busy_ns);
    stream->borrowed = false;
    if (stream->filling.used > 0)
        unlock_and_wake(stream);
    else
        pthread_mutex_unlock(&stream->lock);
    if (wake) pthread_cond_broadcast(&stream->progress);
}

/* ---------------------------------------------------------------- calls */

static mm_status enqueue(mm_stream *base, task_kind kind, host_recording *recording) {
    host_stream *stream = (host_stream *)base;
    host_task *task;
    pthread_mutex_lock(&stream->lock);
    if ((kind == TASK_RECORD || host_recording_done(recording)) && borrow_locked(stream, kind)) {
        pthread_mutex_unlock(&stream->lock);
        if (kind == TASK_RECORD)
            run_record(stream, recording);
        else
            run_wait(stream, recording);
        give_back(stream, kind, -1);
        return MM_OK;
    }
    mm_status status = append_locked(stream, kind, 0, &task);
    if (status == MM_OK) task->recording = recording;
    unlock_and_wake(stream);
    return status;
}

bool host_stream_run_short(mm_stream *base, mm_status (*fn)(void *arg), void *arg) {
    host_stream *stream = (host_stream *)base;
    pthread_mutex_lock(&stream->lock);
    const bool here = borrow_locked(stream, TASK_CALL);
    pthread_mutex_unlock(&stream->lock);
    if (here) give_back(stream, TASK_CALL, run_call(stream, fn, arg));
    return here;
}

mm_status host_stream_launch(mm_stream *base, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes) {
    host_stream *stream = (host_stream *)base;
    host_task *task;
    if (base->device->ops->stream_create != host_stream_create)
        return mm_fail(MM_ERR_UNSUPPORTED, "mm_host_launch needs a stream of the host device, not of %s",
                       base->device->ops->name);
    if (fn == NULL || arg_bytes > MM_HOST_ARG_CAPACITY)
        return mm_fail(MM_ERR_INVALID,
                       "mm_host_launch on stream %s: the function is %s; the argument has %zu bytes, at most %d fit",
                       stream->name, fn == NULL ? "missing" : "given", arg_bytes, MM_HOST_ARG_CAPACITY);
    pthread_mutex_lock(&stream->lock);
    mm_status status = append_locked(stream, TASK_CALL, arg_bytes, &task);
    if (status == MM_OK) {
        task->fn = fn;
        if (arg_bytes > 0) memcpy(task->arg, arg, arg_bytes);
    }
    unlock_and_wake(stream);
    return status;
}

mm_status mm_host_launch(mm_stream *stream, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes) {
    MM_TRY(host_stream_launch(stream, fn, arg, arg_bytes));
    mm_device_tell(stream->device, &(mm_issued){MM_ISSUED_TASK, .stream = (uint64_t)(uintptr_t)stream});
    return MM_OK;
}

mm_status host_stream_record(mm_stream *stream, host_recording *recording) {
    recording->queued_ns = mm_now_ns();
    return enqueue(stream, TASK_RECORD, recording);
}

mm_status host_stream_wait(mm_stream *base, host_recording *recording) {
    if (recording == NULL)
        return mm_fail(MM_ERR_ORDER, "stream %s cannot wait for an event that was never recorded",
                       ((host_stream *)base)->name);
    mm_status status = enqueue(base, TASK_WAIT, recording);
    if (status != MM_OK) host_recording_release(recording);
    return status;
}

/* ---------------------------------------------------------------- the thread */

static void run_batch(host_stream *stream) {
    task_buffer *batch = &stream->running;
    for (size_t at = 0; at < batch->used;) {
        host_task *task = (host_task *)(batch->bytes + at);
        int64_t busy_ns = -1;
        switch (task->kind) {
        case TASK_CALL:
            busy_ns = run_call(stream, task->fn, task->arg);
            break;
        case TASK_WAIT:
            run_wait(stream, task->recording);
            break;
        case TASK_RECORD:
            run_record(stream, task->recording);
            break;
        }
        finish(stream, task->kind, busy_ns);
        at += task->bytes;
    }
    batch->used = 0;
}

static void *stream_main(void *arg) {
    host_stream *stream = own_stream = arg;
    pthread_setname_np(pthread_self(), stream->name);
    prctl(PR_SET_TIMERSLACK, 1UL); /* ns: delays and the simulated link sleep exactly */
    if (!stream->urgent) mm_thread_run_soon();
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while ((stream->filling.used == 0 || stream->borrowed) && !stream->stopping) {
            stream->idle = true;
            pthread_cond_wait(&stream->work, &stream->lock);
        }
        stream->idle = false;
        if (stream->filling.used == 0) break;
        task_buffer batch = stream->filling;
        stream->filling = stream->running;
        stream->running = batch;
        pthread_mutex_unlock(&stream->lock);
        run_batch(stream);
        pthread_mutex_lock(&stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* ---------------------------------------------------------------- life */

static void stream_free(host_stream *stream) {
    pthread_cond_destroy(&stream->progress);
    pthread_cond_destroy(&stream->work);
    pthread_mutex_destroy(&stream->lock);
    free(stream->running.bytes);
    free(stream->filling.bytes);
    free(stream);
}

static mm_status buffer_init(host_stream *stream, task_buffer *buffer) {
    buffer->bytes = malloc(BUFFER_FIRST_BYTES);
    if (buffer->bytes == NULL)
        return mm_fail(MM_ERR_NOMEM, "stream %s: no memory for a queue of %d bytes", stream->name, BUFFER_FIRST_BYTES);
    buffer->capacity = BUFFER_FIRST_BYTES;
    return MM_OK;
}

/* The thread blocks all signals, so that the application's threads get them. */
static mm_status thread_start(host_stream *stream) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&stream->thread, NULL, stream_main, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) return MM_OK;
    return mm_fail(MM_ERR_DEVICE, "stream %s: cannot start its thread: %s", stream->name, strerror(error));
}

mm_status host_stream_create(mm_device *base, const char *name, int priority, mm_stream **stream_out) {
    host_device *device = (host_device *)base;
    mm_status status;
    host_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) return mm_fail(MM_ERR_NOMEM, "stream %s: no memory for %zu bytes", name, sizeof *stream);
    stream->base.device = base;
    stream->urgent = priority < 0; /* the thread's own priority stays normal: a higher one needs a privilege */
    snprintf(stream->name, sizeof stream->name, "%s", name);
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->work, NULL);
    pthread_cond_init(&stream->progress, NULL);
    stream->delay_random = device->config.delay_seed ^ ((uint64_t)atomic_fetch_add(&device->streams_created, 1) << 32);
    if ((status = buffer_init(stream, &stream->filling)) != MM_OK) goto err_free;
    if ((status = buffer_init(stream, &stream->running)) != MM_OK) goto err_free;
    if ((status = thread_start(stream)) != MM_OK) goto err_free;
    atomic_fetch_add(&device->alive, 1);
    *stream_out = &stream->base;
    return MM_OK;
err_free:
    stream_free(stream);
    return status;
}

void host_stream_destroy(mm_stream *base) {
    host_stream *stream = (host_stream *)base;
    host_device *device = (host_device *)base->device;
    pthread_mutex_lock(&stream->lock);
    stream->stopping = true;
    unlock_and_wake(stream);
    pthread_join(stream->thread, NULL);
    stream_free(stream);
    atomic_fetch_sub(&device->alive, 1);
}

/* Tasks enqueued during the call are not waited for. */
static void wait_finished_locked(host_stream *stream, int64_t target) {
    stream->syncing++;
    while (stream->finished < target) pthread_cond_wait(&stream->progress, &stream->lock);
    stream->syncing--;
}

mm_status host_stream_sync(mm_stream *base) {
    host_stream *stream = (host_stream *)base;
    pthread_mutex_lock(&stream->lock);
    wait_finished_locked(stream, stream->queued);
    mm_status status = mm_failure_restore(&stream->failure);
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* A caller that learned from an event that the stream is drained may come before `finished` counts the last task. */
void host_stream_reset(mm_stream *base) {
    host_stream *stream = (host_stream *)base;
    pthread_mutex_lock(&stream->lock);
    wait_finished_locked(stream, stream->queued);
    stream->failure.status = MM_OK;
    pthread_mutex_unlock(&stream->lock);
}

void host_stream_stats(mm_stream *base, mm_stream_stats *stats_out) {
    host_stream *stream = (host_stream *)base;
    pthread_mutex_lock(&stream->lock);
    *stats_out = stream->stats;
    pthread_mutex_unlock(&stream->lock);
}

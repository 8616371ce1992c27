/* SPDX-License-Identifier: MIT */
/* Streams: threads with a FIFO. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "tests/cuda_emulation/runtime.h"

task *task_create(task_kind kind, void (*run)(void *arg), void *arg, void (*release)(void *arg)) {
    task *t = calloc(1, sizeof *t);
    if (!t) {
        if (release) release(arg);
        return NULL;
    }
    *t = (task){.kind = kind, .run = run, .arg = arg, .release = release};
    return t;
}

void task_destroy(task *t) {
    if (t->recording) recording_release(t->recording);
    if (t->release) t->release(t->arg);
    free(t);
}

static bool has_failed(void) {
    pthread_mutex_lock(&runtime.lock);
    bool failed = runtime.fault != cudaSuccess;
    pthread_mutex_unlock(&runtime.lock);
    return failed;
}

void task_perform(const task *t) {
    if (!has_failed()) t->run(t->arg);
}

/* ---------------------------------------------------------------- the thread */

/* Under runtime.lock: pretended time, which is added to the real one, and how much of it each kernel adds. */
static int64_t passed_ns, kernel_ns;

static int64_t now_ns_locked(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return passed_ns + (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void cuda_emulation_pass(int64_t ns) {
    pthread_mutex_lock(&runtime.lock);
    passed_ns += ns;
    pthread_mutex_unlock(&runtime.lock);
}

void cuda_emulation_pass_kernel(void) {
    pthread_mutex_lock(&runtime.lock);
    passed_ns += kernel_ns;
    pthread_mutex_unlock(&runtime.lock);
}

void cuda_emulation_slow_kernels(int64_t ns) {
    pthread_mutex_lock(&runtime.lock);
    kernel_ns = ns;
    pthread_mutex_unlock(&runtime.lock);
}

/* Opens or closes device memory: it is open from a stream's first task until the stream has none, or waits. */
static void open_locked(cudaStream_t stream, bool open) {
    if (open == stream->open) return;
    stream->open = open;
    open ? memory_open_locked(stream->device) : memory_close_locked(stream->device);
}

/* Functions of the CPU run one at a time, whatever their streams, as CUDA may do it: one that waits for another never
 * ends. */
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;

static void perform_locked(cudaStream_t stream, task *t) {
    switch (t->kind) {
    case TASK_RUN:
    case TASK_CALL:
        open_locked(stream, true);
        pthread_mutex_unlock(&runtime.lock);
        if (t->kind == TASK_CALL) pthread_mutex_lock(&calls);
        task_perform(t);
        if (t->kind == TASK_CALL) pthread_mutex_unlock(&calls);
        pthread_mutex_lock(&runtime.lock);
        break;
    case TASK_RECORD:
        if (!stream->head) open_locked(stream, false); /* before anyone sees the recording */
        t->recording->ns = now_ns_locked();
        t->recording->done = true;
        break;
    case TASK_WAIT:
        if (!t->recording->done) open_locked(stream, false);
        while (!t->recording->done) pthread_cond_wait(&runtime.progress, &runtime.lock);
        break;
    }
    task_destroy(t);
}

static void *stream_main(void *arg) {
    cudaStream_t stream = arg;
    pthread_mutex_lock(&runtime.lock);
    for (;;) {
        while (!stream->head && !stream->stopping) pthread_cond_wait(&stream->work, &runtime.lock);
        task *t = stream->head;
        if (!t) break;
        stream->head = t->next;
        if (!stream->head) stream->tail = NULL;
        perform_locked(stream, t);
        stream->finished++;
        if (!stream->head) open_locked(stream, false);
        pthread_cond_broadcast(&runtime.progress);
    }
    pthread_mutex_unlock(&runtime.lock);
    return NULL;
}

cudaError_t stream_append_locked(cudaStream_t stream, task *t) {
    if (stream->capture) {
        if (stream->capture->invalid) {
            task_destroy(t);
            return cudaErrorStreamCaptureInvalidated;
        }
        capture_add_node(stream, t);
        return cudaSuccess;
    }
    if (stream->tail)
        stream->tail->next = t;
    else
        stream->head = t;
    stream->tail = t;
    stream->queued++;
    pthread_cond_signal(&stream->work);
    return cudaSuccess;
}

static cudaError_t append(cudaStream_t stream, task *t) {
    pthread_mutex_lock(&runtime.lock);
    cudaError_t error = stream_append_locked(stream, t);
    pthread_mutex_unlock(&runtime.lock);
    return runtime_failed(error);
}

static bool is_alive(cudaStream_t stream) {
    pthread_mutex_lock(&runtime.lock);
    cudaStream_t s = runtime.streams;
    while (s && s != stream) s = s->next_alive;
    pthread_mutex_unlock(&runtime.lock);
    return s != NULL;
}

static void forget_locked(cudaStream_t stream) {
    cudaStream_t *at = &runtime.streams;
    while (*at != stream) at = &(*at)->next_alive;
    *at = stream->next_alive;
    runtime.alive.streams--;
    runtime.alive.urgent -= stream->priority < 0;
}

/* ---------------------------------------------------------------- life */

enum { MOST_URGENT = -5 }; /* a Hopper's greatest priority */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int priority) {
    ENTER(cudaStreamCreateWithPriority);
    if (flags != cudaStreamNonBlocking) return runtime_failed(cudaErrorInvalidValue);
    cudaStream_t stream = calloc(1, sizeof *stream);
    if (!stream) return runtime_failed(cudaErrorMemoryAllocation);
    stream->device = runtime_device();
    pthread_cond_init(&stream->work, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&stream->thread, NULL, stream_main, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        pthread_cond_destroy(&stream->work);
        free(stream);
        return runtime_failed(cudaErrorMemoryAllocation);
    }
    pthread_mutex_lock(&runtime.lock);
    stream->next_alive = runtime.streams;
    runtime.streams = stream;
    runtime.alive.streams++;
    stream->priority = priority > 0 ? 0 : priority < MOST_URGENT ? MOST_URGENT : priority;
    runtime.alive.urgent += stream->priority < 0;
    pthread_mutex_unlock(&runtime.lock);
    *out = stream;
    return cudaSuccess;
}

/* The real one returns at once, and the stream ends when its work is done; this one waits for the work. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    cudaError_t error = runtime_enter(CALL_cudaStreamDestroy);
    if (!stream) return runtime_failed(cudaErrorInvalidResourceHandle);
    if (error == cudaSuccess) error = runtime_on(stream->device);
    pthread_mutex_lock(&runtime.lock);
    if (stream->capture) capture_invalidate(stream->capture);
    stream->stopping = true;
    pthread_cond_signal(&stream->work);
    pthread_mutex_unlock(&runtime.lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&runtime.lock);
    forget_locked(stream);
    pthread_mutex_unlock(&runtime.lock);
    pthread_cond_destroy(&stream->work);
    free(stream);
    return error;
}

/* A call that waits for a captured stream makes the capture invalid. */
static cudaError_t refuse_captured_locked(cudaStream_t stream) {
    if (!stream->capture) return cudaSuccess;
    capture_invalidate(stream->capture);
    return cudaErrorStreamCaptureUnsupported;
}

/* Waits until the work is over even if it returns a failure: the caller may then free what the work uses. */
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    cudaError_t error = runtime_enter_unsafe(CALL_cudaStreamSynchronize);
    if (!stream) return runtime_failed(cudaErrorInvalidResourceHandle);
    ON(stream->device);
    pthread_mutex_lock(&runtime.lock);
    cudaError_t refused = refuse_captured_locked(stream);
    if (error == cudaSuccess) error = refused;
    for (long target = stream->queued; refused == cudaSuccess && stream->finished < target;)
        pthread_cond_wait(&runtime.progress, &runtime.lock);
    if (error == cudaSuccess) error = runtime.fault;
    pthread_mutex_unlock(&runtime.lock);
    return runtime_failed(error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    ENTER_UNSAFE(cudaStreamQuery);
    if (!stream) return runtime_failed(cudaErrorInvalidResourceHandle);
    ON(stream->device);
    pthread_mutex_lock(&runtime.lock);
    cudaError_t error = refuse_captured_locked(stream);
    bool busy = stream->finished < stream->queued;
    pthread_mutex_unlock(&runtime.lock);
    if (error == cudaSuccess && busy) error = cudaErrorNotReady;
    return runtime_failed(error);
}

/* Not supported, because no code of this project needs it. It exists so that calls are counted. */
cudaError_t cudaDeviceSynchronize(void) {
    ENTER_UNSAFE(cudaDeviceSynchronize);
    return runtime_failed(cudaErrorNotSupported);
}

/* ---------------------------------------------------------------- work */

cudaError_t cuda_emulation_launch_check(cudaStream_t stream) {
    cudaError_t error = runtime_enter(CALL_kernel_launch);
    if (error == cudaSuccess && stream && !is_alive(stream)) error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess && stream) error = runtime_on(stream->device);
    return runtime_failed(error);
}

cudaError_t cuda_emulation_enqueue(cudaStream_t stream, void (*run)(void *arg), void *arg) {
    cudaError_t error = cuda_emulation_launch_check(stream);
    if (error == cudaSuccess && !stream) error = cudaErrorInvalidResourceHandle;
    if (error != cudaSuccess) {
        free(arg);
        return runtime_failed(error);
    }
    task *t = task_create(TASK_RUN, run, arg, free);
    return t ? append(stream, t) : runtime_failed(cudaErrorMemoryAllocation);
}

/* The last launches, in a ring; under runtime.lock. */
static cuda_emulation_launch launches[1024];
static long launches_kept;
enum { LAUNCHES = sizeof launches / sizeof launches[0] };

void cuda_emulation_launched(cudaStream_t stream, const char *kernel, long blocks, long threads, size_t shared_bytes,
                             size_t shared_limit) {
    pthread_mutex_lock(&runtime.lock);
    launches[launches_kept++ % LAUNCHES] =
        (cuda_emulation_launch){kernel, blocks, threads, shared_bytes, shared_limit, stream->priority};
    pthread_mutex_unlock(&runtime.lock);
}

cuda_emulation_launch cuda_emulation_launch_get(long i) {
    pthread_mutex_lock(&runtime.lock);
    const bool known = i < LAUNCHES && i < launches_kept;
    const cuda_emulation_launch launch =
        known ? launches[(launches_kept - 1 - i) % LAUNCHES] : (cuda_emulation_launch){0};
    pthread_mutex_unlock(&runtime.lock);
    return launch;
}

void runtime_forget_launches(void) { launches_kept = 0; }

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data) {
    ENTER(cudaLaunchHostFunc);
    if (!stream || !fn) return runtime_failed(cudaErrorInvalidValue);
    ON(stream->device);
    task *t = task_create(TASK_CALL, fn, data, NULL);
    return t ? append(stream, t) : runtime_failed(cudaErrorMemoryAllocation);
}

/* ---------------------------------------------------------------- events */

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    ENTER(cudaStreamWaitEvent);
    if (!stream || !event || flags != cudaEventWaitDefault) return runtime_failed(cudaErrorInvalidValue);
    ON(stream->device);
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&runtime.lock);
    if (event->captured || stream->capture)
        error = capture_wait(stream, event);
    else if (event->last && !event->last->done) { /* CUDA does not wait for an event never recorded */
        task *t = task_create(TASK_WAIT, NULL, NULL, NULL);
        if (t) {
            t->recording = event->last;
            t->recording->references++;
            error = stream_append_locked(stream, t);
        } else
            error = cudaErrorMemoryAllocation;
    }
    pthread_mutex_unlock(&runtime.lock);
    return runtime_failed(error);
}

static cudaError_t record_locked(cudaEvent_t event, cudaStream_t stream) {
    if (stream->capture) {
        if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
        capture_record(stream, event);
        return cudaSuccess;
    }
    recording *of = recording_create();
    task *t = of ? task_create(TASK_RECORD, NULL, NULL, NULL) : NULL;
    if (!t) {
        if (of) recording_release(of);
        return cudaErrorMemoryAllocation;
    }
    t->recording = of;
    of->references++;
    if (event->last) recording_release(event->last);
    event->last = of;
    event->captured = 0;
    return stream_append_locked(stream, t);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    ENTER(cudaEventRecord);
    if (!event || !stream) return runtime_failed(cudaErrorInvalidResourceHandle);
    ON(stream->device);
    ON(event->device);
    pthread_mutex_lock(&runtime.lock);
    cudaError_t error = record_locked(event, stream);
    pthread_mutex_unlock(&runtime.lock);
    return runtime_failed(error);
}

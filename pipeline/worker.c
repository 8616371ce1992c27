/* SPDX-License-Identifier: MIT */
#include "pipeline/worker.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct mm_worker {
    mm_stream *stream;
    mm_worker_fn fn;
    void *ctx;
    bool threaded;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work; /* something queued, or stopping */
    pthread_cond_t idle; /* nothing queued, nothing running */
    /* under the lock: a ring of `capacity` jobs */
    int32_t *jobs;
    int capacity, head, count;
    bool running, stopping;
};

static void *worker_loop(void *arg) {
    mm_worker *w = arg;
    mm_device *device = w->stream->device;
    bool entered;
    mm_status status = mm_device_enter(device, &entered);
    (void)status; /* if this failed, each job fails in the same way, and reports the failure */
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->count == 0 && !w->stopping) pthread_cond_wait(&w->work, &w->lock);
        if (w->count == 0) break;
        int32_t job = w->jobs[w->head];
        w->head = (w->head + 1) % w->capacity;
        w->count--;
        w->running = true;
        pthread_mutex_unlock(&w->lock);
        w->fn(w->ctx, job);
        pthread_mutex_lock(&w->lock);
        w->running = false;
        if (w->count == 0) pthread_cond_broadcast(&w->idle);
    }
    pthread_mutex_unlock(&w->lock);
    mm_device_leave(device, entered);
    return NULL;
}

/* The thread blocks all signals, so that the application's threads get them. */
static bool start_thread(mm_worker *w) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&w->thread, NULL, worker_loop, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

mm_status mm_worker_create(mm_device *device, const char *name, bool threaded, mm_worker_fn fn, void *ctx,
                           mm_worker **worker_out) {
    mm_worker *w = calloc(1, sizeof *w);
    if (!w) return mm_fail(MM_ERR_NOMEM, "out of memory for a worker");
    w->fn = fn;
    w->ctx = ctx;
    w->threaded = threaded;
    mm_status status = mm_stream_create(device, name, 0, &w->stream);
    if (status != MM_OK) goto err_free;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    pthread_cond_init(&w->idle, NULL);
    if (threaded && !start_thread(w)) {
        status = mm_fail(MM_ERR_NOMEM, "cannot start the thread of worker %s", name);
        goto err_stream;
    }
    *worker_out = w;
    return MM_OK;
err_stream:
    pthread_cond_destroy(&w->idle);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
    mm_stream_destroy(w->stream);
err_free:
    free(w);
    return status;
}

void mm_worker_destroy(mm_worker *w) {
    if (!w) return;
    if (w->threaded) {
        pthread_mutex_lock(&w->lock);
        w->stopping = true;
        pthread_cond_signal(&w->work);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
    }
    mm_stream_destroy(w->stream);
    pthread_cond_destroy(&w->idle);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
    free(w->jobs);
    free(w);
}

mm_stream *mm_worker_stream(const mm_worker *w) { return w->stream; }

mm_status mm_worker_reserve(mm_worker *w, int jobs) {
    if (jobs <= w->capacity) return MM_OK;
    int32_t *ring = malloc((size_t)jobs * sizeof *ring);
    if (!ring) return mm_fail(MM_ERR_NOMEM, "out of memory for a queue of %d operations", jobs);
    pthread_mutex_lock(&w->lock);
    assert(w->count == 0);
    int32_t *old = w->jobs;
    w->jobs = ring;
    w->capacity = jobs;
    w->head = 0;
    pthread_mutex_unlock(&w->lock);
    free(old);
    return MM_OK;
}

void mm_worker_push(mm_worker *w, int32_t job) {
    if (!w->threaded) {
        w->fn(w->ctx, job);
        return;
    }
    pthread_mutex_lock(&w->lock);
    assert(w->count < w->capacity);
    w->jobs[(w->head + w->count) % w->capacity] = job;
    bool wake = w->count++ == 0 && !w->running;
    pthread_mutex_unlock(&w->lock);
    if (wake) pthread_cond_signal(&w->work);
}

void mm_worker_drain(mm_worker *w) {
    if (!w->threaded) return;
    pthread_mutex_lock(&w->lock);
    while (w->count > 0 || w->running) pthread_cond_wait(&w->idle, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void mm_worker_cancel(mm_worker *w) {
    if (!w->threaded) return;
    pthread_mutex_lock(&w->lock);
    w->count = 0;
    while (w->running) pthread_cond_wait(&w->idle, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

/* SPDX-License-Identifier: MIT */
/* Events and their recordings. */
#include <stdlib.h>

#include "tests/cuda_emulation/runtime.h"

recording *recording_create(void) {
    recording *of = calloc(1, sizeof *of);
    if (of) of->references = 1;
    return of;
}

void recording_release(recording *of) {
    if (--of->references == 0) free(of);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags) {
    ENTER(cudaEventCreateWithFlags);
    cudaEvent_t event = calloc(1, sizeof *event);
    if (!event) return runtime_failed(cudaErrorMemoryAllocation);
    event->device = runtime_device();
    event->timed = !(flags & cudaEventDisableTiming);
    pthread_mutex_lock(&runtime.lock);
    runtime.alive.events++;
    pthread_mutex_unlock(&runtime.lock);
    *out = event;
    return cudaSuccess;
}

/* Streams that still wait for the event have references to its recording, so the event may go first. */
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    cudaError_t error = runtime_enter(CALL_cudaEventDestroy);
    if (!event) return runtime_failed(cudaErrorInvalidResourceHandle);
    if (error == cudaSuccess) error = runtime_on(event->device);
    pthread_mutex_lock(&runtime.lock);
    if (event->last) recording_release(event->last);
    runtime.alive.events--;
    pthread_mutex_unlock(&runtime.lock);
    free(event);
    return error;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    cudaError_t error = runtime_enter_unsafe(CALL_cudaEventSynchronize);
    if (!event) return runtime_failed(cudaErrorInvalidResourceHandle);
    ON(event->device);
    pthread_mutex_lock(&runtime.lock);
    if (error == cudaSuccess && event->captured) error = cudaErrorCapturedEvent;
    if (event->last && !event->captured) {
        recording *of = event->last;
        of->references++;
        while (!of->done) pthread_cond_wait(&runtime.progress, &runtime.lock);
        recording_release(of);
    }
    if (error == cudaSuccess) error = runtime.fault;
    pthread_mutex_unlock(&runtime.lock);
    return runtime_failed(error);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    ENTER_UNSAFE(cudaEventQuery);
    if (!event) return runtime_failed(cudaErrorInvalidResourceHandle);
    ON(event->device);
    pthread_mutex_lock(&runtime.lock);
    cudaError_t error = event->captured                     ? cudaErrorCapturedEvent
                        : event->last && !event->last->done ? cudaErrorNotReady
                                                            : cudaSuccess;
    pthread_mutex_unlock(&runtime.lock);
    return runtime_failed(error);
}

static cudaError_t elapsed_locked(float *ms, cudaEvent_t start, cudaEvent_t end) {
    if (!start->timed || !end->timed || !start->last || !end->last) return cudaErrorInvalidResourceHandle;
    if (start->captured || end->captured) return cudaErrorCapturedEvent;
    if (!start->last->done || !end->last->done) return cudaErrorNotReady;
    *ms = (float)((double)(end->last->ns - start->last->ns) / 1e6);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    ENTER(cudaEventElapsedTime);
    if (!start || !end) return runtime_failed(cudaErrorInvalidResourceHandle);
    ON(start->device);
    ON(end->device);
    pthread_mutex_lock(&runtime.lock);
    cudaError_t error = elapsed_locked(ms, start, end);
    pthread_mutex_unlock(&runtime.lock);
    return runtime_failed(error);
}

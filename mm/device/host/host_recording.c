/* SPDX-License-Identifier: MIT */
/* Recordings of events of the host device. */
#include <stdlib.h>

#include "mm/device/host/host_internal.h"

host_recording *host_recording_create(void) {
    host_recording *recording = calloc(1, sizeof *recording);
    if (recording == NULL) return NULL;
    atomic_init(&recording->references, 1);
    pthread_mutex_init(&recording->lock, NULL);
    pthread_cond_init(&recording->completed, NULL);
    return recording;
}

void host_recording_release(host_recording *recording) {
    if (atomic_fetch_sub_explicit(&recording->references, 1, memory_order_acq_rel) > 1) return;
    pthread_mutex_destroy(&recording->lock);
    pthread_cond_destroy(&recording->completed);
    free(recording);
}

bool host_recording_done(host_recording *recording) {
    pthread_mutex_lock(&recording->lock);
    bool done = recording->done;
    pthread_mutex_unlock(&recording->lock);
    return done;
}

void host_recording_wait(host_recording *recording) {
    pthread_mutex_lock(&recording->lock);
    while (!recording->done) pthread_cond_wait(&recording->completed, &recording->lock);
    pthread_mutex_unlock(&recording->lock);
}

void host_recording_complete(host_recording *recording, mm_task_times tasks, int64_t done_ns,
                             const mm_failure *failure) {
    pthread_mutex_lock(&recording->lock);
    recording->failure.status = failure->status;
    if (failure->status != MM_OK) recording->failure = *failure;
    recording->done_ns = done_ns;
    recording->tasks = tasks.began_ns > 0 ? tasks : (mm_task_times){recording->done_ns, recording->done_ns};
    recording->done = true;
    pthread_mutex_unlock(&recording->lock);
    pthread_cond_broadcast(&recording->completed);
}

void host_recording_set_done(host_recording *recording, bool done) {
    pthread_mutex_lock(&recording->lock);
    recording->done = done;
    pthread_mutex_unlock(&recording->lock);
}

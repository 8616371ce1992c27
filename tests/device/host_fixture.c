/* SPDX-License-Identifier: MIT */
#include "tests/device/host_fixture.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

int host_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) n += entry->d_name[0] != '.';
    closedir(tasks);
    return n;
}

void host_threads_wait(int count) {
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 10000 && host_threads() > count; i++) nanosleep(&pause, NULL);
    assert_true(host_threads() <= count);
}

static void *tell_id(void *arg) {
    *(pid_t *)arg = gettid();
    return NULL;
}

int host_threads_settle(void **state) {
    (void)state;
    const struct timespec pause = {.tv_nsec = 1000000};
    pthread_t thread;
    pid_t id;
    char path[64];
    assert_int_equal(pthread_create(&thread, NULL, tell_id, &id), 0);
    pthread_join(thread, NULL);
    snprintf(path, sizeof path, "/proc/self/task/%d", (int)id);
    for (int i = 0; i < 10000 && access(path, F_OK) == 0; i++) nanosleep(&pause, NULL);
    return 0;
}

void host_fixture_init(host_fixture *fixture, const mm_device_config *config) {
    host_threads_settle(NULL);
    fixture->threads_before = host_threads();
    assert_int_equal(mm_device_create("host", config, &fixture->device), MM_OK);
    for (int i = 0; i < FIXTURE_STREAMS; i++) {
        char name[32];
        snprintf(name, sizeof name, "test-%d", i);
        assert_int_equal(mm_stream_create(fixture->device, name, 0, &fixture->stream[i]), MM_OK);
    }
    for (int i = 0; i < FIXTURE_EVENTS; i++)
        assert_int_equal(mm_event_create(fixture->device, &fixture->event[i]), MM_OK);
}

void host_fixture_fini(host_fixture *fixture) {
    mm_memory_info info;
    for (int i = 0; i < FIXTURE_EVENTS; i++) mm_event_destroy(fixture->event[i]);
    for (int i = 0; i < FIXTURE_STREAMS; i++) mm_stream_destroy(fixture->stream[i]);
    mm_device_memory_info(fixture->device, &info);
    assert_int_equal(info.reserved_bytes, 0);
    mm_device_destroy(fixture->device);
    host_threads_wait(fixture->threads_before);
}

int host_fixture_setup(void **state) {
    host_fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    host_fixture_init(fixture, NULL);
    *state = fixture;
    return 0;
}

int host_fixture_teardown(void **state) {
    host_fixture_fini(*state);
    free(*state);
    return 0;
}

/* ---------------------------------------------------------------- gate */

static mm_status gate_run(void *arg) {
    host_gate *gate = *(host_gate **)arg;
    pthread_mutex_lock(&gate->lock);
    gate->reached = true;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open) pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
    return MM_OK;
}

void host_gate_launch(host_gate *gate, mm_stream *stream) {
    assert_int_equal(mm_host_launch(stream, gate_run, &gate, sizeof gate), MM_OK);
}

void host_gate_wait_reached(host_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    while (!gate->reached) pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

void host_gate_open(host_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

/* ---------------------------------------------------------------- tasks */

typedef struct store_task {
    int *value;
    int number;
} store_task;

static mm_status store_run(void *arg) {
    const store_task *store = arg;
    *store->value = store->number;
    return MM_OK;
}

void host_launch_store(mm_stream *stream, int *value, int number) {
    const store_task store = {value, number};
    assert_int_equal(mm_host_launch(stream, store_run, &store, sizeof store), MM_OK);
}

static mm_status failure_run(void *arg) { return mm_fail(MM_ERR_DEVICE, "task %d broke", *(const int *)arg); }

void host_launch_failure(mm_stream *stream, int number) {
    assert_int_equal(mm_host_launch(stream, failure_run, &number, sizeof number), MM_OK);
}

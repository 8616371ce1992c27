/* SPDX-License-Identifier: MIT */
/* Fixture for tests of the host device: streams, events, tasks that block, and a check that nothing is left behind. */
#ifndef TESTS_DEVICE_HOST_FIXTURE_H
#define TESTS_DEVICE_HOST_FIXTURE_H

#include <pthread.h>

#include "mm/device/host/device_host.h"

enum { FIXTURE_STREAMS = 4, FIXTURE_EVENTS = 4 };

typedef struct host_fixture {
    mm_device *device;
    mm_stream *stream[FIXTURE_STREAMS];
    mm_event *event[FIXTURE_EVENTS];
    int threads_before;
} host_fixture;

void host_fixture_init(host_fixture *fixture, const mm_device_config *config);
/* Fails the test if a thread or memory is left. */
void host_fixture_fini(host_fixture *fixture);

/* cmocka setup and teardown that call these, without a config. */
int host_fixture_setup(void **state);
int host_fixture_teardown(void **state);

/* Number of threads of this process. */
int host_threads(void);
/* To be called before threads are counted, for example in a group's setup: a sanitizer starts a thread of its own when
 * the first other thread starts. */
int host_threads_settle(void **state);
/* Waits until there are at most `count` threads, because a joined thread may still be listed for a moment. */
void host_threads_wait(int count);

/* A gate blocks a stream: its task waits until the gate is opened. */
typedef struct host_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reached, open;
} host_gate;

#define HOST_GATE_INITIALIZER                                                                                          \
    { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false }

void host_gate_launch(host_gate *gate, mm_stream *stream);
void host_gate_wait_reached(host_gate *gate);
void host_gate_open(host_gate *gate);

/* Enqueues *value = number. The CPU may read it after a sync. */
void host_launch_store(mm_stream *stream, int *value, int number);
/* Enqueues a task that fails with MM_ERR_DEVICE and the message "task NUMBER broke". */
void host_launch_failure(mm_stream *stream, int number);

#endif

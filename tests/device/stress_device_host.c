/* SPDX-License-Identifier: MIT */
/* Many threads, streams and events at once. The test finds most under the thread sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device/device_dag.h"
#include "tests/device/host_fixture.h"

enum { CALLERS = 4, ROUNDS = 2000 };

/* ---------------------------------------------------------------- a long ring of streams */

/* A token goes round all streams; each adds one to a plain integer that only the events protect. */
static mm_status add_one(void *arg) {
    ++**(int **)arg;
    return MM_OK;
}

static void a_token_passed_round_all_streams_is_never_lost(void **state) {
    enum { STREAMS = 8, PASSES = 20000 };
    host_fixture *f = *state;
    mm_stream *stream[STREAMS];
    mm_event *event[STREAMS];
    int token = 0, *arg = &token;
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(mm_stream_create(f->device, "ring", 0, &stream[i]), MM_OK);
        assert_int_equal(mm_event_create(f->device, &event[i]), MM_OK);
    }
    for (int i = 0; i < PASSES; i++) {
        int at = i % STREAMS, before = (i + STREAMS - 1) % STREAMS;
        if (i > 0) assert_int_equal(mm_stream_wait(stream[at], event[before]), MM_OK);
        assert_int_equal(mm_host_launch(stream[at], add_one, &arg, sizeof arg), MM_OK);
        assert_int_equal(mm_event_record(event[at], stream[at]), MM_OK);
    }
    assert_int_equal(mm_event_sync(event[(PASSES - 1) % STREAMS]), MM_OK);
    assert_int_equal(token, PASSES);
    for (int i = 0; i < STREAMS; i++) {
        mm_event_destroy(event[i]);
        mm_stream_destroy(stream[i]);
    }
}

/* ---------------------------------------------------------------- one event, many callers */

/* One caller stores numbers through its stream and records one event behind each; the others wait for that event on
 * streams of their own and must find at least the number that was recorded when they asked. */
typedef struct shared {
    mm_device *device;
    mm_event *event;
    atomic_int recorded; /* the event has been recorded behind the store of this number */
    atomic_int stored;
    atomic_int mistakes;
} shared;

typedef struct number_task {
    shared *shared;
    int number;
} number_task;

static mm_status store_number(void *arg) {
    const number_task *task = arg;
    atomic_store_explicit(&task->shared->stored, task->number, memory_order_relaxed);
    return MM_OK;
}

static mm_status expect_number(void *arg) {
    const number_task *task = arg;
    if (atomic_load_explicit(&task->shared->stored, memory_order_relaxed) < task->number)
        atomic_fetch_add(&task->shared->mistakes, 1);
    return MM_OK;
}

/* Assertions belong to the test's own thread: others count. */
static void count_unless(shared *shared, bool right) {
    if (!right) atomic_fetch_add(&shared->mistakes, 1);
}

static void *recorder_main(void *arg) {
    shared *shared = arg;
    mm_stream *stream = NULL;
    count_unless(shared, mm_stream_create(shared->device, "recorder", 0, &stream) == MM_OK);
    for (int i = 1; stream != NULL && i <= ROUNDS; i++) {
        const number_task task = {shared, i};
        count_unless(shared, mm_host_launch(stream, store_number, &task, sizeof task) == MM_OK);
        count_unless(shared, mm_event_record(shared->event, stream) == MM_OK);
        atomic_store(&shared->recorded, i);
        if (i % 64 == 0) count_unless(shared, mm_event_sync(shared->event) == MM_OK);
    }
    mm_stream_destroy(stream);
    return NULL;
}

static void *waiter_main(void *arg) {
    shared *shared = arg;
    mm_stream *stream = NULL;
    count_unless(shared, mm_stream_create(shared->device, "waiter", 0, &stream) == MM_OK);
    for (int i = 1; stream != NULL && i <= ROUNDS; i++) {
        const number_task task = {shared, atomic_load(&shared->recorded)};
        if (task.number == 0) continue;
        count_unless(shared, mm_stream_wait(stream, shared->event) == MM_OK);
        count_unless(shared, mm_host_launch(stream, expect_number, &task, sizeof task) == MM_OK);
        if (i % 16 == 0) {
            count_unless(shared, mm_event_sync(shared->event) == MM_OK);
            count_unless(shared, atomic_load(&shared->stored) >= task.number);
            (void)mm_event_done(shared->event);
            (void)mm_event_ns(shared->event);
        }
        if (i % 100 == 0) count_unless(shared, mm_stream_sync(stream) == MM_OK);
    }
    mm_stream_destroy(stream);
    return NULL;
}

static void run_callers(void *(*const mains[])(void *), void *const args[], int n) {
    pthread_t threads[CALLERS];
    for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&threads[i], NULL, mains[i], args[i]), 0);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

static void one_event_recorded_and_waited_for_by_many_threads_orders_all_of_them(void **state) {
    host_fixture *f = *state;
    shared shared = {.device = f->device, .event = f->event[0]};
    void *(*const mains[CALLERS])(void *) = {recorder_main, waiter_main, waiter_main, waiter_main};
    void *const args[CALLERS] = {&shared, &shared, &shared, &shared};
    run_callers(mains, args, CALLERS);
    assert_int_equal(atomic_load(&shared.mistakes), 0);
    assert_int_equal(atomic_load(&shared.stored), ROUNDS);
}

/* ---------------------------------------------------------------- failures */

typedef struct failing {
    mm_device *device;
    int number;
    int mistakes;
} failing;

static mm_status break_run(void *arg) { return mm_fail(MM_ERR_DEVICE, "caller %d broke", *(int *)arg); }

static void *failing_main(void *arg) {
    failing *caller = arg;
    mm_stream *stream[2] = {NULL, NULL};
    mm_event *event = NULL;
    char expected[32];
    snprintf(expected, sizeof expected, "caller %d broke", caller->number);
    for (int i = 0; i < 2; i++) caller->mistakes += mm_stream_create(caller->device, "failing", 0, &stream[i]) != MM_OK;
    caller->mistakes += mm_event_create(caller->device, &event) != MM_OK;
    for (int i = 0; caller->mistakes == 0 && i < ROUNDS; i++) {
        bool breaks = i % 3 == 0;
        if (breaks)
            caller->mistakes += mm_host_launch(stream[0], break_run, &caller->number, sizeof caller->number) != MM_OK;
        caller->mistakes += mm_event_record(event, stream[0]) != MM_OK;
        caller->mistakes += mm_stream_wait(stream[1], event) != MM_OK;
        mm_status status = mm_stream_sync(stream[1]);
        caller->mistakes += status != (breaks ? MM_ERR_DEVICE : MM_OK);
        caller->mistakes += breaks && strcmp(mm_last_error(), expected) != 0;
        caller->mistakes += mm_stream_sync(stream[0]) != status;
        for (int j = 0; j < 2; j++) mm_stream_reset(stream[j]);
    }
    mm_event_destroy(event);
    for (int i = 0; i < 2; i++) mm_stream_destroy(stream[i]);
    return NULL;
}

static void failures_of_many_callers_reach_each_its_own(void **state) {
    host_fixture *f = *state;
    failing callers[CALLERS];
    void *(*mains[CALLERS])(void *);
    void *args[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (failing){.device = f->device, .number = i};
        mains[i] = failing_main;
        args[i] = &callers[i];
    }
    run_callers(mains, args, CALLERS);
    for (int i = 0; i < CALLERS; i++) assert_int_equal(callers[i].mistakes, 0);
}

/* ---------------------------------------------------------------- random work */

static void long_random_work_ends_as_if_done_in_turn(void **state) {
    host_fixture *f = *state;
    for (uint64_t seed = 100; seed < 104; seed++)
        device_dag_run(f->device, &(device_dag_config){.seed = seed, .streams = 8, .operations = 10000});
}

static void streams_made_and_destroyed_under_load_leave_nothing(void **state) {
    host_fixture *f = *state;
    for (int i = 0; i < 200; i++) {
        mm_stream *stream;
        int value = 0, seen = 0;
        assert_int_equal(mm_stream_create(f->device, "brief", 0, &stream), MM_OK);
        host_launch_store(f->stream[0], &value, i);
        assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
        assert_int_equal(mm_stream_wait(stream, f->event[0]), MM_OK);
        assert_int_equal(mm_copy_async(stream, &seen, &value, sizeof seen, MM_COPY_DEVICE), MM_OK);
        mm_stream_destroy(stream);
        assert_int_equal(seen, i);
    }
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, host_fixture_setup, host_fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_token_passed_round_all_streams_is_never_lost),
        CASE(one_event_recorded_and_waited_for_by_many_threads_orders_all_of_them),
        CASE(failures_of_many_callers_reach_each_its_own),
        CASE(long_random_work_ends_as_if_done_in_turn),
        CASE(streams_made_and_destroyed_under_load_leave_nothing),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* How the failure of a task spreads: through its stream and through events, to whoever waits; and how it is reset. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "tests/device/host_fixture.h"

static void assert_fails(mm_status status, const char *message) {
    assert_int_equal(status, MM_ERR_DEVICE);
    assert_string_equal(mm_last_error(), message);
}

static void a_failure_skips_what_follows_and_keeps_what_came_before(void **state) {
    host_fixture *f = *state;
    int before = 0, after = 0;
    host_launch_store(f->stream[0], &before, 1);
    host_launch_failure(f->stream[0], 7);
    host_launch_store(f->stream[0], &after, 1);
    assert_fails(mm_stream_sync(f->stream[0]), "task 7 broke");
    assert_int_equal(before, 1);
    assert_int_equal(after, 0);
    host_launch_store(f->stream[0], &after, 1); /* and what is enqueued later */
    assert_fails(mm_stream_sync(f->stream[0]), "task 7 broke");
    assert_int_equal(after, 0);
}

static void copies_fills_and_checksums_are_skipped_too(void **state) {
    host_fixture *f = *state;
    unsigned char from[4] = {1, 2, 3, 4}, to[4] = {0};
    uint64_t sum = 99;
    host_launch_failure(f->stream[0], 1);
    assert_int_equal(mm_copy_async(f->stream[0], to, from, 4, MM_COPY_OUT), MM_OK);
    assert_int_equal(mm_fill_async(f->stream[0], from, 9, 4), MM_OK);
    assert_int_equal(mm_checksum_async(f->stream[0], from, 4, &sum), MM_OK);
    assert_fails(mm_stream_sync(f->stream[0]), "task 1 broke");
    assert_int_equal(to[0], 0);
    assert_int_equal(from[0], 1);
    assert_int_equal(sum, 99);
}

static void the_first_failure_is_the_one_that_is_told(void **state) {
    host_fixture *f = *state;
    host_launch_failure(f->stream[0], 1);
    host_launch_failure(f->stream[0], 2);
    assert_fails(mm_stream_sync(f->stream[0]), "task 1 broke");
}

static void an_event_carries_the_failure_of_what_came_before_it_only(void **state) {
    host_fixture *f = *state;
    assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
    host_launch_failure(f->stream[0], 3);
    assert_int_equal(mm_event_record(f->event[1], f->stream[0]), MM_OK);
    assert_fails(mm_event_sync(f->event[1]), "task 3 broke");
    assert_int_equal(mm_event_sync(f->event[0]), MM_OK);
    assert_true(mm_event_done(f->event[1]));
    assert_true(mm_event_ns(f->event[1]) >= mm_event_ns(f->event[0]));
}

static void a_failure_passes_from_stream_to_stream_with_its_message(void **state) {
    host_fixture *f = *state;
    int value = 0, untouched = 0;
    host_launch_failure(f->stream[0], 4);
    for (int i = 1; i < FIXTURE_STREAMS; i++) {
        assert_int_equal(mm_event_record(f->event[i], f->stream[i - 1]), MM_OK);
        host_launch_store(f->stream[i], &value, i); /* before the wait: runs */
        assert_int_equal(mm_stream_sync(f->stream[i]), MM_OK);
        assert_int_equal(mm_stream_wait(f->stream[i], f->event[i]), MM_OK);
        host_launch_store(f->stream[i], &untouched, i);
    }
    for (int i = 0; i < FIXTURE_STREAMS; i++) assert_fails(mm_stream_sync(f->stream[i]), "task 4 broke");
    assert_int_equal(value, FIXTURE_STREAMS - 1);
    assert_int_equal(untouched, 0);
}

static void a_poisoned_stream_keeps_its_own_failure_when_it_waits_for_another(void **state) {
    host_fixture *f = *state;
    host_launch_failure(f->stream[0], 5);
    host_launch_failure(f->stream[1], 6);
    assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
    assert_int_equal(mm_stream_wait(f->stream[1], f->event[0]), MM_OK);
    assert_fails(mm_stream_sync(f->stream[1]), "task 6 broke");
    assert_fails(mm_stream_sync(f->stream[0]), "task 5 broke");
}

/* A stream with a failed task still waits for events: an event that completes means that all work before it is over. */
static void a_poisoned_stream_still_waits_for_events(void **state) {
    host_fixture *f = *state;
    host_gate gate = HOST_GATE_INITIALIZER;
    int value = 0;
    host_gate_launch(&gate, f->stream[0]);
    host_launch_store(f->stream[0], &value, 1);
    assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
    host_launch_failure(f->stream[1], 8);
    assert_int_equal(mm_stream_wait(f->stream[1], f->event[0]), MM_OK);
    assert_int_equal(mm_event_record(f->event[1], f->stream[1]), MM_OK);
    host_gate_wait_reached(&gate);
    assert_false(mm_event_done(f->event[1]));
    host_gate_open(&gate);
    assert_fails(mm_event_sync(f->event[1]), "task 8 broke");
    assert_int_equal(value, 1);
}

static void *open_later(void *gate) {
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    host_gate_open(gate);
    return NULL;
}

static void reset_makes_a_stream_usable_again(void **state) {
    host_fixture *f = *state;
    for (int round = 1; round < 50; round++) {
        int value = 0;
        host_launch_failure(f->stream[0], round);
        assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
        assert_int_equal(mm_event_sync(f->event[0]), MM_ERR_DEVICE); /* the event shows that the stream is drained */
        mm_stream_reset(f->stream[0]);
        host_launch_store(f->stream[0], &value, round);
        assert_int_equal(mm_stream_sync(f->stream[0]), MM_OK);
        assert_int_equal(value, round);
    }
}

/* A reset of a stream that still has work waits for that work, and forgets its failures, too. */
static void reset_waits_for_what_was_enqueued_before_it(void **state) {
    host_fixture *f = *state;
    host_gate gate = HOST_GATE_INITIALIZER;
    pthread_t opener;
    host_gate_launch(&gate, f->stream[0]);
    host_launch_failure(f->stream[0], 13);
    host_gate_wait_reached(&gate);
    assert_int_equal(pthread_create(&opener, NULL, open_later, &gate), 0);
    mm_stream_reset(f->stream[0]);
    assert_int_equal(mm_stream_sync(f->stream[0]), MM_OK);
    pthread_join(opener, NULL);
}

/* After a reset the event still has the failure, the stream does not. */
static void an_event_keeps_its_failure_over_a_reset_until_it_is_recorded_again(void **state) {
    host_fixture *f = *state;
    host_launch_failure(f->stream[0], 9);
    assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
    assert_fails(mm_stream_sync(f->stream[0]), "task 9 broke");
    mm_stream_reset(f->stream[0]);
    assert_fails(mm_event_sync(f->event[0]), "task 9 broke");
    assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
    assert_int_equal(mm_event_sync(f->event[0]), MM_OK);
}

/* A wait is for the recording that the event had when the wait was enqueued. */
static void recording_again_elsewhere_does_not_hide_the_failure_from_older_waits(void **state) {
    host_fixture *f = *state;
    host_gate gate = HOST_GATE_INITIALIZER;
    host_gate_launch(&gate, f->stream[0]);
    host_launch_failure(f->stream[0], 10);
    assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
    assert_int_equal(mm_stream_wait(f->stream[1], f->event[0]), MM_OK);
    assert_int_equal(mm_event_record(f->event[0], f->stream[2]), MM_OK);
    assert_int_equal(mm_stream_wait(f->stream[3], f->event[0]), MM_OK);
    assert_int_equal(mm_event_sync(f->event[0]), MM_OK); /* the gate still holds stream 0 up */
    assert_int_equal(mm_stream_sync(f->stream[3]), MM_OK);
    host_gate_open(&gate);
    assert_fails(mm_stream_sync(f->stream[1]), "task 10 broke");
    assert_fails(mm_stream_sync(f->stream[0]), "task 10 broke");
}

static void a_poisoned_stream_can_be_destroyed_with_work_queued(void **state) {
    host_fixture *f = *state;
    mm_stream *stream;
    int value = 0;
    assert_int_equal(mm_stream_create(f->device, "doomed", 0, &stream), MM_OK);
    host_launch_failure(stream, 11);
    for (int i = 0; i < 100; i++) host_launch_store(stream, &value, i);
    assert_int_equal(mm_event_record(f->event[0], stream), MM_OK);
    mm_stream_destroy(stream);
    assert_int_equal(value, 0);
    assert_fails(mm_event_sync(f->event[0]), "task 11 broke"); /* an event outlives its stream */
}

static void skipped_tasks_are_not_counted_as_run(void **state) {
    host_fixture *f = *state;
    mm_stream_stats stats;
    int value;
    host_launch_store(f->stream[0], &value, 1);
    host_launch_failure(f->stream[0], 12);
    for (int i = 0; i < 5; i++) host_launch_store(f->stream[0], &value, i);
    assert_int_equal(mm_stream_sync(f->stream[0]), MM_ERR_DEVICE);
    mm_stream_stats_get(f->stream[0], &stats);
    assert_int_equal(stats.tasks, 2);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, host_fixture_setup, host_fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_failure_skips_what_follows_and_keeps_what_came_before),
        CASE(copies_fills_and_checksums_are_skipped_too),
        CASE(the_first_failure_is_the_one_that_is_told),
        CASE(an_event_carries_the_failure_of_what_came_before_it_only),
        CASE(a_failure_passes_from_stream_to_stream_with_its_message),
        CASE(a_poisoned_stream_keeps_its_own_failure_when_it_waits_for_another),
        CASE(a_poisoned_stream_still_waits_for_events),
        CASE(reset_makes_a_stream_usable_again),
        CASE(reset_waits_for_what_was_enqueued_before_it),
        CASE(an_event_keeps_its_failure_over_a_reset_until_it_is_recorded_again),
        CASE(recording_again_elsewhere_does_not_hide_the_failure_from_older_waits),
        CASE(a_poisoned_stream_can_be_destroyed_with_work_queued),
        CASE(skipped_tasks_are_not_counted_as_run),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}

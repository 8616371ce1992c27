/* SPDX-License-Identifier: MIT */
/* What the host device does beyond the suite: its launcher, recordings, settings and accounts. */
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "mm/device/contract/clock.h"
#include "mm/device/contract/sums.h"
#include "tests/core/random.h"
#include "tests/device/device_dag.h"
#include "tests/device/host_fixture.h"

/* ---------------------------------------------------------------- launcher */

typedef struct argument_log {
    size_t expected_bytes; /* of the next argument, whose bytes follow from their index */
    int wrong;
} argument_log;

typedef struct sized_argument {
    argument_log *log;
    unsigned char bytes[MM_HOST_ARG_CAPACITY - sizeof(argument_log *)];
} sized_argument;

static mm_status check_argument(void *arg) {
    const sized_argument *argument = arg;
    argument_log *log = argument->log;
    bool right = (uintptr_t)arg % 16 == 0;
    for (size_t i = 0; i < log->expected_bytes; i++) right = right && argument->bytes[i] == (uint8_t)(i * 7 + i / 3);
    log->wrong += !right;
    log->expected_bytes++;
    return MM_OK;
}

static void arguments_of_every_size_arrive_aligned_and_whole(void **state) {
    host_fixture *f = *state;
    argument_log log = {0, 0};
    for (size_t bytes = 0; bytes <= sizeof(((sized_argument *)0)->bytes); bytes++) {
        sized_argument argument = {.log = &log};
        for (size_t i = 0; i < bytes; i++) argument.bytes[i] = (uint8_t)(i * 7 + i / 3);
        assert_int_equal(mm_host_launch(f->stream[0], check_argument, &argument, sizeof argument.log + bytes), MM_OK);
        memset(&argument, 0xff, sizeof argument); /* the launch has copied it */
    }
    assert_int_equal(mm_stream_sync(f->stream[0]), MM_OK);
    assert_int_equal(log.wrong, 0);
    assert_int_equal(log.expected_bytes, sizeof(((sized_argument *)0)->bytes) + 1);
}

static mm_status do_nothing(void *arg) {
    (void)arg;
    return MM_OK;
}

static void launching_too_large_an_argument_or_no_function_is_invalid(void **state) {
    host_fixture *f = *state;
    unsigned char argument[MM_HOST_ARG_CAPACITY + 1] = {0};
    assert_int_equal(mm_host_launch(f->stream[0], do_nothing, argument, sizeof argument), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "257"));
    assert_int_equal(mm_host_launch(f->stream[0], NULL, NULL, 0), MM_ERR_INVALID);
    assert_int_equal(mm_host_launch(f->stream[0], do_nothing, NULL, 0), MM_OK);
    assert_int_equal(mm_stream_sync(f->stream[0]), MM_OK);
}

typedef struct counter {
    int next, out_of_order;
} counter;

typedef struct count_task {
    counter *counter;
    int number;
} count_task;

static mm_status count_run(void *arg) {
    const count_task *task = arg;
    task->counter->out_of_order += task->number != task->counter->next;
    task->counter->next = task->number + 1;
    return MM_OK;
}

static void enqueuing_never_blocks_however_long_the_queue(void **state) {
    enum { TASKS = 100000 };
    host_fixture *f = *state;
    host_gate gate = HOST_GATE_INITIALIZER;
    counter counter = {0, 0};
    host_gate_launch(&gate, f->stream[0]);
    for (int i = 0; i < TASKS; i++) {
        const count_task task = {&counter, i};
        assert_int_equal(mm_host_launch(f->stream[0], count_run, &task, sizeof task), MM_OK);
        if (i % 10 == 0) assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
    }
    assert_false(mm_event_done(f->event[0]));
    host_gate_open(&gate);
    assert_int_equal(mm_stream_sync(f->stream[0]), MM_OK);
    assert_int_equal(counter.next, TASKS);
    assert_int_equal(counter.out_of_order, 0);
    assert_true(mm_event_done(f->event[0]));
}

typedef struct thread_look {
    char name[16];
    bool interruptible;
} thread_look;

static mm_status look_at_thread(void *arg) {
    thread_look *look = *(thread_look **)arg;
    sigset_t blocked;
    pthread_getname_np(pthread_self(), look->name, sizeof look->name);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    look->interruptible = !sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGTERM);
    return MM_OK;
}

static void a_stream_is_a_thread_of_its_name_that_takes_no_signals(void **state) {
    host_fixture *f = *state;
    mm_stream *stream;
    thread_look look, *arg = &look;
    assert_int_equal(host_threads(), f->threads_before + FIXTURE_STREAMS);
    assert_int_equal(mm_stream_create(f->device, "seventeen-letters", 0, &stream), MM_OK);
    assert_int_equal(mm_host_launch(stream, look_at_thread, &arg, sizeof arg), MM_OK);
    assert_int_equal(mm_stream_sync(stream), MM_OK);
    assert_string_equal(look.name, "seventeen-lette");
    assert_false(look.interruptible);
    mm_stream_destroy(stream);
    host_threads_wait(f->threads_before + FIXTURE_STREAMS);
}

/* ---------------------------------------------------------------- recordings */

static void waiting_for_an_event_never_recorded_is_an_error_and_queues_nothing(void **state) {
    host_fixture *f = *state;
    assert_int_equal(mm_stream_wait(f->stream[0], f->event[0]), MM_ERR_ORDER);
    assert_non_null(strstr(mm_last_error(), "test-0"));
    assert_int_equal(mm_stream_sync(f->stream[0]), MM_OK);
}

static void a_wait_holds_to_the_recording_of_its_time_when_a_later_one_completes_first(void **state) {
    host_fixture *f = *state;
    host_gate gate = HOST_GATE_INITIALIZER;
    int first = 0, seen_late = 0;
    host_gate_launch(&gate, f->stream[0]);
    host_launch_store(f->stream[0], &first, 1);
    assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
    assert_int_equal(mm_stream_wait(f->stream[1], f->event[0]), MM_OK);
    assert_int_equal(mm_copy_async(f->stream[1], &seen_late, &first, sizeof first, MM_COPY_DEVICE), MM_OK);
    assert_int_equal(mm_event_record(f->event[1], f->stream[1]), MM_OK);
    assert_int_equal(mm_event_record(f->event[0], f->stream[2]), MM_OK); /* completes now */
    assert_int_equal(mm_event_sync(f->event[0]), MM_OK);
    assert_false(mm_event_done(f->event[1]));
    host_gate_open(&gate);
    assert_int_equal(mm_stream_sync(f->stream[1]), MM_OK);
    assert_int_equal(seen_late, 1);
}

static void a_wait_does_not_wait_for_a_recording_made_after_it(void **state) {
    host_fixture *f = *state;
    host_gate held = HOST_GATE_INITIALIZER, later = HOST_GATE_INITIALIZER;
    int value = 0;
    host_gate_launch(&held, f->stream[1]);
    assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
    assert_int_equal(mm_stream_wait(f->stream[1], f->event[0]), MM_OK);
    host_launch_store(f->stream[1], &value, 1);
    host_gate_launch(&later, f->stream[2]);
    assert_int_equal(mm_event_record(f->event[0], f->stream[2]), MM_OK);
    host_gate_open(&held);
    assert_int_equal(mm_stream_sync(f->stream[1]), MM_OK); /* the gate still holds stream 2 up */
    assert_int_equal(value, 1);
    assert_false(mm_event_done(f->event[0]));
    assert_int_equal(mm_event_ns(f->event[0]), 0);
    host_gate_open(&later);
    assert_int_equal(mm_event_sync(f->event[0]), MM_OK);
    assert_true(mm_event_ns(f->event[0]) > 0);
}

static void an_event_destroyed_with_work_queued_still_orders_it(void **state) {
    host_fixture *f = *state;
    host_gate gate = HOST_GATE_INITIALIZER;
    mm_event *event;
    int value = 0, seen = 0;
    assert_int_equal(mm_event_create(f->device, &event), MM_OK);
    host_gate_launch(&gate, f->stream[0]);
    host_launch_store(f->stream[0], &value, 1);
    assert_int_equal(mm_event_record(event, f->stream[0]), MM_OK);
    assert_int_equal(mm_stream_wait(f->stream[1], event), MM_OK);
    assert_int_equal(mm_copy_async(f->stream[1], &seen, &value, sizeof value, MM_COPY_DEVICE), MM_OK);
    mm_event_destroy(event);
    host_gate_open(&gate);
    assert_int_equal(mm_stream_sync(f->stream[1]), MM_OK);
    assert_int_equal(seen, 1);
}

static void a_stream_does_not_wait_for_its_own_event(void **state) {
    host_fixture *f = *state;
    int value = 0;
    for (int i = 1; i <= 100; i++) {
        host_launch_store(f->stream[0], &value, i);
        assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
        assert_int_equal(mm_stream_wait(f->stream[0], f->event[0]), MM_OK);
    }
    assert_int_equal(mm_stream_sync(f->stream[0]), MM_OK);
    assert_int_equal(value, 100);
}

/* ---------------------------------------------------------------- statistics */

static void busy_time_holds_the_tasks_time(void **state) {
    host_fixture *f = *state;
    host_gate gate = HOST_GATE_INITIALIZER;
    mm_stream_stats stats;
    host_gate_launch(&gate, f->stream[0]);
    host_gate_wait_reached(&gate);
    int64_t start_ns = mm_now_ns(), end_ns;
    do end_ns = mm_now_ns();
    while (end_ns == start_ns);
    host_gate_open(&gate);
    assert_int_equal(mm_stream_sync(f->stream[0]), MM_OK);
    mm_stream_stats_get(f->stream[0], &stats);
    assert_int_equal(stats.tasks, 1);
    assert_true(stats.busy_ns >= end_ns - start_ns);
    assert_int_equal(stats.wait_ns, 0);
}

/* Stream 1 waits for stream 0, which a gate holds up for a millisecond. work_behind: stream 1 has work after the wait.
 * Returns the wait time that is added to the statistics of stream 1. */
static int64_t stand_at_an_event(host_fixture *f, bool work_behind) {
    const struct timespec pause = {.tv_nsec = 1000000};
    host_gate held = HOST_GATE_INITIALIZER, here = HOST_GATE_INITIALIZER;
    mm_stream_stats before, after;
    int value;
    mm_stream_stats_get(f->stream[1], &before);
    host_gate_launch(&held, f->stream[0]);
    assert_int_equal(mm_event_record(f->event[0], f->stream[0]), MM_OK);
    host_gate_launch(&here, f->stream[1]);
    assert_int_equal(mm_stream_wait(f->stream[1], f->event[0]), MM_OK);
    if (work_behind) host_launch_store(f->stream[1], &value, 1);
    host_gate_open(&here);
    host_gate_wait_reached(&here);
    nanosleep(&pause, NULL);
    host_gate_open(&held);
    assert_int_equal(mm_stream_sync(f->stream[1]), MM_OK);
    mm_stream_stats_get(f->stream[1], &after);
    return after.wait_ns - before.wait_ns;
}

static void time_at_an_event_counts_with_work_behind_it(void **state) {
    int64_t wait_ns = 0;
    /* Repeated, since the stream's thread may come to the wait only after the event has completed. */
    for (int i = 0; i < 1000 && wait_ns == 0; i++) wait_ns = stand_at_an_event(*state, true);
    assert_true(wait_ns > 0);
}

static void time_at_an_event_without_work_behind_it_does_not_count(void **state) {
    for (int i = 0; i < 5; i++) assert_int_equal(stand_at_an_event(*state, false), 0);
}

/* ---------------------------------------------------------------- memory */

static void refusals_name_what_was_asked_and_what_there_is(void **state) {
    host_fixture *f = *state;
    mm_memory_info info;
    char asked[32], total[32];
    void *memory = NULL;
    mm_device_memory_info(f->device, &info);
    snprintf(asked, sizeof asked, "%lld", (long long)info.total_bytes + 17);
    snprintf(total, sizeof total, "%lld", (long long)info.total_bytes);
    for (int kind = MM_MEMORY_DEVICE; kind <= MM_MEMORY_PINNED; kind++) {
        assert_int_equal(mm_device_reserve(f->device, (mm_memory_kind)kind, info.total_bytes + 17, &memory),
                         MM_ERR_NOMEM);
        assert_non_null(strstr(mm_last_error(), asked));
        assert_non_null(strstr(mm_last_error(), total));
        assert_null(memory);
    }
}

static struct {
    bool set;
    mm_host_memory memory;
} host_memory;

void __real_mm_host_memory_get(mm_host_memory *memory_out);
void __wrap_mm_host_memory_get(mm_host_memory *memory_out);

void __wrap_mm_host_memory_get(mm_host_memory *memory_out) {
    if (host_memory.set)
        *memory_out = host_memory.memory;
    else
        __real_mm_host_memory_get(memory_out);
}

/* Sets what the host has from now on, in MiB. machine 0: what it really has. */
static void set_host(int64_t machine, int64_t total, int64_t free) {
    host_memory.memory = (mm_host_memory){machine << 20, total << 20, free << 20};
    host_memory.set = machine > 0;
}

/* Memory that is reserved but never touched takes none, so the test can reserve much. */
static void all_reservations_together_stay_within_the_machine(void **state) {
    host_fixture *f = *state;
    mm_memory_info info;
    void *memory, *more;
    set_host(1000, 1000, 600);
    assert_int_equal(mm_device_reserve(f->device, MM_MEMORY_PINNED, INT64_C(550) << 20, &memory), MM_OK);
    mm_device_memory_info(f->device, &info);
    assert_int_equal(info.total_bytes, INT64_C(1000) << 20);
    assert_int_equal(info.free_bytes, INT64_C(450) << 20);
    assert_int_equal(info.reserved_bytes, 0);
    assert_int_equal(mm_device_reserve(f->device, MM_MEMORY_DEVICE, info.free_bytes + 1, &more), MM_ERR_NOMEM);
    assert_int_equal(mm_device_reserve(f->device, MM_MEMORY_DEVICE, info.free_bytes, &more), MM_OK);
    mm_device_release(f->device, MM_MEMORY_DEVICE, more, info.free_bytes);
    set_host(1000, 500, 100); /* a limit that was lowered meanwhile */
    mm_device_memory_info(f->device, &info);
    assert_int_equal(info.free_bytes, 0);
    set_host(0, 0, 0);
    mm_device_release(f->device, MM_MEMORY_PINNED, memory, INT64_C(550) << 20);
}

static void a_control_group_limits_the_device_and_is_named(void **state) {
    host_fixture *f = *state;
    mm_memory_info info;
    void *memory = NULL;
    set_host(1000, 150, 120);
    mm_device_memory_info(f->device, &info);
    assert_int_equal(info.total_bytes, INT64_C(150) << 20);
    assert_int_equal(info.free_bytes, INT64_C(120) << 20);
    for (int kind = MM_MEMORY_DEVICE; kind <= MM_MEMORY_PINNED; kind++) {
        assert_int_equal(mm_device_reserve(f->device, (mm_memory_kind)kind, INT64_C(121) << 20, &memory), MM_ERR_NOMEM);
        assert_non_null(strstr(mm_last_error(), "of the control group's 157286400 bytes (150MiB), 125829120 bytes"));
        assert_null(memory);
    }
    set_host(0, 0, 0);
}

static void memory_of_others_on_the_c_heap_is_counted_as_outside(void **state) {
    enum { BYTES = 5000000 };
    host_fixture *f = *state;
    if (mallinfo2().uordblks == 0) skip(); /* a sanitizer's malloc, of which the C library knows nothing */
    const int64_t before = mm_device_outside_bytes(f->device);
    void *memory = malloc(BYTES);
    assert_non_null(memory);
    const int64_t during = mm_device_outside_bytes(f->device);
    free(memory);
    const int64_t after = mm_device_outside_bytes(f->device);
    assert_in_range(during - before, BYTES, BYTES + 10000);
    assert_int_equal(after, before);
}

static void one_round(host_fixture *f) {
    unsigned char from[64] = {0}, to[64];
    for (int i = 0; i < FIXTURE_STREAMS; i++) {
        assert_int_equal(mm_copy_async(f->stream[i], to, from, sizeof to, MM_COPY_OUT), MM_OK);
        assert_int_equal(mm_event_record(f->event[i], f->stream[i]), MM_OK);
        assert_int_equal(mm_stream_wait(f->stream[(i + 1) % FIXTURE_STREAMS], f->event[i]), MM_OK);
    }
    for (int i = 0; i < FIXTURE_STREAMS; i++) assert_int_equal(mm_stream_sync(f->stream[i]), MM_OK);
}

static void the_device_itself_takes_no_more_memory_once_warm(void **state) {
    host_fixture *f = *state;
    for (int i = 0; i < 3; i++) one_round(f);
    const int64_t warm = mm_device_outside_bytes(f->device);
    for (int i = 0; i < 500; i++) one_round(f);
    const int64_t later = mm_device_outside_bytes(f->device);
    assert_int_equal(later, warm);
    assert_true(later < 100000);
}

/* ---------------------------------------------------------------- settings */

static void copies_over_the_link_take_its_time_and_share_it(void **state) {
    enum { BYTES = 10000, RATE = 5000000, COST_NS = 2000000 };
    static unsigned char from[BYTES], to[2][BYTES];
    (void)state;
    for (int kind = MM_COPY_OUT; kind <= MM_COPY_IN; kind++) {
        mm_device_config config = {0};
        *(kind == MM_COPY_OUT ? &config.link_out_bytes_per_s : &config.link_in_bytes_per_s) = RATE;
        host_fixture f;
        mm_stream_stats stats;
        host_fixture_init(&f, &config);
        int64_t start_ns = mm_now_ns();
        for (int i = 0; i < 2; i++) {
            assert_int_equal(mm_copy_async(f.stream[i], to[i], from, BYTES, (mm_copy_kind)kind), MM_OK);
            assert_int_equal(mm_event_record(f.event[i], f.stream[i]), MM_OK);
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(mm_stream_sync(f.stream[i]), MM_OK);
            mm_stream_stats_get(f.stream[i], &stats);
            assert_true(stats.busy_ns >= COST_NS);
        }
        int64_t first = mm_event_ns(f.event[0]) - start_ns, second = mm_event_ns(f.event[1]) - start_ns;
        assert_true((first > second ? first : second) >= 2 * COST_NS);
        host_fixture_fini(&f);
    }
}

static void the_two_ways_of_the_link_do_not_wait_for_each_other(void **state) {
    enum { BYTES = 1000, RATE_OUT = 10000, RATE_IN = 1000000 }; /* a copy takes 100 ms out, 1 ms in */
    static unsigned char from[2][BYTES], to[2][BYTES];
    (void)state;
    host_fixture f;
    host_fixture_init(&f, &(mm_device_config){.link_out_bytes_per_s = RATE_OUT, .link_in_bytes_per_s = RATE_IN});
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mm_copy_async(f.stream[i], to[i], from[i], BYTES, i ? MM_COPY_IN : MM_COPY_OUT), MM_OK);
        assert_int_equal(mm_event_record(f.event[i], f.stream[i]), MM_OK);
        if (i == 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* so that the copy out has begun */
    }
    for (int i = 0; i < 2; i++) assert_int_equal(mm_stream_sync(f.stream[i]), MM_OK);
    assert_true(mm_event_ns(f.event[1]) < mm_event_ns(f.event[0]));
    host_fixture_fini(&f);
}

/* Tested with the events' times, as the stream's thread itself wakes later. */
static void the_link_goes_on_to_the_next_copy_at_once(void **state) {
    enum { BYTES = 1000, RATE = 200000, COST_NS = 5000000, COPIES = 3 };
    static unsigned char from[BYTES], to[BYTES];
    (void)state;
    host_fixture f;
    host_gate gate = HOST_GATE_INITIALIZER;
    host_fixture_init(&f, &(mm_device_config){.link_out_bytes_per_s = RATE});
    mm_event *ends[COPIES];
    host_gate_launch(&gate, f.stream[0]);
    for (int i = 0; i < COPIES; i++) {
        assert_int_equal(mm_event_create(f.device, &ends[i]), MM_OK);
        assert_int_equal(mm_copy_async(f.stream[0], to, from, BYTES, MM_COPY_OUT), MM_OK);
        assert_int_equal(mm_event_record(ends[i], f.stream[0]), MM_OK);
    }
    const int64_t opened_ns = mm_now_ns();
    host_gate_open(&gate);
    assert_int_equal(mm_stream_sync(f.stream[0]), MM_OK);
    assert_true(mm_event_ns(ends[0]) >= opened_ns + COST_NS);
    for (int i = 1; i < COPIES; i++) {
        assert_true(mm_event_ns(ends[i]) - mm_event_ns(ends[i - 1]) == COST_NS);
        assert_int_equal(mm_event_tasks(ends[i]).began_ns, mm_event_ns(ends[i - 1]));
    }
    for (int i = 0; i < COPIES; i++) mm_event_destroy(ends[i]);
    host_fixture_fini(&f);
}

/* A task that says that it waited until *there_ns, though it slept for longer. */
static mm_status wait_for(void *arg) {
    int64_t *there_ns = *(int64_t **)arg;
    *there_ns = mm_now_ns();
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    mm_host_waited_until(*there_ns);
    return MM_OK;
}

static void a_copy_begins_when_what_a_task_waited_for_was_there(void **state) {
    enum { BYTES = 1000, RATE = 200000, COST_NS = 5000000 };
    static unsigned char from[BYTES], to[BYTES];
    (void)state;
    int64_t there_ns = 0, *arg = &there_ns;
    mm_event *end;
    host_fixture f;
    host_gate gate = HOST_GATE_INITIALIZER;
    host_fixture_init(&f, &(mm_device_config){.link_in_bytes_per_s = RATE});
    assert_int_equal(mm_event_create(f.device, &end), MM_OK);
    host_gate_launch(&gate, f.stream[0]);
    assert_int_equal(mm_host_launch(f.stream[0], wait_for, &arg, sizeof arg), MM_OK);
    assert_int_equal(mm_copy_async(f.stream[0], to, from, BYTES, MM_COPY_IN), MM_OK);
    assert_int_equal(mm_event_record(end, f.stream[0]), MM_OK);
    host_gate_open(&gate);
    assert_int_equal(mm_stream_sync(f.stream[0]), MM_OK);
    assert_true(mm_event_ns(end) == there_ns + COST_NS);
    mm_host_waited_until(there_ns); /* not on a stream's thread, so it has no effect */
    mm_event_destroy(end);
    host_fixture_fini(&f);
}

typedef struct charge {
    mm_stream *stream;
    int64_t bytes, began_ns;
} charge;

static mm_status charge_link(void *arg) {
    const charge *c = arg;
    mm_host_link_charge(c->stream, MM_COPY_OUT, c->bytes, c->began_ns);
    return MM_OK;
}

/* The charge is that of a copy of as many bytes, begun at the time that the task says; later copies wait for it. */
static void a_task_that_writes_pinned_memory_is_charged_the_link(void **state) {
    enum { BYTES = 10000, RATE = 5000000, COST_NS = 2000000 };
    static unsigned char from[BYTES], to[BYTES];
    (void)state;
    host_fixture f;
    host_fixture_init(&f, &(mm_device_config){.link_out_bytes_per_s = RATE});
    const int64_t start_ns = mm_now_ns();
    const charge now = {f.stream[0], BYTES, start_ns}, before = {f.stream[0], BYTES, 0}, none = {f.stream[0], 0, 0};
    assert_int_equal(mm_host_launch(f.stream[0], charge_link, &now, sizeof now), MM_OK);
    assert_int_equal(mm_host_launch(f.stream[0], charge_link, &before, sizeof before), MM_OK);
    assert_int_equal(mm_host_launch(f.stream[0], charge_link, &none, sizeof none), MM_OK);
    assert_int_equal(mm_copy_async(f.stream[0], to, from, BYTES, MM_COPY_OUT), MM_OK);
    assert_int_equal(mm_stream_sync(f.stream[0]), MM_OK);
    assert_true(mm_now_ns() - start_ns >= 3 * COST_NS);
    host_fixture_fini(&f);
    host_fixture_init(&f, &(mm_device_config){.link_out_bytes_per_s = RATE});
    const charge over = {f.stream[0], BYTES, mm_now_ns() - 10 * COST_NS};
    assert_int_equal(mm_host_launch(f.stream[0], charge_link, &over, sizeof over), MM_OK);
    assert_int_equal(mm_stream_sync(f.stream[0]), MM_OK); /* the transfer is over already: nothing sleeps */
    host_fixture_fini(&f);
}

static void the_link_is_told_where_it_was_set(void **state) {
    (void)state;
    mm_device *device;
    mm_device_description description;
    const mm_device_config configs[] = {
        {0}, {.link_out_bytes_per_s = 5000000, .link_in_bytes_per_s = 4000000}, {.link_out_bytes_per_s = 5000000}};
    const int64_t told[] = {0, 4000000, 0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mm_device_create("host", &configs[i], &device), MM_OK);
        mm_device_describe(device, &description);
        assert_int_equal(description.link_bytes_per_s, told[i]);
        assert_int_equal(description.memory_bytes_per_s > 0, told[i] > 0);
        mm_device_destroy(device);
    }
}

static void an_allocation_costs_what_was_set(void **state) {
    (void)state;
    host_fixture f;
    host_fixture_init(&f, &(mm_device_config){.alloc_cost_ns = 300000});
    int64_t start_ns = mm_now_ns();
    for (int i = 0; i < 3; i++) mm_device_charge_alloc(f.device);
    assert_true(mm_now_ns() - start_ns >= 900000);
    host_fixture_fini(&f);
}

static void random_delays_change_no_result(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        host_fixture f;
        host_fixture_init(&f, &(mm_device_config){.delay_seed = seed, .delay_max_ns = 100000});
        device_dag_run(f.device, &(device_dag_config){.seed = 77, .streams = 5, .operations = 300});
        host_fixture_fini(&f);
    }
}

static void random_delays_take_time(void **state) {
    (void)state;
    host_fixture f;
    int value;
    host_fixture_init(&f, &(mm_device_config){.delay_seed = 3, .delay_max_ns = 1000000});
    int64_t start_ns = mm_now_ns();
    for (int i = 0; i < 20; i++) host_launch_store(f.stream[0], &value, i);
    assert_int_equal(mm_stream_sync(f.stream[0]), MM_OK);
    assert_true(mm_now_ns() - start_ns >= 1000000); /* 20 draws of up to 1 ms sum to 10 ms or so */
    host_fixture_fini(&f);
}

/* ---------------------------------------------------------------- sums */

static void sums_have_the_same_bits_on_every_cpu(void **state) {
    (void)state;
    enum { MOST = 40000 };
    uint64_t random = 3;
    float *elements = malloc(MOST * sizeof *elements);
    assert_non_null(elements);
    for (int i = 0; i < MOST; i++)
        elements[i] = random_chance(&random, 40) ? 0 : (float)(int32_t)random_next(&random) * 3.1e-7f;
    for (int n = 0; n < MOST; n += 1 + n / 3 + random_below(&random, 100)) {
        mm_sums_part fast = {0}, portable = {0};
        mm_sums_host_strip(elements, n, &fast);
        mm_sums_host_strip_portable(elements, n, &portable);
        assert_true(fast.sum_abs == portable.sum_abs && fast.sum_squares == portable.sum_squares);
        assert_true(fast.nonzero == portable.nonzero && fast.max_bits == portable.max_bits);
        assert_true(n < 50 || (fast.sum_abs > 0 && fast.nonzero > n / 3));
    }
    free(elements);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, host_fixture_setup, host_fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(arguments_of_every_size_arrive_aligned_and_whole),
        CASE(launching_too_large_an_argument_or_no_function_is_invalid),
        CASE(enqueuing_never_blocks_however_long_the_queue),
        CASE(a_stream_is_a_thread_of_its_name_that_takes_no_signals),
        CASE(waiting_for_an_event_never_recorded_is_an_error_and_queues_nothing),
        CASE(a_wait_holds_to_the_recording_of_its_time_when_a_later_one_completes_first),
        CASE(a_wait_does_not_wait_for_a_recording_made_after_it),
        CASE(an_event_destroyed_with_work_queued_still_orders_it),
        CASE(a_stream_does_not_wait_for_its_own_event),
        CASE(busy_time_holds_the_tasks_time),
        CASE(time_at_an_event_counts_with_work_behind_it),
        CASE(time_at_an_event_without_work_behind_it_does_not_count),
        CASE(refusals_name_what_was_asked_and_what_there_is),
        CASE(all_reservations_together_stay_within_the_machine),
        CASE(a_control_group_limits_the_device_and_is_named),
        CASE(memory_of_others_on_the_c_heap_is_counted_as_outside),
        CASE(the_device_itself_takes_no_more_memory_once_warm),
        cmocka_unit_test(sums_have_the_same_bits_on_every_cpu),
        cmocka_unit_test(copies_over_the_link_take_its_time_and_share_it),
        cmocka_unit_test(the_two_ways_of_the_link_do_not_wait_for_each_other),
        cmocka_unit_test(the_link_goes_on_to_the_next_copy_at_once),
        cmocka_unit_test(a_copy_begins_when_what_a_task_waited_for_was_there),
        cmocka_unit_test(a_task_that_writes_pinned_memory_is_charged_the_link),
        cmocka_unit_test(the_link_is_told_where_it_was_set),
        cmocka_unit_test(an_allocation_costs_what_was_set),
        cmocka_unit_test(random_delays_change_no_result),
        cmocka_unit_test(random_delays_take_time),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}

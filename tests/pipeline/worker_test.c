/* SPDX-License-Identifier: MIT */
/* The worker thread: it runs jobs in order, can be drained and canceled, reserves room, and leaves no thread behind. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "pipeline/worker.h"
#include "tests/device/host_fixture.h"

enum { MAX_JOBS = 64, HELD = -1 };

/* The jobs that a worker ran, and a gate at which job HELD waits. */
typedef struct journal {
    host_gate gate;
    pthread_mutex_t lock;
    int32_t ran[MAX_JOBS];
    int n;
    pthread_t thread; /* the thread that ran the last job */
} journal;

typedef struct fixture {
    mm_device *device;
    mm_worker *worker;
    journal journal;
    int threads_before;
} fixture;

static void run(void *ctx, int32_t job) {
    journal *j = ctx;
    if (job == HELD) {
        pthread_mutex_lock(&j->gate.lock);
        j->gate.reached = true;
        pthread_cond_broadcast(&j->gate.changed);
        while (!j->gate.open) pthread_cond_wait(&j->gate.changed, &j->gate.lock);
        pthread_mutex_unlock(&j->gate.lock);
    }
    pthread_mutex_lock(&j->lock);
    j->ran[j->n++] = job;
    j->thread = pthread_self();
    pthread_mutex_unlock(&j->lock);
}

static void init(fixture *f, bool threaded, int jobs) {
    *f = (fixture){.journal = {.gate = HOST_GATE_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER},
                   .threads_before = host_threads()};
    assert_int_equal(mm_device_create("host", NULL, &f->device), MM_OK);
    assert_int_equal(mm_worker_create(f->device, "mm-test", threaded, run, &f->journal, &f->worker), MM_OK);
    assert_int_equal(mm_worker_reserve(f->worker, jobs), MM_OK);
}

static void fini(fixture *f) {
    mm_worker_destroy(f->worker);
    mm_device_destroy(f->device);
    host_threads_wait(f->threads_before);
}

static void assert_ran(journal *j, const int32_t *jobs, int n) {
    pthread_mutex_lock(&j->lock);
    assert_int_equal(j->n, n);
    assert_memory_equal(j->ran, jobs, (size_t)n * sizeof *jobs);
    pthread_mutex_unlock(&j->lock);
}

static void jobs_run_in_order_on_a_thread_of_their_own(void **state) {
    (void)state;
    static const int32_t jobs[] = {5, 3, 8, 1};
    fixture f;
    init(&f, true, 4);
    for (int i = 0; i < 4; i++) mm_worker_push(f.worker, jobs[i]);
    mm_worker_drain(f.worker);
    assert_ran(&f.journal, jobs, 4);
    assert_false(pthread_equal(f.journal.thread, pthread_self()));
    fini(&f);
}

static void inline_jobs_run_at_once_on_the_callers_thread(void **state) {
    (void)state;
    static const int32_t jobs[] = {5, 3};
    fixture f;
    init(&f, false, 1);
    mm_worker_push(f.worker, 5);
    assert_ran(&f.journal, jobs, 1);
    assert_true(pthread_equal(f.journal.thread, pthread_self()));
    mm_worker_push(f.worker, 3);
    assert_ran(&f.journal, jobs, 2);
    mm_worker_drain(f.worker);
    mm_worker_cancel(f.worker);
    assert_int_equal(host_threads() - f.threads_before, 1); /* the stream's thread */
    fini(&f);
}

static void push_returns_while_a_job_is_held(void **state) {
    (void)state;
    static const int32_t jobs[] = {HELD, 1, 2};
    fixture f;
    init(&f, true, 3);
    for (int i = 0; i < 3; i++) mm_worker_push(f.worker, jobs[i]);
    host_gate_wait_reached(&f.journal.gate);
    assert_ran(&f.journal, jobs, 0);
    host_gate_open(&f.journal.gate);
    mm_worker_drain(f.worker);
    assert_ran(&f.journal, jobs, 3);
    fini(&f);
}

/* Opens the gate once thread `caller` sleeps, which it does in a call that waits until the gate is open. */
typedef struct late_opener {
    host_gate *gate;
    pid_t caller;
    atomic_bool calling;
} late_opener;

static char thread_state(pid_t thread) {
    char path[64], state = '?';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = fopen(path, "r");
    if (!file) return state;
    if (fscanf(file, "%*d %*s %c", &state) != 1) state = '?';
    fclose(file);
    return state;
}

static void *open_late(void *arg) {
    late_opener *opener = arg;
    while (!atomic_load(&opener->calling)) continue;
    while (thread_state(opener->caller) != 'S') continue;
    host_gate_open(opener->gate);
    return NULL;
}

/* Calls `fn` on the worker, whose first job waits at the gate until the caller sleeps in `fn`. */
static void call_while_held(fixture *f, void (*fn)(mm_worker *)) {
    late_opener opener = {.gate = &f->journal.gate, .caller = gettid()};
    pthread_t thread;
    host_gate_wait_reached(&f->journal.gate);
    assert_int_equal(pthread_create(&thread, NULL, open_late, &opener), 0);
    atomic_store(&opener.calling, true);
    fn(f->worker);
    pthread_join(thread, NULL);
}

static void cancel_drops_what_is_queued_and_waits_for_what_runs(void **state) {
    (void)state;
    static const int32_t jobs[] = {HELD, 7};
    fixture f;
    init(&f, true, 3);
    mm_worker_push(f.worker, HELD);
    mm_worker_push(f.worker, 1);
    mm_worker_push(f.worker, 2);
    call_while_held(&f, mm_worker_cancel);
    assert_ran(&f.journal, jobs, 1);
    mm_worker_push(f.worker, 7); /* the worker can be used afterwards */
    mm_worker_drain(f.worker);
    assert_ran(&f.journal, jobs, 2);
    fini(&f);
}

static void drain_waits_for_what_is_queued(void **state) {
    (void)state;
    static const int32_t jobs[] = {HELD, 1, 2};
    fixture f;
    init(&f, true, 3);
    for (int i = 0; i < 3; i++) mm_worker_push(f.worker, jobs[i]);
    call_while_held(&f, mm_worker_drain);
    assert_ran(&f.journal, jobs, 3);
    fini(&f);
}

static void destroy_runs_what_is_queued(void **state) {
    (void)state;
    static const int32_t jobs[] = {HELD, 1, 2};
    fixture f;
    init(&f, true, 3);
    for (int i = 0; i < 3; i++) mm_worker_push(f.worker, jobs[i]);
    call_while_held(&f, mm_worker_destroy);
    f.worker = NULL; /* NULL can be destroyed, too */
    assert_ran(&f.journal, jobs, 3);
    fini(&f);
}

static void the_queue_goes_round_and_grows_between_uses(void **state) {
    (void)state;
    fixture f;
    int32_t jobs[MAX_JOBS];
    int n = 0;
    init(&f, true, 3);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 2; i++) mm_worker_push(f.worker, jobs[n] = n), n++;
        mm_worker_drain(f.worker);
    }
    assert_int_equal(mm_worker_reserve(f.worker, 2), MM_OK); /* has more already */
    assert_int_equal(mm_worker_reserve(f.worker, 20), MM_OK);
    for (int i = 0; i < 20; i++) mm_worker_push(f.worker, jobs[n] = n), n++;
    mm_worker_drain(f.worker);
    assert_ran(&f.journal, jobs, n);
    fini(&f);
}

static void nothing_to_drain_or_cancel_is_no_wait(void **state) {
    (void)state;
    fixture f;
    init(&f, true, 1);
    mm_worker_drain(f.worker);
    mm_worker_cancel(f.worker);
    assert_int_equal(host_threads() - f.threads_before, 2);
    assert_non_null(mm_worker_stream(f.worker));
    fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_run_in_order_on_a_thread_of_their_own),
        cmocka_unit_test(inline_jobs_run_at_once_on_the_callers_thread),
        cmocka_unit_test(push_returns_while_a_job_is_held),
        cmocka_unit_test(cancel_drops_what_is_queued_and_waits_for_what_runs),
        cmocka_unit_test(drain_waits_for_what_is_queued),
        cmocka_unit_test(destroy_runs_what_is_queued),
        cmocka_unit_test(the_queue_goes_round_and_grows_between_uses),
        cmocka_unit_test(nothing_to_drain_or_cancel_is_no_wait),
    };
    return cmocka_run_group_tests(tests, host_threads_settle, NULL);
}

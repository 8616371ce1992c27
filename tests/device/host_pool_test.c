/* SPDX-License-Identifier: MIT */
/* The pool of threads that device host computes with, and how many CPUs there are for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "mm/device/host/host_pool.h"
#include "tests/device/host_fixture.h"
#include "tests/device/made_file.h"

enum { TASKS = 1000, THREADS = 4 };

typedef struct counting {
    int runs[TASKS];              /* per task: how often it ran */
    _Atomic int inside[THREADS];  /* per thread number: tasks that run with it now */
    _Atomic int64_t most, others; /* most: times that two tasks had one number; others: tasks of helper threads */
    mm_host_pool *inner;
    bool slow; /* the caller's thread is slow, so that others run tasks */
} counting;

static mm_status count(void *ctx, int64_t task, int thread) {
    counting *c = ctx;
    const struct timespec pause = {.tv_nsec = 100000};
    if (atomic_fetch_add(&c->inside[thread], 1) > 0) atomic_fetch_add(&c->most, 1);
    c->runs[task]++;
    if (thread > 0) atomic_fetch_add(&c->others, 1);
    if (thread == 0 && c->slow) nanosleep(&pause, NULL);
    atomic_fetch_sub(&c->inside[thread], 1);
    return MM_OK;
}

static void expect_each_once(const counting *c, int tasks) {
    for (int i = 0; i < TASKS; i++) assert_int_equal(c->runs[i], i < tasks);
    assert_int_equal(c->most, 0);
}

static void every_task_runs_once_with_a_thread_number_of_its_own(void **state) {
    (void)state;
    mm_host_pool *pool;
    int before = host_threads();
    assert_int_equal(mm_host_pool_create(THREADS, "test", &pool), MM_OK);
    assert_int_equal(host_threads(), before); /* threads start when they are needed */
    const int sizes[] = {0, 1, 2, 3, 7, TASKS};
    for (int round = 0; round < 300; round++) {
        counting *c = calloc(1, sizeof *c);
        int tasks = sizes[round % 6];
        assert_non_null(c);
        assert_int_equal(mm_host_pool_run(pool, tasks, count, c), MM_OK);
        expect_each_once(c, tasks);
        free(c);
    }
    counting c = {.slow = true};
    assert_int_equal(mm_host_pool_run(pool, TASKS, count, &c), MM_OK);
    expect_each_once(&c, TASKS);
    assert_true(c.others > 0);
    assert_int_equal(host_threads(), before + THREADS - 1);
    mm_host_pool_destroy(pool);
    host_threads_wait(before);
}

static mm_status fail_some(void *ctx, int64_t task, int thread) {
    (void)thread;
    const int64_t first = *(const int64_t *)ctx;
    return task == first || task == first + 3 ? mm_fail(MM_ERR_INVALID, "task %d", (int)task) : MM_OK;
}

static void the_first_failure_by_number_is_told(void **state) {
    (void)state;
    for (int threads = 1; threads <= THREADS; threads++) {
        mm_host_pool *pool;
        assert_int_equal(mm_host_pool_create(threads, "test", &pool), MM_OK);
        for (int64_t first = 0; first < 50; first++) {
            assert_int_equal(mm_host_pool_run(pool, 60, fail_some, (void *)&first), MM_ERR_INVALID);
            char expected[32];
            snprintf(expected, sizeof expected, "task %d", (int)first);
            assert_string_equal(mm_last_error(), expected);
        }
        int64_t never = 100;
        assert_int_equal(mm_host_pool_run(pool, 60, fail_some, &never), MM_OK);
        mm_host_pool_destroy(pool);
    }
}

/* A run within a run finds the pool busy, and runs all its tasks on its own thread. */
static mm_status run_within(void *ctx, int64_t task, int thread) {
    (void)task, (void)thread;
    counting inner = {.slow = false}, *outer = ctx;
    mm_status status = mm_host_pool_run(outer->inner, 10, count, &inner);
    for (int i = 0; i < 10; i++)
        if (inner.runs[i] != 1) return mm_fail(MM_ERR_INVALID, "task %d ran %d times", i, inner.runs[i]);
    return status;
}

static void a_busy_pool_leaves_the_work_to_its_caller(void **state) {
    (void)state;
    counting outer = {.slow = false};
    assert_int_equal(mm_host_pool_create(THREADS, "test", &outer.inner), MM_OK);
    assert_int_equal(mm_host_pool_run(outer.inner, 20, run_within, &outer), MM_OK);
    mm_host_pool_destroy(outer.inner);
    outer.inner = NULL;
    assert_int_equal(mm_host_pool_run(NULL, 20, run_within, &outer), MM_OK);
    assert_int_equal(mm_host_pool_threads(NULL), 1);
}

static void a_pool_of_no_thread_is_refused(void **state) {
    (void)state;
    mm_host_pool *pool;
    assert_int_equal(mm_host_pool_create(0, "test", &pool), MM_ERR_INVALID);
    assert_int_equal(mm_host_pool_create(MM_HOST_THREADS_MOST + 1, "test", &pool), MM_ERR_INVALID);
    mm_host_pool_destroy(NULL);
}

/* ---------------------------------------------------------------- CPUs */

typedef struct group_file {
    const char *path, *text;
} group_file;

static void the_least_limit_of_the_control_groups_counts(void **state) {
    (void)state;
    static const struct {
        group_file files[4];
        int cpus; /* of 8 */
    } cases[] = {
        {{{NULL, NULL}}, 8},
        {{{"/proc/self/cgroup", "0::/a/b\n"}}, 8},
        {{{"/proc/self/cgroup", "0::/a/b\n"}, {"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}}, 8},
        {{{"/proc/self/cgroup", "0::/a/b\n"}, {"/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"}}, 2},
        {{{"/proc/self/cgroup", "0::/a/b\n"},
          {"/sys/fs/cgroup/a/b/cpu.max", "600000 100000\n"},
          {"/sys/fs/cgroup/a/cpu.max", "300000 100000\n"}},
         3},
        {{{"/proc/self/cgroup", "0::/elsewhere\n"}, {"/sys/fs/cgroup/cpu.max", "400000 100000\n"}}, 4},
        {{{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "1000 100000\n"}}, 1},
        {{{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "9900000 100000\n"}}, 8},
        {{{"/proc/self/cgroup", "3:cpuset:/x\n4:cpu,cpuacct:/a\n"},
          {"/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n"},
          {"/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"}},
         3},
        {{{"/proc/self/cgroup", "1:cpu:/\n0::/\n"},
          {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
          {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
         8},
        {{{"/proc/self/cgroup", "1:cpuset:/\n"},
          {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"},
          {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
         8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char root[64] = "/tmp/mm-cpus-XXXXXX", command[96];
        assert_non_null(mkdtemp(root));
        for (int f = 0; f < 4 && cases[i].files[f].path; f++)
            made_file(root, cases[i].files[f].path, cases[i].files[f].text);
        int cpus = mm_host_cpus_in(root, 8);
        snprintf(command, sizeof command, "rm -rf %s", root);
        assert_int_equal(system(command), 0);
        if (cpus != cases[i].cpus) fail_msg("case %zu: %d CPUs", i, cpus);
    }
    assert_int_equal(mm_host_cpus_in("/nowhere", 0), 1);
    assert_in_range(mm_host_cpus(), 1, MM_HOST_THREADS_MOST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_task_runs_once_with_a_thread_number_of_its_own, host_threads_settle),
        cmocka_unit_test(the_first_failure_by_number_is_told),
        cmocka_unit_test(a_busy_pool_leaves_the_work_to_its_caller),
        cmocka_unit_test(a_pool_of_no_thread_is_refused),
        cmocka_unit_test(the_least_limit_of_the_control_groups_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

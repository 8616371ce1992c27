/* SPDX-License-Identifier: MIT */
/* A disk as a third place: networks train in less pinned memory than their policy needs, with the same bits; and a disk
 * that fails fails the iteration by name, and loses nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "mm/manager/manager.h"
#include "tests/core/deep.h"
#include "tests/suite/suite_rig.h"

enum { BATCH = 4, ITERATIONS = 3 };
static const int64_t DISK_BYTES = INT64_C(1) << 28;

/* All lossless. The second has homes in pinned memory, beside what comes from the disk. */
static const char *const POLICIES[] = {
    "swap-async:when=always",
    "swap-async:when=always,resident=none",
    "freelunch:codec=raw,eligible=all,when=always",
    "rules:relu=mask;*=swap,when=always",
    "recompute-swap:when=always",
    "swap:when=always",
};
enum { N_POLICIES = sizeof POLICIES / sizeof *POLICIES };

static const char *directory(void) {
    const char *given = getenv("TEST_TMPDIR");
    return given ? given : "/tmp";
}

/* A run in the policy's least budget, with a part of the pinned memory that it needs there. */
static mm_options options_of(const suite_net *s, const char *policy, int part) {
    const suite_need need = suite_needs(s, policy, 0);
    const suite_need free = suite_needs_within(s, policy, need.device_bytes, INT64_MAX);
    return (mm_options){.device_bytes = need.device_bytes,
                        .pinned_bytes = free.pinned_bytes - free.pinned_bytes / part,
                        .policy = policy,
                        .no_ladder = true,
                        .disk = directory(),
                        .disk_bytes = DISK_BYTES};
}

static void expect_same_bits(suite_net *s, int policies) {
    int with_disk = 0;
    for (int p = 0; p < policies; p++) {
        float loss;
        size_t n;
        float *expected = suite_train(s, POLICIES[p], ITERATIONS, &loss, &n);
        for (int part = 8; part >= 2; part /= 2) {
            mm_options options = options_of(s, POLICIES[p], part);
            options.self_check = part == 4;
            suite_run r;
            if (suite_needs_within(s, POLICIES[p], options.device_bytes, options.pinned_bytes).pinned_bytes <=
                options.pinned_bytes)
                continue; /* it has another plan that needs no disk */
            suite_run_init(&r, s, &options);
            float now = 0;
            for (int i = 0; i < ITERATIONS; i++) now = suite_iterate(&r);
            float *weights = suite_weights(&r, &n);
            mm_stats stats;
            mm_stats_get(r.manager, &stats);
            if (now != loss || !suite_same_learned(s, weights, expected))
                fail_msg("%s, %s, 1/%d less: other weights", nets_net_name(s->net), POLICIES[p], part);
            assert_true(stats.store_bytes > 0 && stats.load_bytes == stats.store_bytes);
            assert_int_equal(stats.ladder_steps, 0);
            with_disk++;
            free(weights);
            suite_run_fini(&r);
        }
        free(expected);
    }
    assert_true(with_disk >= policies);
}

static void a_network_trains_in_less_pinned_memory(void **state) {
    suite_net s;
    suite_net_init_dropped(&s, *state, BATCH);
    expect_same_bits(&s, test_depth(3, N_POLICIES));
    suite_net_fini(&s);
    suite_net_init(&s, *state, "resnet8", BATCH);
    expect_same_bits(&s, test_depth(1, N_POLICIES));
    suite_net_fini(&s);
}

/* Without the disk it is refused, with both numbers. */
static void without_the_disk_it_is_refused(void **state) {
    suite_net s;
    suite_net_init(&s, *state, "resnet8", BATCH);
    mm_options options = options_of(&s, POLICIES[0], 2);
    options.device = s.device;
    options.disk = NULL;
    options.disk_bytes = 0;
    suite_run r = {.s = &s, .backend = suite_backend(&s)};
    assert_int_equal(mm_manager_create(&options, &r.manager), MM_OK);
    assert_int_equal(nets_exec_create_with(s.net, s.batch, NETS_TRAIN, r.manager, r.backend, &SUITE_SGD,
                                           &(nets_exec_options){0}, &r.exec),
                     MM_ERR_INFEASIBLE);
    assert_non_null(strstr(mm_last_error(), "pinned"));
    suite_run_fini(&r);
    options.disk = directory(); /* a directory without a limit, and the reverse */
    assert_int_equal(mm_manager_create(&options, &r.manager), MM_ERR_INVALID);
    options.disk = NULL;
    options.disk_bytes = DISK_BYTES;
    assert_int_equal(mm_manager_create(&options, &r.manager), MM_ERR_INVALID);
    options.disk = "/nowhere/at/all";
    assert_int_equal(mm_manager_create(&options, &r.manager), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "disk /nowhere/at/all"));
    suite_net_fini(&s);
}

/* ---------------------------------------------------------------- a disk that fails */

static _Atomic int left;  /* accesses until one fails */
static _Atomic int error; /* it fails with that; 0: what is read is not there */

static ssize_t write_or_fail(int file, const void *data, size_t bytes, off_t offset) {
    if (atomic_fetch_sub(&left, 1) != 0) return pwrite(file, data, bytes, offset);
    errno = atomic_load(&error) ? atomic_load(&error) : EIO;
    return -1;
}

static ssize_t read_or_fail(int file, void *data, size_t bytes, off_t offset) {
    if (atomic_fetch_sub(&left, 1) != 0) return pread(file, data, bytes, offset);
    errno = atomic_load(&error);
    return errno ? -1 : 0;
}

static const mm_disk_io failing = {write_or_fail, read_or_fail};

/* The n-th access fails: the iteration fails with the disk's name, and what was learned is as before it or as after it.
 * Then the disk works again, and training gives the bits that it gives without a fault. */
static void a_failing_disk_fails_the_iteration_alone(void **state) {
    static const int errors[] = {EIO, ENOSPC, 0};
    suite_net s;
    suite_net_init_dropped(&s, *state, BATCH);
    const mm_options options = options_of(&s, POLICIES[0], 2);
    float *after[2];
    size_t n;
    suite_run r;
    suite_run_init(&r, &s, &options);
    after[0] = suite_weights(&r, &n);
    suite_iterate(&r);
    after[1] = suite_weights(&r, &n);
    suite_run_fini(&r);
    int failed = 0;
    for (int nth = 0;; nth++) {
        nets_result result;
        suite_run_init(&r, &s, &options);
        atomic_store(&error, errors[nth % 3]);
        atomic_store(&left, nth);
        mm_disk_set_io(r.manager->disk, &failing);
        const mm_status status = nets_exec_iteration(r.exec, s.images, s.labels, s.batch, SUITE_RATE, &result);
        const bool happened = atomic_load(&left) < 0;
        if (happened) assert_int_equal(status, MM_ERR_IO);
        if (happened && !strstr(mm_last_error(), "disk /")) fail_msg("no directory in '%s'", mm_last_error());
        mm_disk_set_io(r.manager->disk, NULL);
        float *now = suite_weights(&r, &n);
        assert_true(suite_same_learned(&s, now, after[0]) || suite_same_learned(&s, now, after[1]));
        free(now);
        if (nets_exec_init(r.exec, SUITE_SEED) != MM_OK) fail_msg("%s", mm_last_error());
        suite_iterate(&r);
        now = suite_weights(&r, &n);
        assert_true(suite_same_learned(&s, now, after[1]));
        free(now);
        suite_run_fini(&r);
        failed += happened;
        if (!happened) break;
    }
    assert_true(failed > 3);
    free(after[0]);
    free(after[1]);
    suite_net_fini(&s);
}

static int run(const char *device) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(a_network_trains_in_less_pinned_memory, device),
        SUITE_TEST(without_the_disk_it_is_refused, device),
        SUITE_TEST(a_failing_disk_fails_the_iteration_alone, device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return suite_on_each_device(run); }

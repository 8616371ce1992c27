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

#include "mm/manager/manager.h"
#include "mm/manager/prepare.h"
#include "mm/planning/home_route.h"
#include "mm/planning/together.h"
#include "nets/lower/lower.h"
#include "tests/buffers/disk_fault.h"
#include "tests/core/deep.h"
#include "tests/suite/never_mixed.h"
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
        disk_fault_set(r.manager->disk, DISK_FAULT_ONCE, nth, errors[nth % 3]);
        const mm_status status = nets_exec_iteration(r.exec, s.images, s.labels, s.batch, SUITE_RATE, &result);
        const bool happened = disk_fault_end(r.manager->disk);
        if (happened) assert_int_equal(status, MM_ERR_IO);
        if (happened && !strstr(mm_last_error(), "disk /")) fail_msg("no directory in '%s'", mm_last_error());
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

/* ---------------------------------------------------------------- homes on the disk */

static const char GPT[] = "gpt,layers=2,width=32,heads=2,context=16,vocabulary=100,dropout=0.1";

/* Policies whose weights and states leave the device. */
static const char *const HOUSING[] = {
    "swap-async:when=always,resident=none",
    "recompute-swap:when=always,resident=none",
    "auto:resident=needed",
    "liveness:resident=none",
    "freelunch:codec=raw,eligible=all,when=always,resident=none",
    "rules:relu=mask;conv=recompute;*=swap,resident=needed",
};
enum { N_HOUSING = sizeof HOUSING / sizeof *HOUSING };

/* As options_of, with a part of the pinned memory. */
static mm_options housed_options(const suite_net *s, const char *policy, int part) {
    mm_options options = options_of(s, policy, 1);
    const suite_need free = suite_needs_within(s, policy, options.device_bytes, INT64_MAX);
    options.pinned_bytes = free.pinned_bytes / part;
    return options;
}

static int64_t bytes_at_home(const suite_run *r) {
    const mm_plan *plan = mm_plan_now(r->manager, nets_exec_lowered(r->exec)->graph);
    return plan->disk_base_bytes;
}

/* Opens a run, if it fits with so little pinned memory. */
static bool open_run(suite_run *r, suite_net *s, const mm_options *options) {
    mm_options own = *options;
    own.device = s->device;
    *r = (suite_run){.s = s, .backend = suite_backend(s)};
    assert_int_equal(mm_manager_create(&own, &r->manager), MM_OK);
    r->manager->home_piece_bytes = MM_DISK_BLOCK; /* many pieces, also of a small net's tensors */
    const nets_exec_options how = {.update = s->update, .strip_elems = s->strip_elems};
    const mm_status status =
        nets_exec_create_with(s->net, s->batch, NETS_TRAIN, r->manager, r->backend, s->optimizer, &how, &r->exec);
    if (status == MM_OK) assert_int_equal(nets_exec_init(r->exec, SUITE_SEED), MM_OK);
    if (status == MM_OK) return true;
    if (status != MM_ERR_INFEASIBLE) fail_msg("%s", mm_last_error());
    suite_run_fini(r);
    return false;
}

static int expect_same_at_home(suite_net *s, int policies) {
    int at_home = 0;
    for (int u = NETS_UPDATE_AT_END; u <= NETS_UPDATE_IN_BACKWARD; u++) {
        s->update = (nets_update_when)u;
        float loss, now = 0;
        size_t n;
        float *expected = suite_train(s, "liveness", ITERATIONS, &loss, &n);
        for (int p = 0; p < policies; p++) {
            for (int part = 2; part <= 6; part += 2) {
                mm_options options = housed_options(s, HOUSING[p], part);
                options.self_check = part == 4;
                options.verify_issued = part == 2;
                suite_run r;
                if (!open_run(&r, s, &options)) continue;
                at_home += bytes_at_home(&r) > 0;
                for (int i = 0; i < ITERATIONS; i++) now = suite_iterate(&r);
                float *weights = suite_weights(&r, &n);
                mm_stats stats;
                mm_stats_get(r.manager, &stats);
                if (now != loss || !suite_same_learned(s, weights, expected))
                    fail_msg("%s, %s, 1/%d: other weights", nets_net_name(s->net), HOUSING[p], part);
                assert_true(bytes_at_home(&r) == 0 || (stats.store_bytes > 0 && stats.load_bytes > 0));
                free(weights);
                suite_run_fini(&r);
            }
        }
        free(expected);
    }
    return at_home;
}

static void homes_go_on_to_the_disk(void **state) {
    suite_net s;
    suite_net_init(&s, *state, GPT, BATCH);
    s.optimizer = &SUITE_ADAMW;
    s.strip_elems = 1;
    const int policies = test_depth(strcmp(s.device, "host") == 0 ? 2 : 1, N_HOUSING);
    int at_home = expect_same_at_home(&s, policies);
    suite_net_fini(&s);
    suite_net_init_dropped(&s, *state, BATCH);
    s.optimizer = &SUITE_ADAMW;
    at_home += expect_same_at_home(&s, policies);
    suite_net_fini(&s);
    assert_true(at_home >= 2 * policies);
}

/* Whether the policy has a plan within these limits. */
static bool fits(const suite_net *s, const nets_lowered *lowered, const char *spec, const mm_limits *limits) {
    mm_policy policy;
    mm_planned planned;
    assert_int_equal(mm_policy_parse(spec, &policy), MM_OK);
    assert_int_equal(mm_planned_init(&planned, &policy, lowered->graph, s->device), MM_OK);
    if (mm_planned_make_housed(&planned, &policy, lowered->graph, limits) != MM_OK) fail_msg("%s", mm_last_error());
    const mm_plan *plan = planned.plan;
    const bool all = plan->peak_bytes <= limits->device_bytes && plan->pinned_bytes <= limits->pinned_bytes &&
                     plan->disk_bytes <= limits->disk_bytes;
    mm_planned_fini(&planned);
    mm_policy_fini(&policy);
    return all;
}

/* Limits of the device, of pinned memory, and of the disk, in parts of what all persistent tensors take. */
enum { LIMITS = 3, PARTS = 120 };
typedef struct ladder {
    int fixed[LIMITS]; /* while another limit grows */
    int step[LIMITS];
} ladder;

/* What some bytes of the device, of pinned memory, or of the disk allow, more of them allow, too. on_host: optimizer
 * states in host memory are what goes on to the disk. */
static void expect_more_is_enough(suite_net *s, bool on_host, const char *const *policies, int n, const ladder *l) {
    enum { SIZES = 8 };
    nets_lowered *lowered;
    int enough = 0, refused = 0;
    const nets_lowering how = {.mode = NETS_TRAIN,
                               .optimizer = SUITE_ADAMW.id,
                               .update = on_host ? NETS_UPDATE_IN_BACKWARD : NETS_UPDATE_BY_LAYER,
                               .on_host = on_host};
    nets_backend *backend = suite_backend(s);
    if (nets_lower(s->net, backend, 2, &how, &lowered) != MM_OK) fail_msg("%s", mm_last_error());
    const int64_t all = mm_plan_base(lowered->graph);
    for (int p = 0; p < n; p++)
        for (int limit = 0; limit < LIMITS; limit++) {
            int least = 0;
            for (int i = 1; i <= SIZES; i++) {
                int64_t bytes[LIMITS];
                for (int k = 0; k < LIMITS; k++) bytes[k] = all * (k == limit ? i * l->step[k] : l->fixed[k]) / PARTS;
                const mm_limits limits = {.device_bytes = bytes[0],
                                          .pinned_bytes = bytes[1],
                                          .disk_bytes = bytes[2],
                                          .base_bytes = all,
                                          .first_fit = true};
                const bool now = fits(s, lowered, policies[p], &limits);
                enough += now;
                refused += !now;
                if (least > 0 && !now) fail_msg("%s, limit %d: %d is enough, and %d not", policies[p], limit, least, i);
                if (now && least == 0) least = i;
            }
        }
    print_message("%d are enough, %d not\n", enough, refused);
    assert_true(enough > SIZES && refused > 2);
    nets_lowered_destroy(lowered);
    nets_backend_close(backend);
}

static void more_is_never_refused_where_less_is_enough(void **state) {
    static const char *const policies[] = {"swap-async:resident=needed", "auto", "recompute-swap:resident=needed"};
    static const ladder all = {{60, 24, 120}, {15, 10, 20}};
    static const char *const hosted[] = {"liveness", "swap-async:resident=needed", "swap-async"};
    static const ladder states = {{60, 90, 120}, {10, 15, 8}};
    suite_net s;
    suite_net_init(&s, *state, "gpt,layers=3,width=48,heads=2,context=16,vocabulary=100", 2);
    expect_more_is_enough(&s, false, policies, test_depth(1, 3), &all);
    expect_more_is_enough(&s, true, hosted, test_depth(2, 3), &states);
    suite_net_fini(&s);
}

/* Homes move from and to the disk at run time, some with iterations still running; and what the caller reads and writes
 * of one, from any byte on, is there. */
static void homes_come_and_go(void **state) {
    enum { SWITCHES = 8 };
    static const char *const specs[] = {"liveness:resident=none", "liveness", "swap-async:when=always,resident=none",
                                        "recompute-swap:when=always,resident=none"};
    suite_net s;
    suite_run r;
    size_t n;
    int at_home = 0;
    suite_net_init(&s, *state, GPT, BATCH);
    s.optimizer = &SUITE_ADAMW;
    float *expected = suite_expected(&s, "liveness", SWITCHES, &n);
    const int64_t most = suite_needs(&s, "liveness", 0).device_bytes;
    mm_options options = housed_options(&s, specs[3], 4);
    options.device_bytes = most;
    options.policy = "liveness";
    assert_true(open_run(&r, &s, &options));
    for (int i = 0; i < SWITCHES; i++) {
        const mm_status status = mm_policy_set(r.manager, specs[i % 4]);
        if (status != MM_OK && status != MM_ERR_INFEASIBLE) fail_msg("%s", mm_last_error());
        const int64_t bytes = bytes_at_home(&r);
        at_home += bytes > 0;
        for (int p = 0; p < nets_net_params(s.net); p++) {
            char name[NETS_PARAM_NAME_CAPACITY + 32];
            uint8_t own[3] = {1, 2, 3}, there[3], again[3];
            snprintf(name, sizeof name, "exp_avg.%s", nets_net_param(s.net, p)->name);
            if (nets_net_param(s.net, p)->elems < 1500) continue;
            assert_int_equal(mm_persistent_get(r.manager, name, 4095, there, 3), MM_OK); /* across two blocks */
            assert_int_equal(mm_persistent_set(r.manager, name, 4095, own, 3), MM_OK);
            assert_int_equal(mm_persistent_get(r.manager, name, 4095, again, 3), MM_OK);
            assert_memory_equal(again, own, 3);
            assert_int_equal(mm_persistent_set(r.manager, name, 4095, there, 3), MM_OK);
            size_t size = 0;
            const void *home = mm_persistent_data(r.manager, name, &size);
            assert_int_equal(size, nets_net_param(s.net, p)->elems * 4);
            assert_true(home || bytes > 0);
        }
        suite_iterate(&r);
    }
    float *weights = suite_weights(&r, &n);
    assert_true(suite_same_learned(&s, weights, expected));
    assert_true(at_home >= 2 && at_home < SWITCHES);
    free(weights);
    suite_run_fini(&r);
    free(expected);
    suite_net_fini(&s);
}

/* Whatever access fails, what was learned is never mixed. */
static void a_failing_disk_never_mixes_what_was_learned(void **state) {
    suite_net s;
    suite_net_init(&s, *state, GPT, BATCH);
    s.optimizer = &SUITE_ADAMW;
    s.update = NETS_UPDATE_BY_LAYER;
    const mm_options options = housed_options(&s, HOUSING[0], 4);
    const bool quick = strcmp(s.device, "host") == 0 && !test_is_sanitized();
    const never_mixed found = suite_never_mixed(&s, &options, test_depth(quick ? 11 : 31, 1));
    print_message("%d accesses failed; after %d of them all that was learned was whole\n", found.failed, found.saved);
    assert_true(found.failed > 5 && found.saved > 0 && found.saved < found.failed);
    suite_net_fini(&s);
}

/* A switch that moves homes to a disk which fails: everything stays as it was. */
static void a_move_to_a_failing_disk_is_taken_back(void **state) {
    suite_net s;
    suite_run r;
    size_t n;
    suite_net_init(&s, *state, GPT, BATCH);
    s.optimizer = &SUITE_ADAMW;
    mm_options options = housed_options(&s, HOUSING[0], 4);
    options.device_bytes = suite_needs(&s, "liveness", 0).device_bytes;
    options.policy = "liveness";
    assert_true(open_run(&r, &s, &options));
    suite_iterate(&r);
    float *before = suite_weights(&r, &n);
    for (int nth = 0; nth < 9; nth += 4) {
        disk_fault_set(r.manager->disk, DISK_FAULT_ONCE, nth, EIO);
        assert_int_equal(mm_policy_set(r.manager, HOUSING[0]), MM_ERR_IO);
        if (!strstr(mm_last_error(), "disk /")) fail_msg("no directory in '%s'", mm_last_error());
        disk_fault_end(r.manager->disk);
        float *now = suite_weights(&r, &n);
        assert_true(suite_same_learned(&s, now, before));
        assert_int_equal(bytes_at_home(&r), 0);
        free(now);
    }
    assert_int_equal(mm_policy_set(r.manager, HOUSING[0]), MM_OK);
    assert_true(bytes_at_home(&r) > 0);
    suite_iterate(&r);
    suite_run_fini(&r);
    free(before);
    suite_net_fini(&s);
}

/* A move fails, and so does the way back: homes of gradients on the disk are lost, and no weight or state is. */
static void what_stays_in_memory_survives_a_disk_that_fails_for_good(void **state) {
    suite_net s;
    size_t n;
    int lost = 0;
    suite_net_init(&s, *state, GPT, BATCH);
    s.optimizer = &SUITE_ADAMW;
    mm_options options = housed_options(&s, "rules:gradients=host;*=swap", 4);
    options.device_bytes = suite_needs(&s, "liveness", 0).device_bytes;
    for (int nth = 0; nth < 40; nth += test_depth(strcmp(s.device, "host") == 0 ? 6 : 12, 3)) {
        suite_run r;
        assert_true(open_run(&r, &s, &options));
        r.manager->home_piece_bytes = MM_ROUTE_PIECE_BYTES; /* so that homes on the disk are overwritten early */
        assert_true(bytes_at_home(&r) > 0);
        suite_iterate(&r);
        float *before = suite_learned(&r, &n); /* gradients may be lost */
        disk_fault_set(r.manager->disk, DISK_FAULT_WRITES, nth, EIO);
        const mm_status status = mm_policy_set(r.manager, "rules:weights=host;gradients=host;*=swap");
        if (status != MM_OK) {
            assert_int_equal(status, MM_ERR_IO);
            lost += strstr(mm_last_error(), "could not be moved back") != NULL;
        }
        disk_fault_end(r.manager->disk);
        float *now = suite_learned(&r, &n);
        assert_true(suite_same_learned(&s, now, before));
        free(now);
        free(before);
        suite_run_fini(&r);
    }
    assert_true(lost > 0);
    suite_net_fini(&s);
}

static const char MOVE_FROM[] = "rules:gradients=host;*=swap", MOVE_TO[] = "rules:weights=host;gradients=host;*=swap";

/* A run whose homes go to the disk and come from there when MOVE_TO is set. */
static mm_options moving_options(const suite_net *s) {
    mm_options options = housed_options(s, MOVE_FROM, 4);
    options.device_bytes = suite_needs(s, "liveness", 0).device_bytes;
    return options;
}

/* Whatever access of a move fails: everything stays as it was, and the next move works. */
static void a_move_that_fails_at_any_access_is_taken_back(void **state) {
    suite_net s;
    suite_run r;
    size_t n;
    int failed = 0;
    suite_net_init(&s, *state, GPT, BATCH);
    s.optimizer = &SUITE_ADAMW;
    const mm_options options = moving_options(&s);
    assert_true(open_run(&r, &s, &options));
    suite_iterate(&r);
    float *before = suite_weights(&r, &n);
    const int64_t bytes = bytes_at_home(&r);
    for (int way = 0; way < 2; way++)
        for (int nth = 0;; nth++) {
            disk_fault_set(r.manager->disk, DISK_FAULT_ONCE, nth, EIO);
            const mm_status status = mm_policy_set(r.manager, way ? MOVE_FROM : MOVE_TO);
            const bool happened = disk_fault_end(r.manager->disk);
            assert_int_equal(status, happened ? MM_ERR_IO : MM_OK);
            float *now = suite_weights(&r, &n);
            if (!suite_same_learned(&s, now, before)) fail_msg("way %d, access %d: other values", way, nth);
            free(now);
            failed += happened;
            if (!happened) break;
            if (way == 0) assert_int_equal(bytes_at_home(&r), bytes);
        }
    assert_true(failed > 20);
    suite_iterate(&r);
    suite_run_fini(&r);
    free(before);
    suite_net_fini(&s);
}

/* How many tensors can no longer be read; the others have the values that they had. */
static int count_lost(const suite_run *r, const float *before) {
    size_t at = 0;
    int lost = 0;
    for (nets_part part = NETS_VALUE; part < NETS_PARTS; part++)
        for (int p = 0; p < nets_net_params(r->s->net); p++) {
            const size_t elems = (size_t)nets_net_param(r->s->net, p)->elems;
            float *now = malloc(elems * sizeof *now);
            assert_non_null(now);
            const mm_status status = nets_exec_param_get(r->exec, p, part, now);
            if (status == MM_OK) assert_memory_equal(now, before + at, elems * sizeof *now);
            lost += status == MM_ERR_IO;
            free(now);
            at += elems;
        }
    return lost;
}

/* A disk that does nothing any more amid a move: what cannot be had back is refused, and never read as something else;
 * with new values everything works as before. */
static void a_move_to_a_dead_disk_gives_no_wrong_values(void **state) {
    suite_net s;
    float *before = NULL, *after = NULL;
    size_t n;
    int lost = 0;
    suite_net_init(&s, *state, GPT, BATCH);
    s.optimizer = &SUITE_ADAMW;
    const mm_options options = moving_options(&s);
    for (int nth = 0; nth < 80; nth += 4) {
        suite_run r;
        assert_true(open_run(&r, &s, &options));
        suite_iterate(&r);
        if (!before) before = suite_weights(&r, &n);
        disk_fault_set(r.manager->disk, DISK_FAULT_FOR_GOOD, nth, EIO);
        const mm_status status = mm_policy_set(r.manager, MOVE_TO);
        assert_true(status == MM_OK || status == MM_ERR_IO);
        disk_fault_end(r.manager->disk);
        lost += count_lost(&r, before);
        if (nets_exec_init(r.exec, SUITE_SEED) != MM_OK) fail_msg("%s", mm_last_error());
        suite_iterate(&r);
        float *now = suite_weights(&r, &n);
        if (!after) after = now;
        assert_true(suite_same_learned(&s, now, after));
        if (now != after) free(now);
        suite_run_fini(&r);
    }
    assert_true(lost > 0);
    free(before);
    free(after);
    suite_net_fini(&s);
}

static int run(const char *device) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(homes_go_on_to_the_disk, device),
        SUITE_TEST(more_is_never_refused_where_less_is_enough, device),
        SUITE_TEST(homes_come_and_go, device),
        SUITE_TEST(a_failing_disk_never_mixes_what_was_learned, device),
        SUITE_TEST(a_move_to_a_failing_disk_is_taken_back, device),
        SUITE_TEST(a_move_that_fails_at_any_access_is_taken_back, device),
        SUITE_TEST(a_move_to_a_dead_disk_gives_no_wrong_values, device),
        SUITE_TEST(what_stays_in_memory_survives_a_disk_that_fails_for_good, device),
        SUITE_TEST(a_network_trains_in_less_pinned_memory, device),
        SUITE_TEST(without_the_disk_it_is_refused, device),
        SUITE_TEST(a_failing_disk_fails_the_iteration_alone, device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return suite_on_each_device(run); }

/* SPDX-License-Identifier: MIT */
/* Updates on the host (nets_optimizer.on_host): the device's bits under every policy, with states in pinned memory;
 * what is refused; what fails. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/splitmix.h"
#include "mm/manager/manager.h"
#include "mm/manager/prepare.h"
#include "tests/core/deep.h"
#include "tests/suite/device_fault.h"
#include "tests/suite/never_mixed.h"
#include "tests/suite/suite_rig.h"

enum { BATCH = 3, ITERATIONS = 2 };

static const char VGG[] = "vgg11@32x32,classes=10,thin=16";
static const char GPT[] = "gpt,layers=2,width=32,heads=2,context=16,vocabulary=64,dropout=0.1";
static const char LLAMA[] = "llama-15m,layers=2,width=32,heads=2,kv_heads=1,hidden=64,context=16,vocabulary=64";
static const char LORA[] =
    "llama-15m,layers=2,width=32,heads=2,kv_heads=1,hidden=64,context=16,vocabulary=64 lora:rank=4";

/* The first few show each way to act on a map; a deep test runs all. */
static const char *const POLICIES[] = {
    "liveness",
    "swap-async:when=always",
    "recompute:mode=sqrt,when=always",
    "recompute-swap:when=always",
    "recompute:mode=nested,when=always",
    "recompute:mode=memory,when=always",
    "freelunch:codec=raw,eligible=all,when=always",
    "rules:relu=mask;conv=recompute;*=swap",
    "auto:resident=none",
    "naive",
    "swap",
};
enum { N_POLICIES = sizeof POLICIES / sizeof *POLICIES };

static nets_optimizer on_host(nets_optimizer optimizer) {
    optimizer.on_host = true;
    return optimizer;
}

/* Under each policy at its least budget, against the device's update at the end. */
static void expect_device_bits(suite_net *s, const nets_optimizer *device) {
    const nets_optimizer host = on_host(*device);
    float loss, other;
    size_t n;
    s->optimizer = device;
    s->update = NETS_UPDATE_AT_END;
    float *expected = suite_train(s, "liveness", ITERATIONS, &loss, &n);
    s->optimizer = &host;
    s->update = NETS_UPDATE_IN_BACKWARD;
    const int policies = test_depth(strcmp(s->device, "host") == 0 ? 4 : 2, N_POLICIES);
    for (int p = 0; p < policies; p++) {
        float *weights = suite_train(s, POLICIES[p], ITERATIONS, &other, &n);
        if (other != loss || !suite_same_learned(s, weights, expected))
            fail_msg("%s, %s: other weights", nets_net_name(s->net), POLICIES[p]);
        free(weights);
    }
    s->optimizer = device;
    free(expected);
}

static void with_batch_norm_and_dropout(void **state) {
    static const nets_optimizer plain = {.id = NETS_PLAIN_SGD, .weight_decay = 1e-4};
    suite_net s;
    suite_net_init_dropped(&s, *state, BATCH);
    expect_device_bits(&s, &SUITE_SGD);
    expect_device_bits(&s, &plain);
    suite_net_fini(&s);
}

static void with_a_tied_embedding(void **state) {
    suite_net s;
    suite_net_init(&s, *state, GPT, BATCH);
    expect_device_bits(&s, &SUITE_ADAMW);
    suite_net_fini(&s);
}

static void with_copies_in_bf16(void **state) {
    suite_net s;
    suite_net_init(&s, *state, LLAMA, BATCH);
    s.precision = NETS_BF16;
    expect_device_bits(&s, &SUITE_ADAMW);
    suite_net_fini(&s);
}

static void with_adapters(void **state) {
    suite_net s;
    suite_net_init(&s, *state, LORA, BATCH);
    s.precision = NETS_BF16;
    expect_device_bits(&s, &SUITE_ADAMW);
    suite_net_fini(&s);
}

/* Budgets and policies change between iterations, each of which follows another that may still run. */
static void policies_switch_while_iterations_run_ahead(void **state) {
    enum { SWITCHES = 8 };
    const nets_optimizer host = on_host(SUITE_ADAMW);
    suite_net s;
    suite_run r;
    nets_result result;
    size_t n;
    uint64_t random = 5;
    suite_net_init(&s, *state, GPT, BATCH);
    s.optimizer = &SUITE_ADAMW;
    float *expected = suite_expected(&s, "liveness", 2 * SWITCHES, &n);
    s.optimizer = &host;
    s.update = NETS_UPDATE_IN_BACKWARD;
    const int64_t least = suite_needs(&s, "recompute:mode=memory,when=always", 0).device_bytes;
    const int64_t most = suite_needs(&s, "liveness", 0).device_bytes;
    suite_run_init(
        &r, &s,
        &(mm_options){.device_bytes = most, .pinned_bytes = 64 << 20, .policy = "liveness", .measure_touched = true});
    for (int i = 0; i < SWITCHES; i++) {
        const char *policy = POLICIES[mm_random_next(&random) % 9];
        const int64_t budget = least + (int64_t)(mm_random_next(&random) % (uint64_t)(most - least + 1));
        suite_switch(&r, policy, budget);
        for (int k = 0; k < 2; k++)
            assert_int_equal(nets_exec_submit(r.exec, s.images, s.labels, BATCH, SUITE_RATE), MM_OK);
        for (int k = 0; k < 2; k++) assert_int_equal(nets_exec_collect(r.exec, &result), MM_OK);
        assert_int_equal(result.halted, 0);
    }
    suite_expect_end(&r, most, expected);
    free(expected);
    suite_net_fini(&s);
}

/* Weights, gradients and states take no memory of the device but for a few at a time. */
static void states_take_pinned_memory(void **state) {
    const nets_optimizer host = on_host(SUITE_ADAMW);
    suite_net s;
    suite_net_init(&s, *state, "gpt,layers=8,width=64,heads=2,context=8,vocabulary=16", 1);
    int64_t weights = 0;
    for (int p = 0; p < nets_net_params(s.net); p++)
        weights += nets_net_param(s.net, p)->elems * (int64_t)sizeof(float);
    s.optimizer = &SUITE_ADAMW;
    const int64_t all = suite_needs(&s, "liveness", 0).device_bytes;
    s.optimizer = &host;
    s.update = NETS_UPDATE_IN_BACKWARD;
    const suite_need need = suite_needs(&s, "liveness", 0);
    if (need.device_bytes > all - 3 * weights || need.pinned_bytes < 4 * weights)
        fail_msg("%lld bytes of %lld, and %lld pinned; the weights have %lld", (long long)need.device_bytes,
                 (long long)all, (long long)need.pinned_bytes, (long long)weights);
    suite_net_fini(&s);
}

/* Pinned memory has no room for the states: those that exceed it are on the disk, from where plans load them for the
 * update, and where they store them after it. The bits are the same. */
static void states_go_on_to_the_disk(void **state) {
    static const char *const policies[] = {"liveness", "swap-async:when=always", "auto:resident=none"};
    const nets_optimizer host = on_host(SUITE_ADAMW);
    const char *directory = getenv("TEST_TMPDIR");
    suite_net s;
    float loss;
    size_t n;
    int with_disk = 0, some_stay = 0;
    suite_net_init(&s, *state, GPT, BATCH);
    s.optimizer = &SUITE_ADAMW;
    float *expected = suite_train(&s, "liveness", 3, &loss, &n);
    s.optimizer = &host;
    s.update = NETS_UPDATE_IN_BACKWARD;
    for (int p = 0; p < test_depth(2, 3); p++) {
        const suite_need need = suite_needs(&s, policies[p], 0);
        const int64_t pinned = suite_needs_within(&s, policies[p], need.device_bytes, INT64_MAX).pinned_bytes;
        for (int tenths = 9; tenths >= 7; tenths--) {
            suite_run r;
            mm_stats stats;
            suite_run_init(&r, &s,
                           &(mm_options){.device_bytes = need.device_bytes + need.device_bytes / 2,
                                         .pinned_bytes = pinned / 10 * tenths,
                                         .policy = policies[p],
                                         .disk = directory ? directory : "/tmp",
                                         .disk_bytes = 1 << 26,
                                         .self_check = tenths == 8,
                                         .verify_issued = tenths == 7,
                                         .no_ladder = true});
            suite_iterate(&r);
            nets_result result;
            for (int i = 0; i < NETS_AHEAD; i++)
                assert_int_equal(nets_exec_submit(r.exec, s.images, s.labels, BATCH, SUITE_RATE), MM_OK);
            for (int i = 0; i < NETS_AHEAD; i++) assert_int_equal(nets_exec_collect(r.exec, &result), MM_OK);
            mm_stats_get(r.manager, &stats);
            const mm_plan *plan = mm_plan_now(r.manager, nets_exec_lowered(r.exec)->graph);
            with_disk += plan->disk_base_bytes > 0 && stats.load_bytes > 0 && stats.store_bytes > 0;
            some_stay += plan->disk_base_bytes < 2 * plan->pinned_base_bytes;
            float *weights = suite_weights(&r, &n);
            if (!suite_same_learned(&s, weights, expected)) fail_msg("%s, %d/10: other weights", policies[p], tenths);
            free(weights);
            suite_run_fini(&r);
        }
    }
    assert_true(with_disk >= 4 && some_stay > 0);
    free(expected);
    suite_net_fini(&s);
}

/* The same whatever access to the states on the disk fails. */
static void a_failing_disk_never_mixes_hosted_states(void **state) {
    const nets_optimizer host = on_host(SUITE_ADAMW);
    const char *directory = getenv("TEST_TMPDIR");
    suite_net s;
    suite_net_init(&s, *state, "gpt,layers=1,width=16,heads=1,context=8,vocabulary=16", 1);
    s.optimizer = &host;
    s.update = NETS_UPDATE_IN_BACKWARD;
    const suite_need need = suite_needs(&s, "liveness", 0);
    const mm_options options = {.device_bytes = need.device_bytes,
                                .pinned_bytes = need.pinned_bytes / 4 * 3,
                                .policy = "liveness",
                                .disk = directory ? directory : "/tmp",
                                .disk_bytes = 1 << 26,
                                .no_ladder = true};
    assert_true(suite_never_mixed(&s, &options, test_depth(3, 1)).failed > 3);
    suite_net_fini(&s);
}

/* The host does not wait until all gradients are known to be finite: the training ends, and no state is saved. */
static void what_is_not_finite_ends_the_training(void **state) {
    nets_optimizer host = on_host(SUITE_SGD);
    suite_net s;
    suite_run r;
    nets_result result;
    int64_t updates;
    host.only_finite = true;
    suite_net_init(&s, *state, VGG, BATCH);
    s.optimizer = &host;
    s.update = NETS_UPDATE_IN_BACKWARD;
    suite_run_init(&r, &s, &(mm_options){.device_bytes = 64 << 20, .pinned_bytes = 64 << 20, .policy = "liveness"});
    suite_iterate(&r);
    assert_int_equal(nets_exec_updates(r.exec, &updates), MM_OK);
    assert_int_equal(updates, 1);
    s.images[5] = NAN;
    for (int i = 0; i < 2; i++)
        assert_int_equal(nets_exec_submit(r.exec, s.images, s.labels, BATCH, SUITE_RATE), MM_OK);
    assert_int_equal(nets_exec_collect(r.exec, &result), MM_OK);
    assert_true(result.halted != 0);
    assert_int_equal(nets_exec_updates(r.exec, &updates), MM_ERR_DEVICE);
    if (!strstr(mm_last_error(), "iteration 2 ended after")) fail_msg("%s", mm_last_error());
    suite_run_fini(&r);
    suite_net_fini(&s);
}

/* After a failure the iteration is undone, and runs again to the same bits; or, if the host may have updated weights,
 * these are said to be of no use. */
static void a_failing_task_leaves_the_weights_or_tells(void **state) {
    const nets_optimizer host = on_host(SUITE_ADAMW);
    int undone = 0, torn = 0;
    suite_net s;
    size_t n;
    suite_net_init(&s, *state, "gpt,layers=1,width=16,heads=1,context=8,vocabulary=16", 1);
    s.optimizer = &host;
    s.update = NETS_UPDATE_IN_BACKWARD;
    float *expected = suite_expected(&s, "swap-async:when=always", 2, &n);
    const bool few = test_is_sanitized() || strcmp(s.device, "host") != 0;
    for (int nth = 1, step = test_depth(few ? 23 : 4, few ? 3 : 1);; nth += step) {
        suite_run r;
        nets_result result;
        int64_t updates;
        size_t m;
        suite_run_init(&r, &s,
                       &(mm_options){.device_bytes = 1 << 20,
                                     .pinned_bytes = 4 << 20,
                                     .policy = "swap-async:when=always",
                                     .no_ladder = true});
        suite_iterate(&r);
        device_fault_set(DEVICE_FAULT_TASK, nth);
        const mm_status status = nets_exec_iteration(r.exec, s.images, s.labels, 1, SUITE_RATE, &result);
        const bool happened = device_fault_happened();
        device_fault_set(DEVICE_FAULT_NONE, 0);
        if (status == MM_OK) assert_false(happened);
        const bool whole = nets_exec_updates(r.exec, &updates) == MM_OK;
        if (!whole) torn += strstr(mm_last_error(), "ended after") != NULL;
        undone += whole && status != MM_OK;
        if (whole && updates == 1) suite_iterate(&r);
        float *weights = suite_weights(&r, &m);
        if (whole && !suite_same_learned(&s, weights, expected))
            fail_msg("task %d: status %d, %lld updates: other weights", nth, status, (long long)updates);
        free(weights);
        suite_run_fini(&r);
        if (!happened) break;
    }
    assert_true(undone > 0 && torn > 0);
    free(expected);
    suite_net_fini(&s);
}

static void what_the_host_cannot_do_is_refused(void **state) {
    static const suite_refused CASES[] = {
        {.update = NETS_UPDATE_AT_END, .why = "at the end: the host (on=host)"},
        {.update = NETS_UPDATE_BY_LAYER, .why = "by layer: the host (on=host)"},
        {.update = NETS_UPDATE_IN_BACKWARD, .clip_norm = 1, .why = "clipping"},
        {.update = NETS_UPDATE_IN_BACKWARD, .sub_batch = 1, .why = "sub-batches"},
        {.update = NETS_UPDATE_IN_BACKWARD, .allreduce = {.n = 2}, .why = "several ranks"},
        {.update = NETS_UPDATE_IN_BACKWARD, .policy = "modnn", .why = "run on the host"},
    };
    const nets_optimizer host = on_host(SUITE_SGD);
    suite_net s;
    suite_net_init(&s, *state, VGG, BATCH);
    suite_expect_refused(&s, &host, CASES, sizeof CASES / sizeof *CASES);
    suite_net_fini(&s);
}

static int run(const char *device) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(with_batch_norm_and_dropout, device),
        SUITE_TEST(with_a_tied_embedding, device),
        SUITE_TEST(with_copies_in_bf16, device),
        SUITE_TEST(with_adapters, device),
        SUITE_TEST(policies_switch_while_iterations_run_ahead, device),
        SUITE_TEST(states_take_pinned_memory, device),
        SUITE_TEST(states_go_on_to_the_disk, device),
        SUITE_TEST(a_failing_disk_never_mixes_hosted_states, device),
        SUITE_TEST(what_is_not_finite_ends_the_training, device),
        SUITE_TEST(a_failing_task_leaves_the_weights_or_tells, device),
        SUITE_TEST(what_the_host_cannot_do_is_refused, device),
    };
    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

int main(void) { return suite_on_each_device(run); }

/* SPDX-License-Identifier: MIT */
/* Weights, gradients and optimizer states with homes in pinned memory (the policies' option resident=): all give the
 * same bits, in less device memory; homes move at run time, and nothing is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/splitmix.h"
#include "tests/core/deep.h"
#include "tests/suite/suite_rig.h"

enum { BATCH = 3, ITERATIONS = 2 };

static const char VGG[] = "vgg11@32x32,classes=10,thin=16";
static const char GPT[] = "gpt,layers=2,width=32,heads=2,context=16,vocabulary=100,dropout=0.1";
static const char LLAMA[] = "llama-15m,layers=2,width=32,heads=2,kv_heads=1,hidden=64,context=16,vocabulary=64";

/* The first few show each way to act on a map; a deep test runs all. */
static const char *const POLICIES[] = {
    "liveness:resident=none",
    "recompute:mode=sqrt,resident=none",
    "swap-async:resident=needed",
    "recompute-swap:when=always,resident=none",
    "swap-async:when=always,resident=none",
    "recompute:mode=nested,when=always,resident=needed",
    "recompute:mode=memory,when=always,resident=none",
    "freelunch:codec=raw,eligible=all,when=always,resident=none",
    "rules:relu=mask;conv=recompute;*=swap,resident=needed",
    "auto:resident=none",
};
enum { N_POLICIES = sizeof POLICIES / sizeof *POLICIES };

/* Under each policy at its least budget, with updates at the end, by layer and in the backward pass. */
static void expect_same_bits(suite_net *s) {
    float loss, other;
    size_t n;
    s->update = NETS_UPDATE_AT_END;
    float *expected = suite_train(s, "liveness", ITERATIONS, &loss, &n);
    const bool host = strcmp(s->device, "host") == 0;
    const int policies = test_depth(host ? 4 : 2, N_POLICIES);
    for (int u = NETS_UPDATE_AT_END; u <= NETS_UPDATE_IN_BACKWARD; u++)
        for (int p = 0; p < policies; p++) {
            s->update = (nets_update_when)u;
            float *weights = suite_train(s, POLICIES[p], ITERATIONS, &other, &n);
            if (other != loss || !suite_same_learned(s, weights, expected))
                fail_msg("%s, %s, update %d: other weights", nets_net_name(s->net), POLICIES[p], u);
            free(weights);
        }
    free(expected);
}

static void with_batch_norm_and_dropout(void **state) {
    suite_net s;
    suite_net_init_dropped(&s, *state, BATCH);
    expect_same_bits(&s);
    suite_net_fini(&s);
}

static void with_a_tied_embedding(void **state) {
    suite_net s;
    suite_net_init(&s, *state, GPT, BATCH);
    s.optimizer = &SUITE_ADAMW;
    s.strip_elems = 1;
    expect_same_bits(&s);
    suite_net_fini(&s);
}

static void with_copies_in_bf16(void **state) {
    suite_net s;
    suite_net_init(&s, *state, LLAMA, BATCH);
    s.optimizer = &SUITE_ADAMW;
    s.precision = NETS_BF16;
    expect_same_bits(&s);
    suite_net_fini(&s);
}

/* States in codes have homes, too, and lose what they lose whatever the policy, the update and the budget. Weights of
 * convolutions are in another order on cuda. */
static void with_states_in_codes(void **state) {
    static const struct {
        const char *policy;
        nets_update_when update;
    } RUNS[] = {{"liveness:resident=none", NETS_UPDATE_IN_BACKWARD},
                {"swap-async:resident=needed", NETS_UPDATE_BY_LAYER},
                {"recompute-swap:when=always,resident=none", NETS_UPDATE_AT_END}};
    nets_optimizer optimizer;
    suite_net s;
    float loss, other;
    size_t n;
    assert_int_equal(nets_optimizer_parse("adamw,states=8bit", &optimizer), MM_OK);
    suite_net_init(&s, *state, VGG, BATCH);
    s.optimizer = &SUITE_ADAMW;
    const int64_t in_floats = suite_needs(&s, "liveness", 0).device_bytes;
    s.optimizer = &optimizer;
    const int64_t in_codes = suite_needs(&s, "liveness", 0).device_bytes;
    int64_t coded = 0;
    for (int p = 0; p < nets_net_params(s.net); p++)
        if (nets_net_param(s.net, p)->elems >= 4096) coded += nets_net_param(s.net, p)->elems;
    assert_true(coded > 0 && in_floats - in_codes >= coded * 5);
    float *expected = suite_train(&s, "liveness", ITERATIONS, &loss, &n);
    for (size_t i = 0; i < sizeof RUNS / sizeof *RUNS; i++) {
        s.update = RUNS[i].update;
        float *weights = suite_train(&s, RUNS[i].policy, ITERATIONS, &other, &n);
        if (other != loss || !suite_same_learned(&s, weights, expected)) fail_msg("%s: other weights", RUNS[i].policy);
        free(weights);
    }
    free(expected);
    suite_net_fini(&s);
}

/* The graphs of three passes share their homes. */
static void in_sub_batches(void **state) {
    suite_net s;
    float loss, other;
    size_t n;
    suite_net_init(&s, *state, VGG, BATCH);
    s.sub_batch = 1;
    float *expected = suite_train(&s, "liveness", ITERATIONS, &loss, &n);
    for (int u = NETS_UPDATE_AT_END; u <= NETS_UPDATE_BY_LAYER; u++) {
        s.update = (nets_update_when)u;
        float *weights = suite_train(&s, "liveness:resident=none", ITERATIONS, &other, &n);
        assert_true(other == loss && memcmp(weights, expected, n * sizeof *weights) == 0);
        free(weights);
    }
    free(expected);
    suite_net_fini(&s);
}

/* Budgets and policies change between iterations, some of which are left running. */
static void homes_move_at_run_time(void **state) {
    enum { SWITCHES = 12 };
    suite_net s;
    suite_run r;
    size_t n;
    uint64_t random = 7;
    suite_net_init(&s, *state, GPT, BATCH);
    s.optimizer = &SUITE_ADAMW;
    s.strip_elems = 1;
    s.update = NETS_UPDATE_IN_BACKWARD;
    float *expected = suite_expected(&s, "liveness", SWITCHES, &n);
    const int64_t least = suite_needs(&s, "recompute:mode=memory,when=always,resident=none", 0).device_bytes;
    const int64_t most = suite_needs(&s, "liveness", 0).device_bytes;
    suite_run_init(&r, &s,
                   &(mm_options){.device_bytes = most,
                                 .pinned_bytes = 64 << 20,
                                 .policy = "liveness:resident=needed",
                                 .measure_touched = true});
    for (int i = 0; i < SWITCHES; i++) {
        const char *policy = POLICIES[mm_random_next(&random) % N_POLICIES];
        const int64_t budget = least + (int64_t)(mm_random_next(&random) % (uint64_t)(most - least + 1));
        suite_switch(&r, policy, budget);
        suite_iterate(&r);
    }
    suite_expect_end(&r, most, expected);
    free(expected);
    suite_net_fini(&s);
}

/* Of a net with many parameters, a few at a time are on the device. */
static void states_take_pinned_memory(void **state) {
    suite_net s;
    suite_net_init(&s, *state, "gpt,layers=8,width=64,heads=2,context=8,vocabulary=16", 1);
    s.optimizer = &SUITE_ADAMW;
    int64_t weights = 0;
    for (int p = 0; p < nets_net_params(s.net); p++)
        weights += nets_net_param(s.net, p)->elems * (int64_t)sizeof(float);
    const int64_t all = suite_needs(&s, "liveness", 0).device_bytes;
    s.update = NETS_UPDATE_IN_BACKWARD;
    const suite_need none = suite_needs(&s, "liveness:resident=none", 0);
    /* weights, gradients and two states, of which at most a quarter is left */
    if (none.device_bytes > all - 3 * weights || none.pinned_bytes < 2 * weights)
        fail_msg("%lld bytes of %lld, and %lld pinned; the weights have %lld", (long long)none.device_bytes,
                 (long long)all, (long long)none.pinned_bytes, (long long)weights);
    const suite_need half = suite_needs(&s, "liveness:resident=needed", (all + none.device_bytes) / 2);
    assert_true(half.device_bytes <= (all + none.device_bytes) / 2);
    assert_true(half.pinned_bytes > 0 && half.pinned_bytes < none.pinned_bytes);
    assert_int_equal(suite_needs(&s, "liveness:resident=needed", all).pinned_bytes, 0);
    suite_net_fini(&s);
}

static int run(const char *device) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(with_batch_norm_and_dropout, device),
        SUITE_TEST(with_a_tied_embedding, device),
        SUITE_TEST(with_copies_in_bf16, device),
        SUITE_TEST(with_states_in_codes, device),
        SUITE_TEST(in_sub_batches, device),
        SUITE_TEST(homes_move_at_run_time, device),
        SUITE_TEST(states_take_pinned_memory, device),
    };
    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

int main(void) { return suite_on_each_device(run); }

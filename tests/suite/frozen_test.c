/* SPDX-License-Identifier: MIT */
/* Networks of which a part is frozen. What trains has the gradients, bit for bit, that it has if all trains, on every
 * device, with f32 and bf16 maps, in whole batches and in sub-batches; what is frozen stays as it was, and has no
 * gradient; and every lossless policy and budget gives the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/suite/suite_rig.h"

enum { BATCH = 3, ITERATIONS = 2 };

static float *weights_after(const suite_net *s, const char *policy, int64_t bytes, int iterations, size_t *n_out) {
    const suite_need need = suite_needs(s, policy, bytes);
    suite_run r;
    suite_run_init(&r, s,
                   &(mm_options){.device_bytes = bytes ? bytes : need.device_bytes,
                                 .pinned_bytes = need.pinned_bytes,
                                 .policy = policy});
    for (int i = 0; i < iterations; i++) suite_iterate(&r);
    float *weights = suite_weights(&r, n_out);
    suite_run_fini(&r);
    return weights;
}

/* A network with weights before an iteration and after it. */
typedef struct trained {
    suite_net s;
    float *before, *after;
    size_t n; /* of all parts; a parameter's are n / NETS_PARTS apart */
} trained;

static void train(trained *t, const char *device, const char *name, nets_precision precision, int64_t sub_batch) {
    suite_net_init(&t->s, device, name, BATCH);
    t->s.precision = precision;
    t->s.sub_batch = sub_batch;
    t->before = weights_after(&t->s, "liveness", 0, 0, &t->n);
    t->after = weights_after(&t->s, "liveness", 0, 1, &t->n);
}

static void finish(trained *t) {
    free(t->before);
    free(t->after);
    suite_net_fini(&t->s);
}

static bool are_zero(const float *values, int64_t n) {
    int64_t i = 0;
    while (i < n && values[i] == 0) i++;
    return i == n;
}

/* Compares a network with itself where layers are frozen. Returns how many parameters are. */
static int check_parts(const trained *all, const trained *part, const char *what) {
    const size_t each = part->n / NETS_PARTS;
    int frozen = 0;
    size_t at = 0;
    assert_int_equal(all->n, part->n);
    for (int p = 0; p < nets_net_params(part->s.net); p++) {
        const nets_param *param = nets_net_param(part->s.net, p);
        const size_t bytes = (size_t)param->elems * sizeof(float), gradient = at + NETS_GRADIENT * each;
        if (param->frozen && (memcmp(part->after + at, part->before + at, bytes) != 0 ||
                              !are_zero(part->after + gradient, param->elems)))
            fail_msg("%s, %s: %s is frozen, but was trained", what, part->s.device, param->name);
        if (nets_param_trains(param) && memcmp(part->after + gradient, all->after + gradient, bytes) != 0)
            fail_msg("%s, %s: %s has another gradient", what, part->s.device, param->name);
        frozen += param->frozen;
        at += (size_t)param->elems;
    }
    return frozen;
}

/* The first layer trains, so that gradients pass through all frozen ones; and so does the last. In the second Llama the
 * first layers are frozen, and the embedding's weight, which is the scores', too. */
static const struct {
    const char *name, *freeze;
    int frozen; /* parameters */
} NETS[] = {
    {"tiny", "*,!conv1,!fc", 3},
    {"gpt,layers=2,width=32,heads=2,context=8,vocabulary=40", "wpe,h.0,h.1.mlp", 17},
    {"llama-15m,layers=2,width=32,heads=4,kv_heads=2,hidden=48,context=8,vocabulary=40", "layers.*,!layers.1.mlp", 15},
    {"llama-15m,layers=2,width=32,heads=4,kv_heads=2,hidden=48,context=8,vocabulary=40", "embed_tokens,layers.0", 10},
    {"vgg11@32x32,classes=10,thin=16", "*,!features.0,!classifier.6", 18},
};

/* How many of n the device runs: the first `few`, where it is emulated and slow. */
static size_t some_of(size_t n, size_t few, const char *device) { return strcmp(device, "host") == 0 ? n : few; }

static void gradients_are_those_of_training_all(void **state) {
    static const struct {
        nets_precision precision;
        int64_t sub_batch;
    } ways[] = {{NETS_FP32, 0}, {NETS_FP32, 2}, {NETS_BF16, 0}};
    for (size_t n = 0; n < some_of(sizeof NETS / sizeof *NETS, 4, *state); n++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            char name[192];
            trained all, part;
            snprintf(name, sizeof name, "%s freeze:%s", NETS[n].name, NETS[n].freeze);
            train(&all, *state, NETS[n].name, ways[w].precision, ways[w].sub_batch);
            train(&part, *state, name, ways[w].precision, ways[w].sub_batch);
            assert_int_equal(check_parts(&all, &part, name), NETS[n].frozen);
            finish(&all);
            finish(&part);
        }
}

static void check_policies(suite_net *s) {
    static const char *const POLICIES[] = {
        "recompute-swap",     "swap-async", "naive", "recompute", "freelunch:codec=raw,eligible=all",
        "recompute:mode=sqrt"};
    size_t n;
    float *expected = weights_after(s, "liveness", 0, ITERATIONS, &n);
    const int64_t most = suite_needs(s, "liveness", 0).device_bytes;
    for (size_t p = 0; p < some_of(sizeof POLICIES / sizeof *POLICIES, 2, s->device); p++)
        for (int budget = 0; budget < 2; budget++) {
            const int64_t least = suite_needs(s, POLICIES[p], 0).device_bytes;
            if (budget > 0 && least >= most) continue;
            float *weights = weights_after(s, POLICIES[p], budget ? (least + most) / 2 : 0, ITERATIONS, &n);
            if (memcmp(weights, expected, n * sizeof *weights) != 0)
                fail_msg("%s, %s: %s has other bits than liveness", nets_net_name(s->net), s->device, POLICIES[p]);
            free(weights);
        }
    free(expected);
}

static void adapters_have_the_same_bits_under_every_lossless_policy(void **state) {
    static const char *const names[] = {
        "llama-15m,layers=2,width=32,heads=4,kv_heads=2,hidden=48,context=8,vocabulary=40 lora:rank=2,alpha=3",
        "gpt,layers=1,width=32,heads=2,context=8,vocabulary=40 lora:rank=2,layers=all"};
    for (size_t i = 0; i < some_of(4, 2, *state); i++) {
        suite_net s;
        suite_net_init(&s, *state, names[i / 2], BATCH);
        s.precision = i % 2 ? NETS_BF16 : NETS_FP32;
        check_policies(&s);
        s.sub_batch = 2;
        if (i == 0) check_policies(&s);
        suite_net_fini(&s);
    }
}

static int run(const char *device) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(gradients_are_those_of_training_all, device),
        SUITE_TEST(adapters_have_the_same_bits_under_every_lossless_policy, device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return suite_on_each_device(run); }

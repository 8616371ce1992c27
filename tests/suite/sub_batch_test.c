/* SPDX-License-Identifier: MIT */
/* Training in sub-batches: the weights are those of whole batches but for rounding; for one size of sub-batch every
 * lossless policy and budget gives the same bits; and it takes less memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/graph/graph.h"
#include "tests/suite/suite_rig.h"

enum { BATCH = 5, ITERATIONS = 2 };

/* Convolutions, biases, ReLUs, pools, dropout and linear layers; no batch norm. */
static const char NET[] = "vgg11@32x32,classes=10,thin=16";

static float *train(const suite_net *s, const char *policy, int64_t bytes, float *loss_out, size_t *n_out) {
    const suite_need need = suite_needs(s, policy, bytes);
    suite_run r;
    suite_run_init(&r, s,
                   &(mm_options){.device_bytes = bytes ? bytes : need.device_bytes,
                                 .pinned_bytes = need.pinned_bytes,
                                 .policy = policy,
                                 .measure_touched = true});
    for (int i = 0; i < ITERATIONS; i++) *loss_out = suite_iterate(&r);
    mm_touched touched;
    assert_int_equal(mm_touched_get(r.manager, &touched), MM_OK);
    assert_true(touched.total_bytes <= (bytes ? bytes : need.device_bytes) && touched.stray_bytes == 0);
    float *weights = suite_weights(&r, n_out);
    suite_run_fini(&r);
    return weights;
}

/* |a - b| / |b|, over all n elements. */
static double distance(const float *a, const float *b, size_t n) {
    double apart = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(apart / size);
}

/* Compares whole batches of 5 with sub-batches of 2 + 2 + 1, of 3 + 2, and of one image. */
static void without_batch_norm_only_rounding_differs(void **state) {
    suite_net s;
    float whole_loss, loss;
    size_t n;
    suite_net_init(&s, *state, NET, BATCH);
    float *whole = train(&s, "liveness", 0, &whole_loss, &n);
    const int64_t sizes[] = {2, 3, 1};
    for (int i = 0; i < 3; i++) {
        s.sub_batch = sizes[i];
        float *weights = train(&s, "liveness", 0, &loss, &n);
        const double apart = distance(weights, whole, n);
        if (!(apart <= 1e-5) || !(fabsf(loss - whole_loss) <= 1e-4f * whole_loss))
            fail_msg("sub-batches of %d: weights apart by %g, loss %.9g, whole batch %.9g", (int)sizes[i], apart,
                     (double)loss, (double)whole_loss);
        free(weights);
    }
    free(whole);
    suite_net_fini(&s);
}

static void expect_same_bits(suite_net *s) {
    static const char *const POLICIES[] = {"naive", "swap-async", "recompute", "recompute-swap",
                                           "freelunch:codec=raw,eligible=all"};
    float loss, other;
    size_t n;
    const int64_t most = suite_needs(s, "liveness", 0).device_bytes;
    float *expected = train(s, "liveness", 0, &loss, &n);
    for (size_t p = 0; p < sizeof POLICIES / sizeof *POLICIES; p++)
        for (int budget = 0; budget < 2; budget++) {
            const int64_t least = suite_needs(s, POLICIES[p], 0).device_bytes;
            if (budget > 0 && least >= most) continue;
            float *weights = train(s, POLICIES[p], least + (most - least) * budget / 2, &other, &n);
            if (other != loss || memcmp(weights, expected, n * sizeof *weights) != 0)
                fail_msg("%s, budget %d: other weights", POLICIES[p], budget);
            free(weights);
        }
    free(expected);
}

static void policies_and_budgets_give_the_same_bits(void **state) {
    suite_net s;
    suite_net_init(&s, *state, NET, BATCH);
    s.sub_batch = 2;
    expect_same_bits(&s);
    suite_net_fini(&s);
}

/* With batch norms, which normalise each sub-batch by itself, policies and budgets still give the same bits. */
static void with_batch_norm_too(void **state) {
    suite_net s;
    suite_net_init_dropped(&s, *state, BATCH);
    s.sub_batch = 2;
    expect_same_bits(&s);
    suite_net_fini(&s);
}

static void maps_of_a_sub_batch_are_all_that_is_in_memory(void **state) {
    suite_net s;
    suite_net_init(&s, *state, NET, 64);
    const int64_t whole = suite_needs(&s, "liveness", 0).device_bytes;
    s.sub_batch = 8;
    const int64_t eighth = suite_needs(&s, "liveness", 0).device_bytes;
    s.batch = 8, s.sub_batch = 0;
    const int64_t small = suite_needs(&s, "liveness", 0).device_bytes;
    assert_true(eighth < whole);
    /* More than a whole batch of 8 images, sub-batches of 8 need only the memory of the gradients' sums. */
    if (eighth > small + (int64_t)(5 << 20))
        fail_msg("an eighth of a batch takes %lld bytes, a small batch %lld", (long long)eighth, (long long)small);
    s.batch = 64;
    suite_net_fini(&s);
}

/* The label is in a later sub-batch. No update happens, and the next iteration begins at the first image again. */
static void a_label_that_is_no_class_is_told_by_its_place_in_the_batch(void **state) {
    suite_net s;
    suite_net_init(&s, *state, NET, BATCH);
    s.sub_batch = 2;
    suite_run r;
    const suite_need need = suite_needs(&s, "liveness", 0);
    suite_run_init(&r, &s, &(mm_options){.device_bytes = need.device_bytes, .policy = "liveness"});
    const int32_t right = s.labels[4];
    s.labels[4] = 10;
    nets_result result;
    assert_int_equal(nets_exec_iteration(r.exec, s.images, s.labels, BATCH, SUITE_RATE, &result), MM_ERR_INVALID);
    if (!strstr(mm_last_error(), "image 4 ")) fail_msg("%s", mm_last_error());
    s.labels[4] = right;
    /* Other devices report the label only in NETS_CORRECT, after an update with the other labels. */
    if (strcmp(s.device, "host") == 0) {
        float loss = 0, expected = 0;
        size_t n;
        for (int i = 0; i < ITERATIONS; i++) loss = suite_iterate(&r);
        float *weights = suite_weights(&r, &n), *clean = train(&s, "liveness", 0, &expected, &n);
        assert_true(loss == expected && memcmp(weights, clean, n * sizeof *clean) == 0);
        free(weights);
        free(clean);
    }
    suite_run_fini(&r);
    suite_net_fini(&s);
}

static void sub_batches_that_cannot_be_are_refused(void **state) {
    suite_net s;
    nets_exec *exec;
    mm_manager *manager;
    suite_net_init(&s, *state, NET, BATCH);
    nets_backend *backend = suite_backend(&s);
    const mm_options options = {.device = s.device, .device_bytes = 64 << 20, .policy = "liveness"};
    assert_int_equal(mm_manager_create(&options, &manager), MM_OK);
    const int64_t sizes[] = {-1, BATCH + 1, INT64_MAX};
    for (int i = 0; i < 3; i++)
        assert_int_equal(nets_exec_create_with(s.net, BATCH, NETS_TRAIN, manager, backend, &SUITE_SGD,
                                               &(nets_exec_options){.sub_batch = sizes[i]}, &exec),
                         MM_ERR_INVALID);
    mm_manager_destroy(manager);
    nets_backend_close(backend);
    suite_net_fini(&s);
}

static int run(const char *device) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(without_batch_norm_only_rounding_differs, device),
        SUITE_TEST(policies_and_budgets_give_the_same_bits, device),
        SUITE_TEST(with_batch_norm_too, device),
        SUITE_TEST(maps_of_a_sub_batch_are_all_that_is_in_memory, device),
        SUITE_TEST(a_label_that_is_no_class_is_told_by_its_place_in_the_batch, device),
        SUITE_TEST(sub_batches_that_cannot_be_are_refused, device),
    };
    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

int main(void) { return suite_on_each_device(run); }

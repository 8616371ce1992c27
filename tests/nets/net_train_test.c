/* SPDX-License-Identifier: MIT */
/* Whole nets under the reference executor: gradients, learning, and equal bits whether or not tensors share storage. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/zoo/zoo.h"
#include "tests/core/deep.h"
#include "tests/core/test_case.h"
#include "tests/nets/ref_exec.h"

static const ref_options PLAIN = {0};

/* The first ReLU's output has four consumers. One is a sum whose other addend derives from the same map. */
static nets_net *build_branches(void) {
    nets_net *net;
    assert_int_equal(nets_net_create("branches", &net), MM_OK);
    const nets_attrs conv = {.out_channels = 8, .kernel = {3, 3}, .pad = {1, 1}};
    int x = nets_add_data(net, 6, 6, 3, 5);
    int stem = nets_add1(net, "stem", NETS_CONV, &conv, x);
    stem = nets_add1(net, "stem_bn", NETS_BATCH_NORM, NULL, stem);
    stem = nets_add1(net, "stem_relu", NETS_RELU, NULL, stem);
    int a = nets_add1(net, "a", NETS_CONV, &conv, stem);
    int sum = nets_add(net, "sum1", NETS_ADD, NULL, (const int[]){stem, a}, 2);
    int b = nets_add1(net, "b", NETS_BATCH_NORM, NULL, stem);
    sum = nets_add(net, "sum2", NETS_ADD, NULL, (const int[]){sum, b}, 2);
    int c = nets_add1(net, "c", NETS_MAX_POOL, &(nets_attrs){.kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}}, stem);
    sum = nets_add(net, "sum3", NETS_ADD, NULL, (const int[]){c, sum}, 2);
    x = nets_add1(net, "pool", NETS_GLOBAL_AVG_POOL, NULL, sum);
    x = nets_add1(net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 5, .bias = true}, x);
    nets_add1(net, "loss", NETS_LOSS, NULL, x);
    if (nets_net_finish(net) != MM_OK) fail_msg("%s", mm_last_error());
    return net;
}

/* All other operations: branches of several lengths that meet in concats. One concat's input is used again, one has
 * nothing to learn before it. Labels are per pixel. */
static nets_net *build_operations(void) {
    nets_net *net;
    assert_int_equal(nets_net_create("operations", &net), MM_OK);
    int data = nets_add_data(net, 9, 9, 3, 5);
    int stem = nets_add1(net, "stem", NETS_CONV,
                         &(nets_attrs){.out_channels = 8, .kernel = {3, 3}, .pad = {1, 1}, .bias = true}, data);
    stem = nets_add1(net, "norm", NETS_LRN, &(nets_attrs){.size = 3, .alpha = 1}, stem);
    const nets_attrs pool = {.kernel = {2, 2}, .stride = {2, 2}, .ceil_mode = true};
    int half = nets_add1(net, "pool", NETS_MAX_POOL, &pool, stem); /* 5x5 */
    int thumb = nets_add1(net, "thumb", NETS_AVG_POOL, &pool, data);
    int a = nets_add1(net, "a", NETS_CONV,
                      &(nets_attrs){.out_channels = 8, .kernel = {3, 3}, .pad = {1, 1}, .groups = 2}, half);
    int b = nets_add1(net, "b", NETS_CONV,
                      &(nets_attrs){.out_channels = 4, .kernel = {3, 3}, .pad = {2, 2}, .dilation = {2, 2}}, half);
    int cat = nets_add(net, "cat", NETS_CONCAT, NULL, (const int[]){half, thumb, a, b}, 4);
    int more = nets_add(net, "more", NETS_CONCAT, NULL, (const int[]){b, cat}, 2);
    int up = nets_add1(net, "up", NETS_CONV_TRANSPOSE,
                       &(nets_attrs){.out_channels = 6, .kernel = {2, 2}, .stride = {2, 2}, .bias = true}, more);
    int wide = nets_add1(net, "wide", NETS_UPSAMPLE, &(nets_attrs){.scale = {2, 2}, .bilinear = true}, cat);
    int near = nets_add1(net, "near", NETS_UPSAMPLE, &(nets_attrs){.scale = {2, 2}}, half);
    int all = nets_add(net, "all", NETS_CONCAT, NULL, (const int[]){up, wide, near}, 3);
    all = nets_add1(net, "crop", NETS_CROP, &(nets_attrs){.out_size = {8, 7}, .center = true}, all);
    int skip = nets_add1(net, "skip", NETS_CROP, &(nets_attrs){.out_size = {8, 7}, .offset = {1, 0}}, stem);
    int x = nets_add(net, "meet", NETS_CONCAT, NULL, (const int[]){all, skip}, 2);
    x = nets_add1(net, "score", NETS_CONV, &(nets_attrs){.out_channels = 5, .kernel = {1, 1}, .bias = true}, x);
    nets_add1(net, "loss", NETS_LOSS, NULL, x);
    if (nets_net_finish(net) != MM_OK) fail_msg("%s", mm_last_error());
    return net;
}

/* The loss with a parameter moved from `base` by `h` along `direction`. */
static double loss_along(ref_exec *ref, int param, const float *base, const float *direction, double h,
                         const float *images, const int32_t *labels) {
    int64_t n = nets_net_param(ref->net, param)->elems;
    float *values = ref_tensor(ref, nets_net_param(ref->net, param)->name);
    for (int64_t i = 0; i < n; i++) values[i] = (float)(base[i] + h * direction[i]);
    double loss = ref_iteration(ref, images, labels, 0);
    memcpy(values, base, (size_t)n * sizeof *base);
    return loss;
}

/* The loss's derivative along a parameter's gradient is the gradient's norm. The loss is a float near 2, so differences
 * over 2h = 0.008 are accurate to 6e-5, and has kinks (ReLU, maximum). Tolerance: 5 % of the norm plus 2e-4. */
static void check_gradients(const nets_net *net, int64_t batch) {
    ref_exec ref;
    float *images;
    int32_t *labels;
    ref_init(&ref, net, batch, NETS_TRAIN, PLAIN, 7, NULL);
    ref.optimizer.momentum = 0;
    ref_batch(net, batch, 3, &images, &labels);
    for (int p = 0; p < nets_net_params(net); p += test_is_sanitized() ? 4 : 1) {
        const nets_param *param = nets_net_param(net, p);
        if (!param->learned) continue;
        char name[160] = "grad.";
        strcat(name, param->name);
        ref_iteration(&ref, images, labels, 0);
        size_t bytes = (size_t)param->elems * sizeof(float);
        float *base = malloc(bytes), *direction = malloc(bytes);
        assert_true(base && direction);
        memcpy(base, ref_tensor(&ref, param->name), bytes);
        memcpy(direction, ref_tensor(&ref, name), bytes);
        double norm = 0;
        for (int64_t i = 0; i < param->elems; i++) norm += (double)direction[i] * direction[i];
        norm = sqrt(norm);
        for (int64_t i = 0; i < param->elems; i++) direction[i] = (float)(direction[i] / (norm > 0 ? norm : 1));
        double up = loss_along(&ref, p, base, direction, 0.004, images, labels);
        double down = loss_along(&ref, p, base, direction, -0.004, images, labels);
        double deviation = fabs((up - down) / 0.008 - norm);
        if (!(deviation <= 0.05 * norm + 2e-4)) fail_msg("%s: %g of %g", param->name, deviation, norm);
        free(base);
        free(direction);
    }
    free(images);
    free(labels);
    ref_fini(&ref);
}

TEST_CASE(gradients_of_branches_match_differences) {
    nets_net *net = build_branches();
    check_gradients(net, 6);
    nets_net_destroy(net);
}

TEST_CASE(gradients_of_all_operations_match_differences) {
    nets_net *net = build_operations();
    check_gradients(net, 3);
    nets_net_destroy(net);
}

TEST_CASE(gradients_of_maps_that_a_layer_reads_twice_match_differences) {
    nets_net *net = ref_repeated_net(0);
    check_gradients(net, 6);
    nets_net_destroy(net);
}

/* The maps are rounded to bf16; the tolerance is a few such roundings. */
static void gradients_in_bf16_are_near_those_in_f32(const nets_net *net, bool share) {
    ref_exec exact, rounded;
    float *images;
    int32_t *labels;
    ref_init(&exact, net, 6, NETS_TRAIN, PLAIN, 1, NULL);
    ref_init(&rounded, net, 6, NETS_TRAIN, (ref_options){.precision = NETS_BF16, .share = share}, 1, &exact);
    ref_batch(net, 6, 3, &images, &labels);
    ref_iteration(&exact, images, labels, 0);
    ref_iteration(&rounded, images, labels, 0);
    for (int p = 0; p < nets_net_params(net); p++) {
        const nets_param *param = nets_net_param(net, p);
        if (!param->learned) continue;
        char name[160];
        snprintf(name, sizeof name, "grad.%s", param->name);
        const float *g = ref_tensor(&exact, name), *h = ref_tensor(&rounded, name);
        double error = 0, norm = 0;
        for (int64_t e = 0; e < param->elems; e++) {
            error += ((double)h[e] - g[e]) * ((double)h[e] - g[e]);
            norm += (double)g[e] * g[e];
        }
        if (!(sqrt(error) <= 0.15 * sqrt(norm) + 1e-6)) fail_msg("%s: off by %g of %g", name, sqrt(error), sqrt(norm));
    }
    free(images);
    free(labels);
    ref_fini(&rounded);
    ref_fini(&exact);
}

TEST_CASE(gradients_of_maps_that_a_layer_reads_twice_are_near_in_bf16) {
    nets_net *net = ref_repeated_net(0);
    gradients_in_bf16_are_near_those_in_f32(net, false);
    gradients_in_bf16_are_near_those_in_f32(net, true);
    nets_net_destroy(net);
}

TEST_CASE(gradients_of_a_residual_net_match_differences) {
    nets_net *net;
    assert_int_equal(nets_zoo_build("resnet8", &net), MM_OK);
    check_gradients(net, 4);
    nets_net_destroy(net);
}

static void loss_falls_on_a_fixed_batch(const nets_net *net, float lr) {
    ref_exec ref;
    float *images;
    int32_t *labels;
    ref_init(&ref, net, 16, NETS_TRAIN, PLAIN, 1, NULL);
    ref_batch(net, 16, 5, &images, &labels);
    float first = ref_iteration(&ref, images, labels, lr);
    float second = ref_iteration(&ref, images, labels, lr);
    assert_true(first > 1.5f && first < 4.0f); /* near log(10) */
    assert_true(second < first);
    for (int i = 0; i < 15; i++) second = ref_iteration(&ref, images, labels, lr);
    assert_true(second < 0.6f * first);
    assert_int_equal(((const uint32_t *)ref_tensor(&ref, "rng"))[2], 17);
    free(images);
    free(labels);
    ref_fini(&ref);
}

TEST_CASE(two_steps_decrease_the_loss_of_resnet20) {
    nets_net *net;
    assert_int_equal(nets_zoo_build("resnet20", &net), MM_OK);
    loss_falls_on_a_fixed_batch(net, 0.02f);
    nets_net_destroy(net);
}

TEST_CASE(two_steps_decrease_the_loss_of_tiny) {
    nets_net *net;
    assert_int_equal(nets_zoo_build("tiny", &net), MM_OK);
    loss_falls_on_a_fixed_batch(net, 0.05f);
    nets_net_destroy(net);
}

static void expect_same_parameters(const ref_exec *a, const ref_exec *b) {
    for (int p = 0; p < nets_net_params(a->net); p++) {
        const nets_param *param = nets_net_param(a->net, p);
        assert_memory_equal(ref_tensor(a, param->name), ref_tensor(b, param->name), (size_t)param->elems * 4);
    }
}

static void bits_do_not_depend_on_sharing_or_masks(const nets_net *net) {
    const ref_options variants[] = {{.share = true}, {.sign_mask = true}, {.share = true, .sign_mask = true}};
    float *images;
    int32_t *labels;
    ref_exec plain;
    ref_init(&plain, net, 5, NETS_TRAIN, PLAIN, 2, NULL);
    ref_batch(net, 5, 8, &images, &labels);
    for (int i = 0; i < 3; i++) ref_iteration(&plain, images, labels, 0.1f);
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        ref_exec other;
        ref_init(&other, net, 5, NETS_TRAIN, variants[v], 2, NULL);
        if (variants[v].share) assert_true(other.shared > 3);
        for (int i = 0; i < 3; i++) ref_iteration(&other, images, labels, 0.1f);
        expect_same_parameters(&plain, &other);
        ref_fini(&other);
    }
    free(images);
    free(labels);
    ref_fini(&plain);
}

TEST_CASE(bits_of_nets_do_not_depend_on_sharing_or_masks) {
    nets_net *net = build_branches();
    bits_do_not_depend_on_sharing_or_masks(net);
    nets_net_destroy(net);
    net = build_operations();
    bits_do_not_depend_on_sharing_or_masks(net);
    nets_net_destroy(net);
    static const char *const names[] = {"resnet8", "tiny"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(nets_zoo_build(names[i], &net), MM_OK);
        bits_do_not_depend_on_sharing_or_masks(net);
        nets_net_destroy(net);
    }
}

/* Evaluates the batch that was just learned. The losses are near each other only once batch norm's running statistics
 * have converged. Evaluation's is lower, as it has no dropout. */
TEST_CASE(evaluation_follows_training_and_changes_nothing) {
    nets_net *net;
    ref_exec train, eval, in_place;
    float *images;
    int32_t *labels;
    assert_int_equal(nets_zoo_build("tiny", &net), MM_OK);
    ref_init(&train, net, 16, NETS_TRAIN, PLAIN, 1, NULL);
    ref_batch(net, 16, 5, &images, &labels);
    float trained = 0;
    for (int i = 0; i < 60; i++) trained = ref_iteration(&train, images, labels, 0.05f);
    ref_init(&eval, net, 16, NETS_EVAL, PLAIN, 1, &train);
    float loss = ref_iteration(&eval, images, labels, 0);
    assert_true(loss < trained + 0.1f);
    assert_int_equal(*(const int32_t *)ref_tensor(&eval, "correct"), 16);
    expect_same_parameters(&train, &eval);
    ref_init(&in_place, net, 16, NETS_EVAL, (ref_options){.share = true}, 1, &train);
    assert_true(in_place.shared >= 2);
    assert_true(ref_iteration(&in_place, images, labels, 0) == loss);
    ref_fini(&in_place);
    ref_fini(&eval);
    ref_fini(&train);
    free(images);
    free(labels);
    nets_net_destroy(net);
}

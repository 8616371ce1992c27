/* SPDX-License-Identifier: MIT */
/* Whole nets give the same bits fused and unfused: losses, parameters, momenta and running statistics after some
 * training steps, and scores in evaluation. On the host this is so with and without shared storage of tensors, and with
 * and without masks for signs. (On CUDA: train_agree_test.) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/zoo/zoo.h"
#include "tests/core/test_case.h"
#include "tests/nets/ref_exec.h"

enum { BATCH = 3, STEPS = 4 };

static int conv(nets_net *net, const char *name, int64_t channels, bool bias, int input) {
    const nets_attrs attrs = {.out_channels = channels, .kernel = {3, 3}, .pad = {1, 1}, .bias = bias};
    return nets_add1(net, name, NETS_CONV, &attrs, input);
}

static int norm(nets_net *net, const char *name, int input) {
    return nets_add1(net, name, NETS_BATCH_NORM, NULL, input);
}
static int relu(nets_net *net, const char *name, int input) { return nets_add1(net, name, NETS_RELU, NULL, input); }
static int sum(nets_net *net, const char *name, int a, int b) {
    return nets_add(net, name, NETS_ADD, NULL, (const int[]){a, b}, 2);
}

/* silu(x) times x2 */
static int gated(nets_net *net, const char *name, int x, int x2) {
    char silu[64];
    snprintf(silu, sizeof silu, "%s_silu", name);
    return nets_add(net, name, NETS_MUL, NULL, (const int[]){nets_add1(net, silu, NETS_SILU, NULL, x), x2}, 2);
}

static int dropout(nets_net *net, const char *name, int input) {
    return nets_add1(net, name, NETS_DROPOUT, &(nets_attrs){.p = 0.3f}, input);
}

/* Every fusible pattern with every way in which gradients meet: a batch norm on the images (nothing before it learns);
 * sums whose addend is a map with readers before and after, another batch norm, the images, a dropout, or the batch
 * norm's own input through a dropout; maps with three consumers; biases of convolutions and linear layers; a ReLU
 * behind no fusible layer; products with a SiLU. Numbers of channels are no multiples of anything. */
static nets_net *build_patterns(void) {
    nets_net *net;
    assert_int_equal(nets_net_create("patterns", &net), MM_OK);
    int data = nets_add_data(net, 9, 7, 3, 5);
    int first = relu(net, "relu_first", norm(net, "bn_first", data));
    int own = norm(net, "bn_own", conv(net, "conv_own", 3, false, first));
    int images = relu(net, "relu_images", sum(net, "sum_images", own, data));
    int stem = relu(net, "relu_stem", norm(net, "bn_stem", conv(net, "stem", 13, false, images)));
    int inner = relu(net, "relu_a", norm(net, "bn_a", conv(net, "conv_a", 13, false, stem)));
    int block = relu(net, "relu_b", sum(net, "sum_b", stem, norm(net, "bn_b", conv(net, "conv_b", 13, false, inner))));
    int short_cut = norm(net, "bn_cut", conv(net, "cut", 13, false, block));
    int other = norm(net, "bn_c", conv(net, "conv_c", 13, true, block));
    int joined = relu(net, "relu_c", sum(net, "sum_c", other, short_cut));
    int dense = relu(net, "relu_d", norm(net, "bn_d", joined)),
        biased = relu(net, "relu_e", conv(net, "e", 13, true, dense));
    int p = norm(net, "bn_p", joined), q = norm(net, "bn_q", joined); /* p must not overtake q */
    p = relu(net, "relu_p", p), q = relu(net, "relu_q", q);
    int both = sum(net, "sum_e", sum(net, "sum_pq", p, q), sum(net, "sum_d", biased, joined));
    int last = relu(net, "relu_f", sum(net, "sum_f", both, stem));
    int twice = dropout(net, "drop_g", dropout(net, "drop_again", last));
    last = relu(net, "relu_g", sum(net, "sum_g", norm(net, "bn_g", last), twice)); /* evaluation: addend = input */
    int apart = dropout(net, "drop_h", last), h = norm(net, "bn_h", conv(net, "conv_h", 13, false, last));
    last = relu(net, "relu_h", sum(net, "sum_h", h, apart));
    last = norm(net, "bn_i", last);
    last = gated(net, "gate", conv(net, "conv_gate", 13, false, last), conv(net, "conv_up", 13, false, last));
    last = norm(net, "bn_gate", last);
    int wide = conv(net, "conv_wide", 13, false, last); /* read again behind the gate */
    last = sum(net, "sum_i", gated(net, "gate_i", wide, conv(net, "up_i", 13, false, last)), wide);
    last = norm(net, "bn_sum", last);
    int x = nets_add1(net, "pool", NETS_MAX_POOL, &(nets_attrs){.kernel = {2, 2}, .stride = {2, 2}}, last);
    x = nets_add1(net, "hidden", NETS_LINEAR, &(nets_attrs){.out_channels = 37, .bias = true}, x);
    x = dropout(net, "drop", relu(net, "relu_hidden", x));
    x = nets_add1(net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 5, .bias = true}, x);
    nets_add1(net, "loss", NETS_LOSS, NULL, x);
    if (nets_net_finish(net) != MM_OK) fail_msg("%s", mm_last_error());
    return net;
}

static void expect_same(const ref_exec *a, const ref_exec *b, const char *tensor, int64_t elems) {
    if (memcmp(ref_tensor(a, tensor), ref_tensor(b, tensor), (size_t)elems * sizeof(float)) != 0)
        fail_msg("%s: %s differs", nets_net_name(a->net), tensor);
}

static void expect_same_state(const ref_exec *a, const ref_exec *b) {
    static const char *const prefixes[] = {"", "grad.", "momentum."};
    for (int p = 0; p < nets_net_params(a->net); p++) {
        const nets_param *param = nets_net_param(a->net, p);
        bool trained = param->learned && a->lowered->mode == NETS_TRAIN;
        for (int k = 0; k < (trained ? 3 : 1); k++) {
            char name[160];
            snprintf(name, sizeof name, "%s%s", prefixes[k], param->name);
            expect_same(a, b, name, param->elems);
        }
    }
}

static void check_training(const nets_net *net, ref_options options, ref_options plain, const float *images,
                           const int32_t *labels) {
    ref_exec one, other;
    ref_init(&one, net, BATCH, NETS_TRAIN, options, 2, NULL);
    ref_init(&other, net, BATCH, NETS_TRAIN, plain, 2, NULL);
    assert_true(one.lowered->n_steps <= other.lowered->n_steps);
    for (int i = 0; i < STEPS; i++) {
        float loss = ref_iteration(&one, images, labels, 0.05f),
              expected = ref_iteration(&other, images, labels, 0.05f);
        assert_memory_equal(&loss, &expected, sizeof loss);
        expect_same_state(&one, &other);
    }
    ref_fini(&one);
    ref_fini(&other);
}

static void check_evaluation(const nets_net *net, ref_options options, const float *images, const int32_t *labels) {
    const ref_options unfused = {.no_fuse = true};
    ref_exec trained, one, other;
    ref_init(&trained, net, BATCH, NETS_TRAIN, unfused, 3, NULL);
    for (int i = 0; i < STEPS; i++) ref_iteration(&trained, images, labels, 0.05f);
    ref_init(&one, net, BATCH, NETS_EVAL, options, 0, &trained);
    ref_init(&other, net, BATCH, NETS_EVAL, unfused, 0, &trained);
    float loss = ref_iteration(&one, images, labels, 0), expected = ref_iteration(&other, images, labels, 0);
    assert_memory_equal(&loss, &expected, sizeof loss);
    expect_same_state(&one, &other);
    ref_fini(&one);
    ref_fini(&other);
    ref_fini(&trained);
}

static void check(nets_net *net) {
    float *images;
    int32_t *labels;
    ref_batch(net, BATCH, 5, &images, &labels);
    for (int i = 0; i < 8; i++)
        check_training(net, (ref_options){.share = i & 1, .sign_mask = i & 2, .exact = i & 4},
                       (ref_options){.no_fuse = true}, images, labels);
    for (int i = 0; i < 2; i++) check_evaluation(net, (ref_options){.share = i & 1}, images, labels);
    free(images);
    free(labels);
    nets_net_destroy(net);
}

TEST_CASE(every_pattern) {
    nets_net *net = build_patterns();
    ref_exec fused, unfused;
    ref_init(&fused, net, BATCH, NETS_TRAIN, (ref_options){0}, 1, NULL);
    ref_init(&unfused, net, BATCH, NETS_TRAIN, (ref_options){.no_fuse = true}, 1, NULL);
    /* Steps saved, in both phases: five ReLUs without a sum, four with one, two products. */
    assert_int_equal(unfused.lowered->n_steps - fused.lowered->n_steps, 2 * (5 * 1 + 4 * 2 + 2));
    ref_fini(&fused);
    ref_fini(&unfused);
    check(net);
}

TEST_CASE(maps_that_a_layer_reads_twice) { check(ref_repeated_net(0.3f)); }

TEST_CASE(nets_of_the_zoo) {
    static const char *const names[] = {"tiny",
                                        "resnet8",
                                        "resnet18@32,classes=5,thin=8",
                                        "alexnet-2012@99,classes=5,thin=16",
                                        "googlenet@64,classes=5,thin=16",
                                        "squeezenet1_0@64,classes=5,thin=16"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        nets_net *net;
        if (nets_zoo_build(names[i], &net) != MM_OK) fail_msg("%s", mm_last_error());
        check(net);
    }
}

/* Fused bf16 layers round once where single layers round twice, so only storage and masks are compared here. */
TEST_CASE(maps_of_bf16_that_share_storage_or_are_masks) {
    nets_net *nets[3] = {build_patterns(), ref_repeated_net(0.3f)};
    if (nets_zoo_build("googlenet@64,classes=5,thin=16", &nets[2]) != MM_OK) fail_msg("%s", mm_last_error());
    for (int n = 0; n < 3; n++) {
        float *images;
        int32_t *labels;
        ref_batch(nets[n], BATCH, 5, &images, &labels);
        for (int i = 1; i < 16; i += n < 2 ? 1 : 4) {
            const ref_options plain = {.precision = NETS_BF16, .no_fuse = i & 8};
            ref_options options = plain;
            options.share = i & 1, options.sign_mask = i & 2, options.exact = i & 4;
            check_training(nets[n], options, plain, images, labels);
        }
        free(images);
        free(labels);
        nets_net_destroy(nets[n]);
    }
}

/* SPDX-License-Identifier: MIT */
/* Ten training steps under a manager on CUDA agree with the host: losses within 1e-4 of the first loss, weights within
 * 1e-4 of their tensor's largest (measured on the emulation, which sums products in double: 1e-6). A second run on
 * CUDA, and one without fusion, give the same bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/exec/exec.h"
#include "nets/zoo/zoo.h"
#include "tests/core/expect.h"
#include "tests/nets/algorithms_file.h"
#include "tests/nets/ref_exec.h"

enum { BATCH = 4, STEPS = 10, BATCHES = 3 };

typedef struct outcome {
    int steps; /* steps of an iteration */
    float loss[STEPS];
    float **weights; /* by parameter */
} outcome;

static mm_status create_manager(const char *device, mm_manager **manager_out) {
    const mm_options options = {.device = device, .device_bytes = 64 << 20, .pinned_bytes = 16 << 20};
    return mm_manager_create(&options, manager_out);
}

static void take_weights(const nets_net *net, nets_exec *exec, outcome *o) {
    o->weights = calloc((size_t)nets_net_params(net), sizeof *o->weights);
    assert_non_null(o->weights);
    for (int i = 0; i < nets_net_params(net); i++) {
        o->weights[i] = malloc((size_t)nets_net_param(net, i)->elems * sizeof(float));
        assert_non_null(o->weights[i]);
        expect_ok(nets_exec_param_get(exec, i, NETS_VALUE, o->weights[i]));
    }
}

static void train(const nets_net *net, const char *device, mm_manager *manager, bool no_fuse, outcome *o) {
    const nets_backend_config config = {
        .deterministic = true, .workspace_limit_bytes = 1 << 20, .algorithms_path = algorithms_file()};
    const nets_optimizer sgd = {.momentum = 0.9f, .weight_decay = 1e-4f};
    nets_backend *backend;
    nets_exec *exec;
    expect_ok(nets_backend_open(device, &config, &backend));
    expect_ok(nets_exec_create_with(net, BATCH, NETS_TRAIN, manager, backend, &sgd,
                                    &(nets_exec_options){.no_fuse = no_fuse}, &exec));
    expect_ok(nets_exec_init(exec, 7));
    for (int step = 0; step < STEPS; step++) {
        float *images;
        int32_t *labels;
        nets_result result;
        ref_batch(net, BATCH, (uint64_t)(step % BATCHES) + 1, &images, &labels);
        expect_ok(nets_exec_iteration(exec, images, labels, BATCH, 0.02f / (float)(1 + step), &result));
        o->loss[step] = result.loss;
        free(images);
        free(labels);
    }
    take_weights(net, exec, o);
    o->steps = nets_exec_lowered(exec)->n_steps;
    nets_exec_destroy(exec);
    nets_backend_close(backend);
    mm_manager_destroy(manager);
}

static void free_outcome(const nets_net *net, outcome *o) {
    for (int i = 0; i < nets_net_params(net); i++) free(o->weights[i]);
    free(o->weights);
}

static void check_near(const nets_net *net, const outcome *host, const outcome *cuda) {
    for (int step = 0; step < STEPS; step++)
        if (!(fabsf(host->loss[step] - cuda->loss[step]) <= 1e-4f * host->loss[0]))
            fail_msg("%s: loss %d is %.9g, on the host %.9g", nets_net_name(net), step, (double)cuda->loss[step],
                     (double)host->loss[step]);
    for (int i = 0; i < nets_net_params(net); i++) {
        const nets_param *param = nets_net_param(net, i);
        double largest = 0, apart = 0;
        for (int64_t e = 0; e < param->elems; e++) {
            largest = fmax(largest, fabs((double)host->weights[i][e]));
            apart = fmax(apart, fabs((double)host->weights[i][e] - cuda->weights[i][e]));
        }
        if (!(apart <= 1e-4 * fmax(largest, 0.1)))
            fail_msg("%s: %s differs by %g, the largest is %g", nets_net_name(net), param->name, apart, largest);
    }
}

static void check_same(const nets_net *net, const outcome *one, const outcome *other, const char *what) {
    assert_memory_equal(one->loss, other->loss, sizeof one->loss);
    for (int i = 0; i < nets_net_params(net); i++) {
        const nets_param *param = nets_net_param(net, i);
        if (memcmp(one->weights[i], other->weights[i], (size_t)param->elems * sizeof(float)) != 0)
            fail_msg("%s, %s: other bits in %s", nets_net_name(net), what, param->name);
    }
}

static void train_on(const nets_net *net, const char *device, bool no_fuse, outcome *o) {
    mm_manager *manager;
    expect_ok(create_manager(device, &manager));
    train(net, device, manager, no_fuse, o);
}

/* `fused`: number of layers fused into others, each of which saves a step forward and backward. */
static void check_training(nets_net *net, int fused) {
    mm_manager *manager;
    outcome host, cuda, again, apart;
    if (create_manager("cuda", &manager) != MM_OK) {
        print_message("%s\n", mm_last_error());
        nets_net_destroy(net);
        skip();
    }
    mm_manager_destroy(manager);
    train_on(net, "cuda", false, &cuda);
    train_on(net, "cuda", false, &again);
    train_on(net, "cuda", true, &apart);
    train_on(net, "host", false, &host);
    assert_true(host.loss[STEPS - 1] != host.loss[0]);
    assert_int_equal(apart.steps - cuda.steps, 2 * fused);
    check_near(net, &host, &cuda);
    check_same(net, &cuda, &again, "once more");
    check_same(net, &cuda, &apart, "not fused");
    free_outcome(net, &host);
    free_outcome(net, &cuda);
    free_outcome(net, &again);
    free_outcome(net, &apart);
    nets_net_destroy(net);
}

static void tiny(void **state) {
    (void)state;
    nets_net *net;
    expect_ok(nets_zoo_build("tiny", &net));
    check_training(net, 1);
}

static int conv(nets_net *net, const char *name, int64_t channels, int64_t kernel, int64_t groups, int input) {
    const nets_attrs attrs = {.out_channels = channels,
                              .kernel = {kernel, kernel},
                              .pad = {kernel / 2, kernel / 2},
                              .groups = groups,
                              .bias = groups > 1};
    return nets_add1(net, name, NETS_CONV, &attrs, input);
}

/* What network tiny lacks: a residual sum, a concat, a crop, a transposed convolution, LRN, upsampling, global pooling;
 * several gradient contributions; channels that are no multiple of four. */
static void branching(void **state) {
    (void)state;
    nets_net *net;
    expect_ok(nets_net_create("branching", &net));
    int x = nets_add_data(net, 10, 9, 3, 5);
    int stem = conv(net, "stem", 6, 3, 1, x);
    int norm = nets_add1(net, "norm", NETS_BATCH_NORM, NULL, stem);
    int lrn = nets_add1(net, "lrn", NETS_LRN, &(nets_attrs){.size = 3, .alpha = 0.1f}, norm);
    int side = conv(net, "side", 6, 1, 1, norm);
    int sum = nets_add(net, "sum", NETS_ADD, NULL, (const int[]){lrn, side}, 2);
    int relu = nets_add1(net, "relu", NETS_RELU, NULL, sum);
    int pool = nets_add1(net, "pool", NETS_MAX_POOL, &(nets_attrs){.kernel = {2, 2}, .ceil_mode = true}, relu);
    int up = nets_add1(net, "up", NETS_UPSAMPLE, &(nets_attrs){.scale = {2, 2}, .bilinear = true}, pool);
    const nets_attrs doubling = {.out_channels = 5, .kernel = {2, 2}, .stride = {2, 2}, .bias = true};
    int wide = nets_add1(net, "wide", NETS_CONV_TRANSPOSE, &doubling, pool);
    int cat = nets_add(net, "cat", NETS_CONCAT, NULL, (const int[]){up, wide}, 2);
    int crop = nets_add1(net, "crop", NETS_CROP, &(nets_attrs){.out_size = {8, 8}, .center = true}, cat);
    int mixed = conv(net, "mixed", 11, 3, 11, crop);
    int mean = nets_add1(net, "mean", NETS_GLOBAL_AVG_POOL, NULL, mixed);
    int drop = nets_add1(net, "drop", NETS_DROPOUT, &(nets_attrs){.p = 0.2f}, mean);
    int scores = nets_add1(net, "scores", NETS_LINEAR, &(nets_attrs){.out_channels = 5, .bias = true}, drop);
    nets_add1(net, "loss", NETS_LOSS, NULL, scores);
    expect_ok(nets_net_finish(net));
    check_training(net, 0);
}

static void reading_one_map_twice(void **state) {
    (void)state;
    check_training(ref_repeated_net(0.3f), 2);
}

static void segmenting(void **state) {
    (void)state;
    nets_net *net;
    expect_ok(nets_net_create("segmenting", &net));
    int x = nets_add_data(net, 8, 8, 3, 4);
    int low = nets_add1(net, "low", NETS_AVG_POOL, &(nets_attrs){.kernel = {2, 2}}, conv(net, "stem", 8, 3, 1, x));
    int relu = nets_add1(net, "relu", NETS_RELU, NULL, nets_add1(net, "norm", NETS_BATCH_NORM, NULL, low));
    const nets_attrs doubling = {.out_channels = 4, .kernel = {4, 4}, .stride = {2, 2}, .pad = {1, 1}};
    nets_add1(net, "loss", NETS_LOSS, NULL, nets_add1(net, "scores", NETS_CONV_TRANSPOSE, &doubling, relu));
    expect_ok(nets_net_finish(net));
    check_training(net, 1);
}

static int norm(nets_net *net, const char *name, int input) {
    return nets_add1(net, name, NETS_BATCH_NORM, NULL, input);
}

static int relu(nets_net *net, const char *name, int input) { return nets_add1(net, name, NETS_RELU, NULL, input); }

static int add(nets_net *net, const char *name, int a, int b) {
    return nets_add(net, name, NETS_ADD, NULL, (const int[]){a, b}, 2);
}

/* Everything that is fused: batch norm and ReLU; sums with a block's input (which has consumers before and behind) or
 * with another batch norm; biases of convolutions and a linear layer; also channels that are no multiple of four. */
static void residual(void **state) {
    (void)state;
    nets_net *net;
    expect_ok(nets_net_create("residual", &net));
    int x = nets_add_data(net, 9, 8, 3, 5);
    int stem = relu(net, "stem-relu", norm(net, "stem-norm", conv(net, "stem", 12, 3, 1, x)));
    int first = norm(net, "first-norm", conv(net, "first", 12, 3, 1, stem));
    int block = relu(net, "block", add(net, "sum", first, stem));
    int second = norm(net, "second-norm", conv(net, "second", 7, 3, 1, block));
    int shortcut = norm(net, "shortcut-norm", conv(net, "shortcut", 7, 1, 1, block));
    int wide = relu(net, "wide", add(net, "wide-sum", shortcut, second));
    int biased = relu(net, "biased-relu", conv(net, "biased", 7, 3, 7, wide));
    const nets_attrs doubling = {.out_channels = 8, .kernel = {2, 2}, .stride = {2, 2}, .bias = true};
    int up = relu(net, "up-relu", nets_add1(net, "up", NETS_CONV_TRANSPOSE, &doubling, biased));
    int mean = nets_add1(net, "mean", NETS_GLOBAL_AVG_POOL, NULL, up);
    int hidden = nets_add1(net, "hidden", NETS_LINEAR, &(nets_attrs){.out_channels = 9, .bias = true}, mean);
    const nets_attrs out = {.out_channels = 5, .bias = true};
    nets_add1(net, "loss", NETS_LOSS, NULL, nets_add1(net, "scores", NETS_LINEAR, &out, relu(net, "last", hidden)));
    expect_ok(nets_net_finish(net));
    check_training(net, 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny),       cmocka_unit_test(branching), cmocka_unit_test(reading_one_map_twice),
        cmocka_unit_test(segmenting), cmocka_unit_test(residual),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

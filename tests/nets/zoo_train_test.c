/* SPDX-License-Identifier: MIT */
/* A small network of every family trains: liveness gives naive's bits, and differences of the loss confirm gradients.
 * And a net learns classes of pixels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/exec/exec.h"
#include "nets/io/reader.h"
#include "nets/zoo/zoo.h"
#include "tests/core/test_case.h"
#include "tests/nets/ref_exec.h"

enum { BATCH = 2, STEPS = 2, PARAMS_CHECKED = 6 };
static const nets_optimizer SGD = {.momentum = 0.9f, .weight_decay = 1e-4f};

/* Inputs large enough that batch norms at the end still have several pixels. */
static const char *const SMALL[] = {
    "alexnet@63,classes=5,thin=16",
    "alexnet-2012@67,classes=5,thin=16",
    "vgg11@32,classes=5,thin=16",
    "resnet18@64,classes=5,thin=16",
    "resnet-bottleneck:1,1,1,1@64,classes=5,thin=16",
    "resnet8@16,thin=4",
    "cifar-resnet-bottleneck11@16,thin=4",
    "nin@55,classes=5,thin=16",
    "nin-cifar@16,thin=16",
    "overfeat@71,classes=5,thin=16",
    "googlenet@64,classes=5,thin=16",
    "inception-v4:1,1,1@107,classes=5,thin=16",
    "squeezenet1_0@43,classes=5,thin=8",
    "densenet121@64,classes=5,thin=8",
    "mobilenet_v2@64,classes=5,thin=8",
    "efficientnet_b0@64,classes=5,thin=8",
    "vit_b_16@32,classes=5,thin=16",
    "fcn8s-vgg16@32,classes=3,thin=32",
    "unet@188,thin=32",
    "tiny@16",
    "gpt,layers=2,width=32,heads=2,context=24,vocabulary=40,dropout=0.1",
};

static nets_net *build(const char *name) {
    nets_net *net;
    if (nets_zoo_build(name, &net) != MM_OK) fail_msg("%s: %s", name, mm_last_error());
    return net;
}

/* ---------------------------------------------------------------- liveness and naive */

typedef struct trained {
    mm_manager *manager;
    nets_exec *exec;
    float loss[STEPS];
} trained;

static void train(const nets_net *net, const char *policy, const float *images, const int32_t *labels, trained *t) {
    const mm_options options = {.device = "host", .device_bytes = 512 << 20, .policy = policy, .self_check = true};
    if (mm_manager_create(&options, &t->manager) != MM_OK ||
        nets_exec_create(net, BATCH, NETS_TRAIN, t->manager, "host", &SGD, &t->exec) != MM_OK)
        fail_msg("%s: %s", nets_net_name(net), mm_last_error());
    assert_int_equal(nets_exec_init(t->exec, 11), MM_OK);
    for (int i = 0; i < STEPS; i++) {
        nets_result result;
        if (nets_exec_iteration(t->exec, images, labels, BATCH, 0.01f, &result) != MM_OK)
            fail_msg("%s: %s", nets_net_name(net), mm_last_error());
        t->loss[i] = result.loss;
        if (!isfinite(result.loss)) fail_msg("%s: loss %g", nets_net_name(net), (double)result.loss);
    }
}

static void expect_equal(const nets_net *net, const trained *a, const trained *b) {
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    for (int p = 0; p < nets_net_params(net); p++) {
        const nets_param *param = nets_net_param(net, p);
        for (nets_part part = NETS_VALUE; part < NETS_PARTS; part++) {
            const float *values = nets_exec_param(a->exec, p, part), *others = nets_exec_param(b->exec, p, part);
            assert_int_equal(!values, !others);
            if (values && memcmp(values, others, (size_t)param->elems * sizeof *values) != 0)
                fail_msg("%s: %s differs", nets_net_name(net), param->name);
        }
    }
}

static void stop(trained *t) {
    nets_exec_destroy(t->exec);
    mm_manager_destroy(t->manager);
}

TEST_CASE(every_family_trains_under_liveness_as_under_naive) {
    for (size_t i = 0; i < sizeof SMALL / sizeof SMALL[0]; i++) {
        nets_net *net = build(SMALL[i]);
        float *images;
        int32_t *labels;
        trained naive, liveness;
        ref_batch(net, BATCH, 4, &images, &labels);
        train(net, "naive", images, labels, &naive);
        train(net, "liveness", images, labels, &liveness);
        expect_equal(net, &naive, &liveness);
        assert_true(naive.loss[0] != naive.loss[1]);
        stop(&naive);
        stop(&liveness);
        free(images);
        free(labels);
        nets_net_destroy(net);
    }
}

/* ---------------------------------------------------------------- gradients */

typedef struct checked {
    ref_exec ref;
    float *images;
    int32_t *labels;
} checked;

/* Computes loss and gradients. Leaves the weights as they are, and dropout draws the same numbers each time. */
static double loss_of(checked *c) {
    memset(ref_tensor(&c->ref, "rng"), 0, 4 * sizeof(int32_t));
    return (double)ref_iteration(&c->ref, c->images, c->labels, 0);
}

static double loss_along(checked *c, const nets_param *param, const float *base, const float *direction, double h) {
    float *values = ref_tensor(&c->ref, param->name);
    for (int64_t i = 0; i < param->elems; i++) values[i] = (float)((double)base[i] + h * (double)direction[i]);
    double loss = loss_of(c);
    memcpy(values, base, (size_t)param->elems * sizeof *base);
    return loss;
}

/* The loss is a float of 1 to 2, so a difference of two losses has an error of up to 1.2e-7. It has kinks (ReLU,
 * maximum), the closer together the deeper the net and the steeper the loss. So steps are as small as that error
 * allows: they change the loss by 1e-4, of which the error is 0.1 %, and are at most 0.001. The tolerance is for kinks;
 * all differences but one are within 2.5 %.
 *
 * Two kinds of gradients cannot be measured: those so flat that the error would exceed a fifth of them, and those so
 * steep that the step would be lost in the rounding of the weights (the first layers of deep nets with narrow batch
 * norms). */
static const double CHANGE = 1e-4, LARGEST_STEP = 1e-3, LEAST_STEP = 5e-7, ERROR = 1.2e-7, TOLERANCE = 0.05;

static void expect_slope(checked *c, const nets_param *param, const float *base, const float *direction, double h,
                         double norm) {
    double up = loss_along(c, param, base, direction, h), down = loss_along(c, param, base, direction, -h);
    double deviation = fabs((up - down) / (2 * h) - norm);
    if (!(deviation <= TOLERANCE * norm + ERROR / h))
        fail_msg("%s: %s: %g of %g", nets_net_name(c->ref.net), param->name, deviation, norm);
}

/* The loss's derivative along a parameter's gradient is the gradient's norm. False: it cannot be measured. */
static bool check_param(checked *c, const nets_param *param) {
    char name[160] = "grad.";
    strcat(name, param->name);
    size_t bytes = (size_t)param->elems * sizeof(float);
    float *base = malloc(bytes), *direction = malloc(bytes);
    assert_true(base && direction);
    loss_of(c);
    memcpy(base, ref_tensor(&c->ref, param->name), bytes);
    memcpy(direction, ref_tensor(&c->ref, name), bytes);
    double norm = 0;
    for (int64_t i = 0; i < param->elems; i++) norm += (double)direction[i] * (double)direction[i];
    norm = sqrt(norm);
    for (int64_t i = 0; i < param->elems; i++) direction[i] = (float)((double)direction[i] / (norm > 0 ? norm : 1));
    double h = fmin(CHANGE / norm, LARGEST_STEP);
    bool measurable = h >= LEAST_STEP && ERROR / h < 0.2 * norm;
    if (measurable) expect_slope(c, param, base, direction, h, norm);
    free(base);
    free(direction);
    return measurable;
}

static void check_family(const char *name) {
    checked c;
    nets_net *net = build(name);
    ref_init(&c.ref, net, BATCH, NETS_TRAIN, (ref_options){0}, 7, NULL);
    c.ref.optimizer.momentum = 0;
    ref_batch(net, BATCH, 3, &c.images, &c.labels);
    /* Checks a handful of parameters, spread evenly; one that cannot be measured is replaced by the next. */
    int n = nets_net_params(net), done = 0;
    for (int p = 0; p < n; p++) {
        if (!nets_net_param(net, p)->learned || p < done * (n - 1) / (PARAMS_CHECKED - 1)) continue;
        done += check_param(&c, nets_net_param(net, p));
    }
    if (done < PARAMS_CHECKED - 1) fail_msg("%s: only %d gradients were checked", name, done);
    free(c.images);
    free(c.labels);
    ref_fini(&c.ref);
    nets_net_destroy(net);
}

TEST_CASE(gradients_of_every_family_match_differences) {
    for (size_t i = 0; i < sizeof SMALL / sizeof SMALL[0]; i++) check_family(SMALL[i]);
}

/* ---------------------------------------------------------------- labels of pixels */

static nets_net *build_pixels(void) {
    nets_net *net;
    assert_int_equal(nets_net_create("pixels", &net), MM_OK);
    int x = nets_add_data(net, 20, 24, 3, 4);
    x = nets_add1(net, "conv1", NETS_CONV, &(nets_attrs){.out_channels = 16, .kernel = {5, 5}, .bias = true}, x);
    x = nets_add1(net, "relu", NETS_RELU, NULL, x);
    x = nets_add1(net, "conv2", NETS_CONV, &(nets_attrs){.out_channels = 4, .kernel = {1, 1}, .bias = true}, x);
    nets_add1(net, "loss", NETS_LOSS, NULL, x);
    if (nets_net_finish(net) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(nets_net_labels(net), 16 * 20);
    return net;
}

TEST_CASE(a_net_learns_the_classes_of_synthetic_pixels) {
    enum { IMAGES = 8, ITERATIONS = 60 };
    nets_net *net = build_pixels();
    const mm_options options = {.device = "host", .device_bytes = 32 << 20, .policy = "liveness", .self_check = true};
    const nets_reader_options wanted = {
        .batch = IMAGES, .seed = 3, .wanted = {20, 24, 3, 4}, .label_map = {16, 20}, .drop_last = true};
    mm_manager *manager;
    nets_exec *exec;
    nets_reader *reader;
    assert_int_equal(mm_manager_create(&options, &manager), MM_OK);
    assert_int_equal(nets_exec_create(net, IMAGES, NETS_TRAIN, manager, "host", &SGD, &exec), MM_OK);
    assert_int_equal(nets_reader_create("synthetic", &wanted, &reader), MM_OK);
    assert_int_equal(nets_exec_init(exec, 1), MM_OK);
    nets_result first = {0}, result = {0};
    for (int i = 0; i < ITERATIONS; i++) {
        nets_batch batch;
        assert_int_equal(nets_reader_next(reader, &batch), MM_OK);
        if (nets_exec_iteration(exec, batch.images, batch.labels, batch.n, 0.05f, &result) != MM_OK)
            fail_msg("%s", mm_last_error());
        if (i == 0) first = result;
    }
    assert_true(result.loss < first.loss / 2);
    assert_true(result.correct > IMAGES * 16 * 20 * 8 / 10);
    nets_reader_destroy(reader);
    nets_exec_destroy(exec);
    mm_manager_destroy(manager);
    nets_net_destroy(net);
}

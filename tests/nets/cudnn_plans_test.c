/* SPDX-License-Identifier: MIT */
/* The real cuDNN's engines for the zoo's convolutions. cuDNN plans for a device that is only described to it, so no GPU
 * is needed; a machine's own is hidden, so that results do not depend on it. Nothing runs. Engines that compile their
 * kernels are proposed only where it finds a driver, which the stand-in is (stand_in_driver.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "nets/cuda/libraries/cudnn_conv.h"
#include "nets/lower/lower.h"
#include "nets/zoo/zoo.h"
#include "tests/core/deep.h"
#include "tests/nets/cudnn_device.h"

static const char CHOICES_OF[] = "NVIDIA_H200/cudnn";

/* Batch 80 is the last of CIFAR-10's after batches of 128. */
static const struct {
    const char *net;
    int64_t batch;
} NETS[] = {
    {"alexnet", 256},        {"alexnet-2012", 128} /* groups */,
    {"vgg16", 256},          {"resnet50", 256},
    {"resnet50", 1},         {"resnet152", 80},
    {"googlenet", 128},      {"unet", 1},
    {"unet@300", 3},         {"fcn8s-vgg16", 2},
    {"resnet32", 128},       {"resnet32", 80},
    {"resnet50,thin=7", 50}, {"resnet32,thin=5", 7},
};

/* Forward; gradient by the input; the same, added to an earlier one; gradient by the weights. */
static const struct {
    nets_direction direction;
    int adds;
} PARTS[] = {{NETS_CONV_FORWARD, 0}, {NETS_CONV_BY_INPUT, 0}, {NETS_CONV_BY_INPUT, 1}, {NETS_CONV_BY_WEIGHTS, 0}};

enum { CONVS = 512, ENGINES = 64, N_NETS = sizeof NETS / sizeof NETS[0], N_PARTS = sizeof PARTS / sizeof PARTS[0] };

typedef struct fixture {
    cudnnBackendDescriptor_t properties;
    cudnn_driver driver;
    char path[256];
    nets_conv_shape convs[CONVS]; /* distinct; the direction is unset */
    int n;
    nets_cudnn_engine engines[ENGINES];
} fixture;

/* ---------------------------------------------------------------- convolutions */

static nets_conv_shape shape_of(const nets_net *net, const nets_layer *l, int layer, int64_t batch) {
    const bool transposed = l->op == NETS_CONV_TRANSPOSE;
    nets_conv_shape s = {.groups = (int)l->attrs.groups};
    nets_shape x, y;
    assert_int_equal(nets_net_shape(net, l->inputs[0], batch, transposed ? &y : &x), MM_OK);
    assert_int_equal(nets_net_shape(net, layer, batch, transposed ? &x : &y), MM_OK);
    for (int d = 0; d < 4; d++) {
        s.x[d] = (int)x.dims[d];
        s.y[d] = (int)y.dims[d];
    }
    for (int d = 0; d < 2; d++) {
        s.kernel[d] = (int)l->attrs.kernel[d];
        s.stride[d] = (int)l->attrs.stride[d];
        s.pad[d] = (int)l->attrs.pad[d];
        s.dilation[d] = (int)l->attrs.dilation[d];
    }
    return s;
}

static void add_conv(fixture *f, const nets_conv_shape *shape) {
    for (int i = 0; i < f->n; i++)
        if (!memcmp(&f->convs[i], shape, sizeof *shape)) return;
    assert_true(f->n < CONVS);
    f->convs[f->n++] = *shape;
}

static void add_net(fixture *f, const char *name, int64_t batch) {
    nets_net *net;
    if (nets_zoo_build(name, &net) != MM_OK) fail_msg("%s: %s", name, mm_last_error());
    for (int i = 1; i < nets_net_layers(net); i++) {
        const nets_layer *layer = nets_net_layer(net, i);
        if (layer->op != NETS_CONV && layer->op != NETS_CONV_TRANSPOSE) continue;
        const nets_conv_shape shape = shape_of(net, layer, i, batch);
        add_conv(f, &shape);
    }
    nets_net_destroy(net);
}

static nets_conv_shape part_of(const nets_conv_shape *conv, int part) {
    nets_conv_shape s = *conv;
    s.direction = PARTS[part].direction;
    s.adds = PARTS[part].adds;
    return s;
}

static void fail_for(const nets_conv_shape *s, const char *what) {
    fail_msg("%s: direction %d, adds %d: %d x %d x %d x %d to %d x %d x %d, window %d x %d, stride %d, groups %d: %s",
             what, s->direction, s->adds, s->x[0], s->x[1], s->x[2], s->x[3], s->y[1], s->y[2], s->y[3], s->kernel[0],
             s->kernel[1], s->stride[0], s->groups, mm_last_error());
}

/* ---------------------------------------------------------------- the device */

static void need_device(const fixture *f) { cudnn_device_need(f->properties); }

static nets_cuda_backend *open_backend(const fixture *f, const nets_backend_config *config) {
    nets_backend *backend;
    assert_int_equal(nets_backend_open("cuda", config, &backend), MM_OK);
    nets_cuda_backend *cuda = (nets_cuda_backend *)backend;
    assert_null(cuda->dnn);
    cuda->properties = f->properties;
    return cuda;
}

static int setup(void **state) {
    const char *folder = getenv("TEST_TMPDIR");
    fixture *f = calloc(1, sizeof *f);
    if (!f) return -1;
    f->driver = cudnn_driver_open();
    snprintf(f->path, sizeof f->path, "%s/plans.%ld", folder ? folder : "/tmp", (long)getpid());
    for (int i = 0; i < N_NETS; i++) add_net(f, NETS[i].net, NETS[i].batch);
    f->properties = cudnn_device_describe(&CUDNN_CARDS[H200]);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    if (!f) return 0;
    if (f->properties) cudnnBackendDestroyDescriptor(f->properties);
    unlink(f->path);
    free(f);
    return 0;
}

/* ---------------------------------------------------------------- engines */

/* The least workspaces among a convolution's deterministic engines, without tensor cores (plain) and with them. Engines
 * that round to something narrower than TF32 do not count. */
typedef struct least {
    int64_t plain, tensor_core;
} least;

static void plan_engine(const nets_cudnn_graph *g, const nets_conv_shape *s, const nets_cudnn_engine *e, least *l) {
    nets_cudnn_plan plan;
    if (e->unreadable) fail_for(s, "an engine cannot be read");
    if (e->converts || e->coarse_sums || e->compiles || e->nondeterministic) return;
    if (nets_cudnn_plan_init(&plan, g, &e->choice) != MM_OK) fail_for(s, "an engine that is proposed has no plan");
    int64_t *least_bytes = e->tensor_core ? &l->tensor_core : &l->plain;
    if (plan.workspace_bytes < *least_bytes) *least_bytes = plan.workspace_bytes;
    nets_cudnn_plan_fini(&plan);
}

static void plan_list(fixture *f, const nets_cudnn_graph *g, const nets_conv_shape *s, cudnnBackendHeurMode_t mode,
                      least *l) {
    int n;
    if (nets_cudnn_engines(g, mode, ENGINES, f->engines, &n) != MM_OK) fail_for(s, "there are no engines");
    assert_in_range(n, 0, ENGINES - 1); /* fewer than ENGINES, so all are seen; for groups one list may be empty */
    for (int i = 0; i < n; i++) plan_engine(g, s, &f->engines[i], l);
}

static least plan_engines(fixture *f, const nets_cuda_backend *cuda, const nets_conv_shape *s) {
    least l = {INT64_MAX, INT64_MAX};
    nets_cudnn_graph graph;
    if (nets_cudnn_graph_init(&graph, cuda, s) != MM_OK) fail_for(s, "it cannot be described");
    plan_list(f, &graph, s, CUDNN_HEUR_MODE_A, &l);
    const bool enough =
        s->bf16 && l.tensor_core <= NETS_WORKSPACE_TENSOR_CORE_LIMIT_BYTES; /* tensor cores take bf16 as it is */
    if (l.plain > NETS_WORKSPACE_LIMIT_BYTES && !enough) plan_list(f, &graph, s, CUDNN_HEUR_MODE_FALLBACK, &l);
    nets_cudnn_graph_fini(&graph);
    return l;
}

/* Some engines for tensor cores take more workspace than the default limit; tensor cores have a higher limit. */
static void every_convolution_has_deterministic_engines_of_both_precisions_within_the_limits(void **state) {
    fixture *f = *state;
    need_device(f);
    nets_cuda_backend *cuda = open_backend(f, NULL);
    for (int i = 0; i < f->n; i++)
        for (int part = 0; part < N_PARTS; part++) {
            const nets_conv_shape s = part_of(&f->convs[i], part);
            const least l = plan_engines(f, cuda, &s);
            if (l.plain > NETS_WORKSPACE_LIMIT_BYTES) fail_for(&s, "no float32 within the limit");
            if (l.tensor_core > NETS_WORKSPACE_TENSOR_CORE_LIMIT_BYTES) fail_for(&s, "no TF32 within the limit");
        }
    nets_backend_close(&cuda->base);
}

/* Gradients by a product's weights are f32: cuDNN has no such engine, cuBLASLt gives these. All others are bf16. */
static void every_convolution_of_bf16_has_deterministic_engines_within_the_limits(void **state) {
    fixture *f = *state;
    need_device(f);
    nets_cuda_backend *cuda = open_backend(f, NULL);
    for (int i = 0; i < f->n; i++)
        for (int part = 0; part < N_PARTS; part++) {
            nets_conv_shape s = part_of(&f->convs[i], part);
            s.bf16 = NETS_CONV_BF16;
            if (!nets_conv_gives_bf16(&s)) continue;
            const least l = plan_engines(f, cuda, &s);
            if (l.plain > NETS_WORKSPACE_LIMIT_BYTES && l.tensor_core > NETS_WORKSPACE_TENSOR_CORE_LIMIT_BYTES)
                fail_for(&s, "no bf16 within the limits");
        }
    nets_backend_close(&cuda->base);
}

static int64_t workspace_of(const nets_cudnn_graph *graph, const nets_conv_choice *choice) {
    nets_cudnn_plan plan;
    if (nets_cudnn_plan_init(&plan, graph, choice) != MM_OK) fail_msg("%s", mm_last_error());
    const int64_t bytes = plan.workspace_bytes;
    nets_cudnn_plan_fini(&plan);
    return bytes;
}

/* The engine's knobs can split the sum over pixels into parts, which lie in the workspace. */
static void an_engine_takes_another_workspace_by_other_knobs(void **state) {
    const nets_conv_shape s = {.direction = NETS_CONV_BY_WEIGHTS,
                               .x = {256, 56, 56, 64},
                               .y = {256, 56, 56, 64},
                               .kernel = {3, 3},
                               .stride = {1, 1},
                               .pad = {1, 1},
                               .dilation = {1, 1},
                               .groups = 1};
    fixture *f = *state;
    int n, differ = 0;
    nets_cudnn_graph graph;
    need_device(f);
    nets_cuda_backend *cuda = open_backend(f, NULL);
    assert_int_equal(nets_cudnn_graph_init(&graph, cuda, &s), MM_OK);
    assert_int_equal(nets_cudnn_engines(&graph, CUDNN_HEUR_MODE_A, ENGINES, f->engines, &n), MM_OK);
    for (int i = 0; i < n; i++) {
        nets_conv_choice bare = f->engines[i].choice;
        if (f->engines[i].compiles) continue;
        bare.n_knobs = 0;
        differ += workspace_of(&graph, &f->engines[i].choice) != workspace_of(&graph, &bare);
    }
    assert_true(differ > 0);
    nets_cudnn_graph_fini(&graph);
    nets_backend_close(&cuda->base);
}

/* ---------------------------------------------------------------- other cards, and engines that compile */

/* The networks that people train on all kinds of cards. */
static const struct {
    const char *net;
    int64_t batch;
} TRAINED[] = {{"resnet50", 128}, {"resnet152", 44}, {"vgg16", 32}, {"mobilenet_v2", 128}};
enum { N_TRAINED = sizeof TRAINED / sizeof TRAINED[0] };

typedef struct proposals {
    bool depthwise; /* plan depthwise engines that compile, too: some 90 for each card, a quarter of a second each */
    int planned, compiled[2]; /* engines that may be chosen; of them those that compile: dense, depthwise */
    nets_conv_shape of;       /* the last dense one that is compiled */
} proposals;

/* The kernels that are compiled: of a dense convolution only its gradient by weights, without workspace. */
static void check_compiled(const nets_conv_shape *s, const char *kernel, int64_t workspace_bytes) {
    static const char *const DENSE[] = {[NETS_CONV_BY_WEIGHTS] = "wgrad2d_shmem_tiling"};
    static const char *const DEPTHWISE[] = {[NETS_CONV_FORWARD] = "conv2d_c1_k1_nhwc",
                                            [NETS_CONV_BY_INPUT] = "dgrad2d_c1_k1_nhwc",
                                            [NETS_CONV_BY_WEIGHTS] = "wgrad2d_"};
    const char *expected = (s->groups > 1 ? DEPTHWISE : DENSE)[s->direction];
    if (!expected || strncmp(kernel, expected, strlen(expected)) != 0) fail_for(s, kernel);
    if (workspace_bytes > (s->groups > 1 ? NETS_WORKSPACE_LIMIT_BYTES : 0))
        fail_for(s, "workspace of what it compiles");
}

/* Plans all engines of the first list that may be chosen. Only those that are said to compile load a kernel. */
static least plan_proposals(fixture *f, const nets_cuda_backend *cuda, const nets_conv_shape *s, proposals *p) {
    least l = {INT64_MAX, INT64_MAX};
    nets_cudnn_graph graph;
    int n;
    if (nets_cudnn_graph_init(&graph, cuda, s) != MM_OK ||
        nets_cudnn_engines(&graph, CUDNN_HEUR_MODE_A, ENGINES, f->engines, &n) != MM_OK)
        fail_for(s, "there are no engines");
    for (int i = 0; i < n; i++) {
        const nets_cudnn_engine *e = &f->engines[i];
        const char *names[STAND_IN_KERNELS];
        nets_cudnn_plan plan;
        if (e->unreadable || e->converts || e->coarse_sums || e->nondeterministic) continue;
        if (e->compiles && s->groups > 1 && !p->depthwise) continue;
        f->driver.forget();
        if (nets_cudnn_plan_init(&plan, &graph, &e->choice) != MM_OK) fail_for(s, "a proposal has no plan");
        if ((f->driver.kernels(names) > 0) != e->compiles)
            fail_for(s, e->compiles ? "no kernel was loaded" : "a kernel was loaded that was not to be compiled");
        int64_t *least_bytes = e->tensor_core ? &l.tensor_core : &l.plain;
        if (plan.workspace_bytes < *least_bytes) *least_bytes = plan.workspace_bytes;
        p->planned++;
        if (e->compiles) {
            p->compiled[s->groups > 1]++;
            if (s->groups == 1) p->of = *s;
            check_compiled(s, names[0], plan.workspace_bytes);
        }
        nets_cudnn_plan_fini(&plan);
    }
    nets_cudnn_graph_fini(&graph);
    return l;
}

/* Whether a card computes each direction of each convolution within the limits, and but for depthwise ones with tensor
 * cores. */
static void plan_card(fixture *f, nets_cuda_backend *cuda, bool bf16, proposals *p) {
    for (int i = 0; i < f->n; i++)
        for (int part = 0; part < N_PARTS; part++) {
            nets_conv_shape s = part_of(&f->convs[i], part);
            s.bf16 = bf16 ? NETS_CONV_BF16 : 0;
            if (bf16 && !nets_conv_gives_bf16(&s)) continue;
            const least l = plan_proposals(f, cuda, &s, p);
            const bool tensor_core = l.tensor_core <= NETS_WORKSPACE_TENSOR_CORE_LIMIT_BYTES;
            if (!tensor_core && (s.groups == 1 || l.plain > NETS_WORKSPACE_LIMIT_BYTES))
                fail_for(&s, bf16 ? "no bf16 within the limits" : "no TF32 within the limits");
        }
}

/* How many kernels cuDNN 9.19 compiles for a card in bf16, but for depthwise convolutions; none in TF32. */
static const int COMPILED[CARDS] = {
    [H200] = 2, [H100] = 2, [A100] = 47, [RTX3090] = 32, [L40S] = 47, [RTX4090] = 47, [B200] = 0, [RTX5090] = 12};

/* An H200 and, with --deep, all others; 15 seconds each for those that compile most. */
static void every_card_has_engines_for_the_networks_that_are_trained(void **state) {
    fixture *f = *state;
    need_device(f);
    cudnn_driver_need(&f->driver);
    fixture *trained = calloc(1, sizeof *trained);
    assert_non_null(trained);
    trained->driver = f->driver;
    for (int i = 0; i < N_TRAINED; i++) add_net(trained, TRAINED[i].net, TRAINED[i].batch);
    for (int card = 0; card < test_depth(1, CARDS); card++) {
        trained->properties = cudnn_device_describe(&CUDNN_CARDS[card]);
        if (!trained->properties) fail_msg("cuDNN cannot be told of %s", CUDNN_CARDS[card].name);
        nets_cuda_backend *cuda = open_backend(trained, NULL);
        for (int bf16 = 0; bf16 < 2; bf16++) {
            proposals p = {.depthwise = card == H200 && test_depth(0, 1)};
            plan_card(trained, cuda, bf16, &p);
            assert_true(p.planned > trained->n * N_PARTS);
            if (!bf16 || cudnnGetVersion() / 100 == 919) assert_int_equal(p.compiled[0], bf16 ? COMPILED[card] : 0);
            assert_true(!p.depthwise || p.compiled[1] > 0);
        }
        nets_backend_close(&cuda->base);
        cudnnBackendDestroyDescriptor(trained->properties);
    }
    free(trained);
}

/* Compiling takes a second, so it matters how much of it a run begins with: on Hopper, one kernel. */
static void a_bf16_resnet50_compiles_only_its_stems_gradient_by_weights(void **state) {
    static const int CARDS_OF[] = {H200, H100};
    fixture *f = *state;
    need_device(f);
    cudnn_driver_need(&f->driver);
    fixture *resnet = calloc(1, sizeof *resnet);
    assert_non_null(resnet);
    resnet->driver = f->driver;
    add_net(resnet, "resnet50", 128);
    for (int i = 0; i < test_depth(1, 2); i++) {
        proposals p = {.planned = 0};
        resnet->properties = cudnn_device_describe(&CUDNN_CARDS[CARDS_OF[i]]);
        nets_cuda_backend *cuda = open_backend(resnet, NULL);
        plan_card(resnet, cuda, true, &p);
        assert_int_equal(p.compiled[0], 1);
        assert_int_equal(p.of.x[3], 3);
        nets_backend_close(&cuda->base);
        cudnnBackendDestroyDescriptor(resnet->properties);
    }
    free(resnet);
}

/* ---------------------------------------------------------------- choices */

static void check_choice(nets_cuda_backend *cuda, const nets_conv_shape *s, int64_t limit) {
    nets_cudnn_conv conv;
    if (nets_cudnn_conv_init(&conv, cuda, s, &cuda->terms) != MM_OK) fail_for(s, "nothing is chosen");
    assert_int_equal(conv.of[0].choice.api, NETS_CONV_GRAPH); /* the legacy API would need a handle */
    assert_int_equal(conv.of[0].choice.workspace_bytes, conv.of[0].plan.workspace_bytes);
    assert_in_range(conv.of[0].choice.workspace_bytes, 0, limit);
    nets_cudnn_conv_fini(&conv);
}

/* To save time, each configuration is checked with every second of a convolution's PARTS. */
static void every_configuration_finds_an_engine_within_its_limit(void **state) {
    static const nets_backend_config CONFIGS[] = {
        {.precision = NETS_FP32, .deterministic = true},
        {.precision = NETS_TF32, .deterministic = true, .workspace_limit_bytes = 16 << 20},
    };
    fixture *f = *state;
    need_device(f);
    for (int c = 0; c < 2; c++) {
        nets_cuda_backend *cuda = open_backend(f, &CONFIGS[c]);
        for (int i = 0; i < f->n; i++)
            for (int part = (i + c) % 2; part < N_PARTS; part += 2) {
                const nets_conv_shape s = part_of(&f->convs[i], part);
                check_choice(cuda, &s, cuda->config.workspace_limit_bytes);
            }
        nets_backend_close(&cuda->base);
    }
}

/* The legacy API cannot describe these: 3.3 * 10^9 elements. */
static void maps_of_more_than_2_to_the_31_elements_have_engines(void **state) {
    const nets_conv_shape conv = {.x = {1024, 224, 224, 64},
                                  .y = {1024, 224, 224, 64},
                                  .kernel = {3, 3},
                                  .stride = {1, 1},
                                  .pad = {1, 1},
                                  .dilation = {1, 1},
                                  .groups = 1};
    fixture *f = *state;
    need_device(f);
    for (nets_precision precision = NETS_FP32; precision <= NETS_TF32; precision++) {
        nets_cuda_backend *cuda = open_backend(f, &(nets_backend_config){.precision = precision});
        for (int part = 0; part < N_PARTS; part++) {
            const nets_conv_shape s = part_of(&conv, part);
            check_choice(cuda, &s, NETS_WORKSPACE_LIMIT_BYTES);
        }
        nets_backend_close(&cuda->base);
    }
}

/* ---------------------------------------------------------------- kept choices */

static int keep_choices(fixture *f, const nets_backend_config *config, nets_conv_choice *kept) {
    nets_cuda_backend *cuda = open_backend(f, config);
    nets_algorithm_cache choices;
    int n = 0;
    assert_int_equal(nets_algorithm_cache_init(&choices, config, CHOICES_OF), MM_OK);
    for (int i = 0; i < f->n; i += 5)
        for (int part = 0; part < N_PARTS; part++) {
            const nets_conv_shape s = part_of(&f->convs[i], part);
            nets_cudnn_conv conv;
            assert_int_equal(nets_cudnn_conv_init(&conv, cuda, &s, &cuda->terms), MM_OK);
            kept[n] = conv.of[0].choice;
            const nets_conv_pareto front = {1, {kept[n++]}};
            assert_int_equal(nets_algorithm_cache_store(&choices, &s, &cuda->terms, &front), MM_OK);
            nets_cudnn_conv_fini(&conv);
        }
    nets_algorithm_cache_fini(&choices);
    nets_backend_close(&cuda->base);
    return n;
}

static void a_kept_engine_is_planned_from_its_line_of_text(void **state) {
    static nets_conv_choice kept[CONVS];
    fixture *f = *state;
    need_device(f);
    const nets_backend_config config = {.precision = NETS_TF32, .algorithms_path = f->path};
    const int n = keep_choices(f, &config, kept);
    nets_cuda_backend *cuda = open_backend(f, &config);
    assert_int_equal(cuda->choices.n, n);
    for (int k = 0, i = 0; k < n; i += 5)
        for (int part = 0; part < N_PARTS; part++, k++) {
            const nets_conv_shape s = part_of(&f->convs[i], part);
            nets_cudnn_conv conv;
            assert_int_equal(nets_cudnn_conv_init(&conv, cuda, &s, &cuda->terms), MM_OK);
            assert_memory_equal(&conv.of[0].choice, &kept[k], sizeof kept[k]);
            assert_int_equal(conv.of[0].plan.workspace_bytes, kept[k].workspace_bytes);
            nets_cudnn_conv_fini(&conv);
        }
    nets_backend_close(&cuda->base);
}

/* ---------------------------------------------------------------- whole networks, and the legacy API */

static void networks_are_lowered_with_what_their_convolutions_take(void **state) {
    static const struct {
        const char *net;
        int64_t batch;
    } LOWERED[] = {{"resnet50", 256}, {"unet", 1}, {"resnet50,thin=7", 50}, {"vgg16", 256}};
    fixture *f = *state;
    need_device(f);
    nets_cuda_backend *cuda = open_backend(f, &(nets_backend_config){.precision = NETS_TF32});
    for (size_t i = 0; i < sizeof LOWERED / sizeof LOWERED[0]; i++) {
        nets_net *net;
        nets_lowered *lowered;
        int64_t largest = 0;
        assert_int_equal(nets_zoo_build(LOWERED[i].net, &net), MM_OK);
        if (nets_lower(net, &cuda->base, LOWERED[i].batch, &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD},
                       &lowered) != MM_OK)
            fail_msg("%s: %s", LOWERED[i].net, mm_last_error());
        for (int op = 0; op < lowered->n_ops; op++)
            for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++)
                largest = nets_larger(largest, nets_op_workspace_bytes(lowered->ops[op], phase));
        assert_in_range(largest, 1, NETS_WORKSPACE_LIMIT_BYTES - 1); /* NETS_WORKSPACE_LIMIT_BYTES: unknown */
        nets_lowered_destroy(lowered);
        nets_net_destroy(net);
    }
    nets_backend_close(&cuda->base);
}

/* Without a device there is no handle: descriptors need none, queries do. */
static void the_legacy_api_gives_every_convolution_the_output_that_the_network_has(void **state) {
    fixture *f = *state;
    for (int i = 0; i < f->n; i++) {
        const nets_conv_shape *s = &f->convs[i];
        nets_cudnn_legacy legacy = {0};
        int n, c, h, w;
        if (nets_cudnn_legacy_init(&legacy, s) != MM_OK) fail_for(s, "it cannot be described");
        assert_int_equal(cudnnGetConvolution2dForwardOutputDim(legacy.conv, legacy.x, legacy.weights, &n, &c, &h, &w),
                         CUDNN_STATUS_SUCCESS);
        if (n != s->y[0] || h != s->y[1] || w != s->y[2] || c != s->y[3]) fail_for(s, "it has another output");
        nets_cudnn_legacy_fini(&legacy);
    }
}

static void without_a_device_the_libraries_say_so(void **state) {
    (void)state;
    cudnnHandle_t dnn;
    cublasLtHandle_t blas;
    assert_int_equal(nets_cuda_dnn_check(cudnnCreate(&dnn), "opening the library"), MM_ERR_DEVICE);
    assert_non_null(strstr(mm_last_error(), "CUDNN_STATUS"));
    assert_int_equal(nets_cuda_blas_check(cublasLtCreate(&blas), "opening the library"), MM_ERR_DEVICE);
    assert_non_null(strstr(mm_last_error(), "cuBLAS: opening the library: "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_convolution_has_deterministic_engines_of_both_precisions_within_the_limits),
        cmocka_unit_test(every_convolution_of_bf16_has_deterministic_engines_within_the_limits),
        cmocka_unit_test(an_engine_takes_another_workspace_by_other_knobs),
        cmocka_unit_test(every_card_has_engines_for_the_networks_that_are_trained),
        cmocka_unit_test(a_bf16_resnet50_compiles_only_its_stems_gradient_by_weights),
        cmocka_unit_test(every_configuration_finds_an_engine_within_its_limit),
        cmocka_unit_test(maps_of_more_than_2_to_the_31_elements_have_engines),
        cmocka_unit_test(a_kept_engine_is_planned_from_its_line_of_text),
        cmocka_unit_test(networks_are_lowered_with_what_their_convolutions_take),
        cmocka_unit_test(the_legacy_api_gives_every_convolution_the_output_that_the_network_has),
        cmocka_unit_test(without_a_device_the_libraries_say_so),
    };
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return cmocka_run_group_tests(tests, setup, teardown);
}

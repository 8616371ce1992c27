/* SPDX-License-Identifier: MIT */
/* The zoo: numbers of parameters against published ones, the syntax of names, GPT-2's parameters. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "nets/init.h"
#include "nets/zoo/zoo.h"

static nets_net *build(const char *name) {
    nets_net *net;
    if (nets_zoo_build(name, &net) != MM_OK) fail_msg("%s: %s", name, mm_last_error());
    return net;
}

typedef struct count {
    const char *name;
    int64_t params;
} count;

static void expect_counts(const count *counts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        nets_net *net = build(counts[i].name);
        if (nets_net_learned_elems(net) != counts[i].params)
            fail_msg("%s: %lld parameters, not %lld", counts[i].name, (long long)nets_net_learned_elems(net),
                     (long long)counts[i].params);
        nets_net_destroy(net);
    }
}

/* "num_params" in torchvision's documentation of each model's weights, pytorch.org/vision/stable/models.html. */
static void numbers_of_parameters_are_torchvisions(void **state) {
    (void)state;
    static const count known[] = {
        {"alexnet", 61100840},   {"vgg11", 132863336},      {"vgg13", 133047848},         {"vgg16", 138357544},
        {"vgg19", 143667240},    {"resnet18", 11689512},    {"resnet34", 21797672},       {"resnet50", 25557032},
        {"resnet101", 44549160}, {"resnet152", 60192808},   {"squeezenet1_0", 1248424},   {"densenet121", 7978856},
        {"googlenet", 6624904},  {"mobilenet_v2", 3504872}, {"efficientnet_b0", 5288548}, {"vit_b_16", 86567656},
    };
    expect_counts(known, sizeof known / sizeof known[0]);
}

/* Parameters of a convolution with bias. */
static int64_t conv(int64_t in, int64_t out, int64_t kernel) { return (in * kernel * kernel + 1) * out; }

/* gpt2: the published file, model.safetensors, without causal masks. llama: the published files' sums; 15m and 110m are
 * the sizes of karpathy/llama2.c. alexnet-2012: many ports print this number; the
 * paper says "60 million". inception-v4: timm's, 1000 classes. unet: ports with one input channel and one class have
 * 31,030,593; the second class adds 65. overfeat: the paper's table 4 says "145 million"; the exact number follows from
 * its table 1. */
static void numbers_of_parameters_are_those_published_elsewhere(void **state) {
    (void)state;
    static const count known[] = {{"alexnet-2012", 60965224}, {"inception-v4", 42679816}, {"unet", 31030593 + 65},
                                  {"overfeat", 145920872},    {"gpt2", 124439808},        {"llama-15m", 15191712},
                                  {"llama-110m", 109529856},  {"llama-1b", 1235814400},   {"llama-3b", 3212749824},
                                  {"llama-8b", 8030261248}};
    expect_counts(known, sizeof known / sizeof known[0]);
}

/* Networks without a published exact number. fcn8s-vgg16: VGG-16 without its classifier, scores of 21 classes from
 * three maps, three transposed convolutions without bias. */
static void numbers_of_parameters_follow_from_the_definitions(void **state) {
    (void)state;
    static const int64_t channels[] = {64, 128, 256, 512, 512};
    int64_t vgg101 = 138357544;
    for (int group = 0; group < 5; group++) vgg101 += 17 * conv(channels[group], channels[group], 3);
    int64_t fcn = 138357544 - conv(4096, 1000, 1) + conv(4096, 21, 1) + conv(512, 21, 1) + conv(256, 21, 1) +
                  21 * 21 * (4 * 4 + 4 * 4 + 16 * 16);
    int64_t nin = conv(3, 96, 11) + 2 * conv(96, 96, 1) + conv(96, 256, 5) + 2 * conv(256, 256, 1) + conv(256, 384, 3) +
                  2 * conv(384, 384, 1) + conv(384, 1024, 3) + conv(1024, 1024, 1) + conv(1024, 1000, 1);
    int64_t nin_cifar = conv(3, 192, 5) + conv(192, 160, 1) + conv(160, 96, 1) + conv(96, 192, 5) +
                        2 * conv(192, 192, 1) + conv(192, 192, 3) + conv(192, 192, 1) + conv(192, 10, 1);
    const count known[] = {{"vgg101", vgg101}, {"fcn8s-vgg16", fcn}, {"nin", nin}, {"nin-cifar", nin_cifar}};
    expect_counts(known, sizeof known / sizeof known[0]);
}

/* Parameters of a CIFAR bottleneck ResNet, by definition: n blocks a stage, 4c channels between blocks. */
static int64_t cifar_bottleneck_params(int64_t n) {
    int64_t sum = 3 * 16 * 9 + 2 * 16, before = 16;
    for (int64_t c = 16; c <= 64; c *= 2) {
        int64_t inner = 9 * c * c + 4 * c * c + 2 * c + 2 * c + 8 * c; /* the 3x3, the last 1x1, three batch norms */
        sum += n * inner + before * c + (n - 1) * 4 * c * c;           /* the first 1x1 of each block */
        sum += before * 4 * c + 8 * c;                                 /* the projection */
        before = 4 * c;
    }
    return sum + 256 * 10 + 10;
}

static int convolutions(const nets_net *net, bool with_projections) {
    int n = 0;
    for (int i = 0; i < nets_net_layers(net); i++) {
        const nets_layer *layer = nets_net_layer(net, i);
        if (layer->op == NETS_CONV && (with_projections || !strstr(layer->name, "downsample"))) n++;
    }
    return n;
}

/* 9n + 5: convolutions, with projections, and the linear layer. */
static void resnets_509_and_851_have_as_many_layers_of_weights(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int depth, n;
    } nets[] = {{"resnet509", 509, 56}, {"resnet851", 851, 94}};
    for (size_t i = 0; i < 2; i++) {
        nets_net *net = build(nets[i].name);
        assert_int_equal(convolutions(net, true) + 1, nets[i].depth);
        assert_int_equal(nets_net_learned_elems(net), cifar_bottleneck_params(nets[i].n));
        nets_net_destroy(net);
    }
    nets_net *net = build("cifar-resnet-bottleneck164");
    assert_int_equal(convolutions(net, false) + 1, 164);
    assert_int_equal(nets_net_learned_elems(net), cifar_bottleneck_params(18));
    nets_net_destroy(net);
}

static void depths_count_convolutions_and_linear_layers(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int depth, linear;
    } nets[] = {{"vgg11", 11, 3},    {"vgg16", 16, 3},        {"vgg19", 19, 3},       {"vgg101", 101, 3},
                {"resnet18", 18, 1}, {"resnet34", 34, 1},     {"resnet50", 50, 1},    {"resnet152", 152, 1},
                {"resnet20", 20, 1}, {"densenet121", 121, 1}, {"resnet1202", 1202, 1}};
    for (size_t i = 0; i < sizeof nets / sizeof nets[0]; i++) {
        nets_net *net = build(nets[i].name);
        assert_int_equal(convolutions(net, false) + nets[i].linear, nets[i].depth);
        nets_net_destroy(net);
    }
}

static void stages_make_any_bottleneck_resnet(void **state) {
    (void)state;
    static const char *const same[][2] = {{"resnet-bottleneck:3,4,6,3", "resnet50"},
                                          {"resnet-bottleneck:3-8-36-3", "resnet152"},
                                          {"resnet-bottleneck:3,16,62,3", "resnet256"}};
    for (size_t i = 0; i < 3; i++) {
        nets_net *a = build(same[i][0]), *b = build(same[i][1]);
        assert_int_equal(nets_net_layers(a), nets_net_layers(b));
        assert_int_equal(nets_net_learned_elems(a), nets_net_learned_elems(b));
        nets_net_destroy(a);
        nets_net_destroy(b);
    }
    nets_net *net = build("resnet-bottleneck:1");
    assert_int_equal(convolutions(net, false), 4);
    nets_net_destroy(net);
}

static void sizes_and_classes_follow_the_name(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t height, width, classes;
        const char *weight; /* the classifier's */
        int64_t inputs;
    } nets[] = {
        {"resnet50@64", 64, 64, 1000, "fc.weight", 2048},
        {"resnet50@96x64,classes=10", 96, 64, 10, "fc.weight", 2048},
        {"resnet50,thin=8", 224, 224, 1000, "fc.weight", 256},
        {"vgg16@32,classes=10,thin=8", 32, 32, 10, "classifier.0.weight", 64},
        {"vgg16@64x32,thin=8,classes=7", 64, 32, 7, "classifier.0.weight", 128},
        {"resnet-bottleneck:1,1@48,classes=3", 48, 48, 3, "fc.weight", 512},
        {"resnet-bottleneck:1,1,classes=3", 224, 224, 3, "fc.weight", 512},
        {"resnet20@16", 16, 16, 10, "fc.weight", 64},
        {"alexnet-2012@227,thin=3", 227, 227, 1000, "fc6.weight", 36 * 86},
    };
    for (size_t i = 0; i < sizeof nets / sizeof nets[0]; i++) {
        nets_net *net = build(nets[i].name);
        assert_string_equal(nets_net_name(net), nets[i].name);
        assert_int_equal(nets_net_layer(net, 0)->shape.dims[0], nets[i].height);
        assert_int_equal(nets_net_layer(net, 0)->shape.dims[1], nets[i].width);
        assert_int_equal(nets_net_classes(net), nets[i].classes);
        int weight = nets_net_find_param(net, nets[i].weight);
        assert_true(weight >= 0);
        assert_int_equal(nets_net_param(net, weight)->dims[1], nets[i].inputs);
        nets_net_destroy(net);
    }
}

/* A parameter of a GPT of 2 blocks and width 96, as the published file has it; dims are [in, out]. */
typedef struct gpt_param {
    const char *name; /* in a block: without its prefix "h.0." or "h.1." */
    int blocks;       /* number of blocks that have it; 0: it is in none */
    int64_t dims[2];
    double mean, deviation; /* of the initial values */
} gpt_param;

static void expect_gpt_param(const nets_net *net, const char *name, const gpt_param *want) {
    enum { VALUES = 96 * 384 };
    static float values[VALUES];
    double sum = 0, squares = 0;
    const int i = nets_net_find_param(net, name);
    if (i < 0) fail_msg("there is no %s", name);
    const nets_param *param = nets_net_param(net, i);
    const int rank = want->dims[1] ? 2 : 1;
    assert_int_equal(param->rank, rank);
    for (int d = 0; d < rank; d++) assert_int_equal(param->dims[d], want->dims[d]);
    assert_true(param->learned);
    assert_int_equal(param->decayed, rank == 2);
    const int64_t n = param->elems < VALUES ? param->elems : VALUES;
    nets_init_param(net, i, 1, 0, n, values);
    for (int64_t k = 0; k < n; k++) sum += (double)values[k];
    for (int64_t k = 0; k < n; k++) squares += pow((double)values[k] - want->mean, 2);
    const double error = want->deviation / sqrt((double)n);
    if (fabs(sum / (double)n - want->mean) > 5 * error || fabs(sqrt(squares / (double)n) - want->deviation) > 5 * error)
        fail_msg("%s: mean %g, deviation %g", name, sum / (double)n, sqrt(squares / (double)n));
}

/* Radford et al., 2.3: normal with deviation 0.02; weights of residual layers scaled by 1 / sqrt(n), here n = 4. */
static void parameters_of_gpt_are_named_shaped_and_begin_as_published(void **state) {
    static const gpt_param params[] = {
        {"wte.weight", 0, {64, 96}, 0, 0.02},
        {"wpe.weight", 0, {32, 96}, 0, 0.02},
        {"ln_f.weight", 0, {96, 0}, 1, 0},
        {"ln_f.bias", 0, {96, 0}, 0, 0},
        {"ln_1.weight", 2, {96, 0}, 1, 0},
        {"ln_1.bias", 2, {96, 0}, 0, 0},
        {"attn.c_attn.weight", 2, {96, 288}, 0, 0.02},
        {"attn.c_attn.bias", 2, {288, 0}, 0, 0},
        {"attn.c_proj.weight", 2, {96, 96}, 0, 0.01},
        {"attn.c_proj.bias", 2, {96, 0}, 0, 0},
        {"ln_2.weight", 2, {96, 0}, 1, 0},
        {"ln_2.bias", 2, {96, 0}, 0, 0},
        {"mlp.c_fc.weight", 2, {96, 384}, 0, 0.02},
        {"mlp.c_fc.bias", 2, {384, 0}, 0, 0},
        {"mlp.c_proj.weight", 2, {384, 96}, 0, 0.01},
        {"mlp.c_proj.bias", 2, {96, 0}, 0, 0},
    };
    nets_net *net = build("gpt,layers=2,width=96,heads=4,context=32,vocabulary=64");
    int n = 0;
    (void)state;
    for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
        if (!params[i].blocks) expect_gpt_param(net, params[i].name, &params[i]);
        for (int block = 0; block < params[i].blocks; block++) {
            char name[64];
            snprintf(name, sizeof name, "h.%d.%s", block, params[i].name);
            expect_gpt_param(net, name, &params[i]);
        }
        n += params[i].blocks ? params[i].blocks : 1;
    }
    assert_int_equal(nets_net_params(net), n);
    nets_net_destroy(net);
}

static void bad_sizes_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "resnet50@",          "resnet50@0",           "resnet50@064",          "resnet50@64x",
        "resnet50@64x0",      "resnet50@64x64x3",     "resnet50@65537",        "resnet50@-64",
        "resnet50@64,",       "resnet50@64,thin=0",   "resnet50@64,thin=4097", "resnet50@64,thin=2,thin=2",
        "resnet50,classes=",  "resnet50,classes=0",   "resnet50,classes=1e3",  "resnet50,width=2",
        "resnet50@64 thin=2", "resnet50@99999999999", "resnet50,thin=2@64",
    };
    nets_net *net;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(nets_zoo_build(bad[i], &net), MM_ERR_INVALID);
        assert_non_null(strstr(mm_last_error(), "net resnet50: '"));
    }
    assert_int_equal(nets_zoo_build("vgg16@16", &net), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), "layer features.30: kernel 2 does not fit into height 1 padded by 0");
    assert_int_equal(nets_zoo_build("alexnet-2012,thin=512", &net), MM_ERR_INVALID); /* 1 channel for 2 groups */
    assert_non_null(strstr(mm_last_error(), "layer conv2"));
}

static void names_outside_the_families_are_not_found(void **state) {
    (void)state;
    static const char *const unknown[] = {"",
                                          "vgg12",
                                          "vgg",
                                          "@64",
                                          "=",
                                          ",classes=10",
                                          "resnet-bottleneck",
                                          "resnet-bottleneck:",
                                          "resnet-bottleneck:0",
                                          "resnet-bottleneck:3,",
                                          "resnet-bottleneck:3,,3",
                                          "resnet-bottleneck:1,1,1,1,1,1,1",
                                          "resnet-bottleneck:99999",
                                          "resnet-bottleneck:<a,b,c,d>",
                                          "cifar-resnet-bottleneck165",
                                          "cifar-resnet509",
                                          "inception-v4x",
                                          "inception-v4:4,7",
                                          "inception-v4:4,7,3,1"};
    nets_net *net;
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_int_equal(nets_zoo_build(unknown[i], &net), MM_ERR_NOT_FOUND);
        /* It names the nearest, or all. */
        const bool nearest = strstr(mm_last_error(), "did you mean ") && strstr(mm_last_error(), "'mm nets'");
        if (!nearest && !strstr(mm_last_error(), "there are alexnet, ")) fail_msg("it says '%s'", mm_last_error());
    }
    char longest[400];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(nets_zoo_build(longest, &net), MM_ERR_NOT_FOUND);
    memcpy(longest, "resnet50@64,thin=00000", 22);
    assert_int_equal(nets_zoo_build(longest, &net), MM_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_parameters_are_torchvisions),
        cmocka_unit_test(numbers_of_parameters_are_those_published_elsewhere),
        cmocka_unit_test(numbers_of_parameters_follow_from_the_definitions),
        cmocka_unit_test(resnets_509_and_851_have_as_many_layers_of_weights),
        cmocka_unit_test(depths_count_convolutions_and_linear_layers),
        cmocka_unit_test(stages_make_any_bottleneck_resnet),
        cmocka_unit_test(sizes_and_classes_follow_the_name),
        cmocka_unit_test(parameters_of_gpt_are_named_shaped_and_begin_as_published),
        cmocka_unit_test(bad_sizes_are_refused),
        cmocka_unit_test(names_outside_the_families_are_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* The IR: shapes, parameters, refusals; the zoo's nets by their published parameter counts. */
#include <string.h>

#include "nets/zoo/zoo.h"
#include "tests/core/test_case.h"

/* Learned parameters of a CIFAR ResNet, by its definition: convolutions without bias, two per channel for each batch
 * norm, projections in the two narrowing shortcuts, the classifier. */
static int64_t resnet_params(int n) {
    int64_t sum = 3 * 16 * 9 + 2 * 16;
    for (int64_t c = 16; c <= 64; c *= 2) {
        sum += 2 * n * (9 * c * c + 2 * c);
        if (c > 16) sum += c / 2 * c + 2 * c - 9 * c * c / 2; /* its first convolution has c / 2 inputs */
    }
    return sum + 64 * 10 + 10;
}

TEST_CASE(resnets_have_the_published_numbers_of_parameters) {
    static const struct {
        const char *name;
        int n;
        double millions; /* table 6 of He et al. 2016, to the digits given there */
        double rounding;
    } known[] = {{"resnet20", 3, 0.27, 0.005},     {"resnet32", 5, 0.46, 0.01},  {"resnet44", 7, 0.66, 0.005},
                 {"resnet56", 9, 0.85, 0.01},      {"resnet110", 18, 1.7, 0.05}, {"resnet1202", 200, 19.4, 0.05},
                 {"cifar-resnet50", 8, 0.76, 0.01}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        nets_net *net;
        assert_int_equal(nets_zoo_build(known[i].name, &net), MM_OK);
        int64_t elems = nets_net_learned_elems(net);
        assert_int_equal(elems, resnet_params(known[i].n));
        assert_true(elems > (known[i].millions - known[i].rounding) * 1e6);
        assert_true(elems < (known[i].millions + known[i].rounding) * 1e6);
        nets_net_destroy(net);
    }
    assert_int_equal(resnet_params(3), 272474);
    assert_int_equal(resnet_params(5), 466906);
}

TEST_CASE(parameters_are_called_as_torchvision_does) {
    nets_net *net;
    assert_int_equal(nets_zoo_build("resnet20", &net), MM_OK);
    static const struct {
        const char *name;
        int rank;
        bool learned;
        int64_t dims[4];
    } known[] = {
        {"conv1.weight", 4, true, {16, 3, 3, 3}},
        {"bn1.running_mean", 1, false, {16, 1, 1, 1}},
        {"layer1.0.conv1.weight", 4, true, {16, 16, 3, 3}},
        {"layer1.2.bn2.running_var", 1, false, {16, 1, 1, 1}},
        {"layer2.0.downsample.0.weight", 4, true, {32, 16, 1, 1}},
        {"layer2.0.downsample.1.bias", 1, true, {32, 1, 1, 1}},
        {"layer3.0.conv1.weight", 4, true, {64, 32, 3, 3}},
        {"fc.weight", 2, true, {10, 64, 1, 1}},
        {"fc.bias", 1, true, {10, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        int param = nets_net_find_param(net, known[i].name);
        assert_true(param >= 0);
        assert_int_equal(nets_net_param(net, param)->rank, known[i].rank);
        assert_memory_equal(nets_net_param(net, param)->dims, known[i].dims, sizeof known[i].dims);
        assert_int_equal(nets_net_param(net, param)->learned, known[i].learned);
    }
    assert_int_equal(nets_net_find_param(net, "layer1.0.downsample.0.weight"), -1);
    nets_net_destroy(net);
}

TEST_CASE(shapes_shrink_by_stage) {
    nets_net *net;
    assert_int_equal(nets_zoo_build("resnet32", &net), MM_OK);
    int found = 0;
    for (int i = 0; i < nets_net_layers(net); i++) {
        const nets_layer *layer = nets_net_layer(net, i);
        nets_shape shape;
        assert_int_equal(nets_net_shape(net, i, 128, &shape), MM_OK);
        if (strcmp(layer->name, "layer2.0.conv1") == 0) {
            assert_true(nets_shape_equal(&shape, &(nets_shape){4, {128, 16, 16, 32}}));
            found++;
        } else if (strcmp(layer->name, "layer3.4.relu2") == 0) {
            assert_true(nets_shape_equal(&shape, &(nets_shape){4, {128, 8, 8, 64}}));
            found++;
        } else if (strcmp(layer->name, "avgpool") == 0) {
            assert_true(nets_shape_equal(&shape, &(nets_shape){4, {128, 1, 1, 64}}));
            found++;
        }
    }
    assert_int_equal(found, 3);
    nets_net_destroy(net);
}

TEST_CASE(batch_out_of_range_is_refused_by_layer) {
    nets_net *net;
    nets_shape shape;
    assert_int_equal(nets_zoo_build("resnet20", &net), MM_OK);
    assert_int_equal(nets_net_shape(net, 1, 0, &shape), MM_ERR_INVALID);
    assert_int_equal(nets_net_shape(net, 1, INT64_MAX / 1000, &shape), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "conv1"));
    nets_net_destroy(net);
}

/* A small net whose third layer has operation `op` and must be refused. */
static void expect_refused(const char *name, nets_op_kind op, const nets_attrs *attrs, int input, mm_status expected) {
    nets_net *net;
    assert_int_equal(nets_net_create("bad", &net), MM_OK);
    int x = nets_add_data(net, 8, 8, 3, 10);
    x = nets_add1(net, "conv", NETS_CONV, &(nets_attrs){.out_channels = 4, .kernel = {3, 3}}, x);
    assert_int_equal(nets_add1(net, name, op, attrs, input < 0 ? x : input), -1);
    char message[256];
    strncpy(message, mm_last_error(), sizeof message - 1);
    message[sizeof message - 1] = 0;
    assert_non_null(strstr(message, *name ? name : "needs a name"));
    /* The failure sticks: later calls do nothing, and finishing reports it. */
    assert_int_equal(nets_add1(net, "relu", NETS_RELU, NULL, x), -1);
    assert_int_equal(nets_net_finish(net), expected);
    assert_string_equal(mm_last_error(), message);
    nets_net_destroy(net);
}

TEST_CASE(bad_layers_are_refused_by_name) {
    const nets_attrs conv = {.out_channels = 4, .kernel = {3, 3}};
    nets_attrs bad = conv;
    bad.kernel[1] = 7; /* the input has 6 columns */
    expect_refused("wide", NETS_CONV, &bad, -1, MM_ERR_INVALID);
    bad = conv;
    bad.out_channels = 0;
    expect_refused("empty", NETS_CONV, &bad, -1, MM_ERR_INVALID);
    bad = conv;
    bad.stride[0] = -1;
    expect_refused("backwards", NETS_CONV, &bad, -1, MM_ERR_INVALID);
    expect_refused("loop", NETS_RELU, NULL, 2, MM_ERR_INVALID);
    expect_refused("unknown", (nets_op_kind)99, NULL, -1, MM_ERR_INVALID);
    expect_refused("lonely", NETS_ADD, NULL, -1, MM_ERR_INVALID);
    expect_refused("all", NETS_DROPOUT, &(nets_attrs){.p = 1}, -1, MM_ERR_INVALID);
    expect_refused("large", NETS_MAX_POOL, &(nets_attrs){.kernel = {16, 16}, .pad = {8, 8}}, -1, MM_ERR_INVALID);
    expect_refused("outside", NETS_AVG_POOL, &(nets_attrs){.kernel = {2, 2}, .pad = {2, 2}}, -1, MM_ERR_INVALID);
    expect_refused("", NETS_RELU, NULL, -1, MM_ERR_INVALID);
}

TEST_CASE(sums_of_different_shapes_are_refused) {
    nets_net *net;
    assert_int_equal(nets_net_create("bad", &net), MM_OK);
    int x = nets_add_data(net, 8, 8, 3, 10);
    int y = nets_add1(net, "conv", NETS_CONV, &(nets_attrs){.out_channels = 4, .kernel = {1, 1}}, x);
    nets_add(net, "sum", NETS_ADD, NULL, (const int[]){x, y}, 2);
    assert_int_equal(nets_net_finish(net), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), "layer sum: cannot add 8x8x4 to 8x8x3");
    nets_net_destroy(net);
}

/* Finishes the net data - fc(out) - loss, with an additional layer named `extra` if not NULL. */
static mm_status finish_small(int64_t out, const char *extra, bool with_loss) {
    nets_net *net;
    assert_int_equal(nets_net_create("small", &net), MM_OK);
    int data = nets_add_data(net, 2, 2, 3, 10);
    int x = nets_add1(net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = out}, data);
    if (extra) nets_add1(net, extra, NETS_RELU, NULL, data);
    if (with_loss) nets_add1(net, "loss", NETS_LOSS, NULL, x);
    mm_status status = nets_net_finish(net);
    nets_net_destroy(net);
    return status;
}

TEST_CASE(unfinished_nets_are_refused) {
    assert_int_equal(finish_small(10, NULL, true), MM_OK);
    assert_int_equal(finish_small(10, NULL, false), MM_ERR_INVALID);
    assert_int_equal(finish_small(9, NULL, true), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), "layer loss: 9 scores for 10 classes: must be as many");
    assert_int_equal(finish_small(10, "dead", true), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "nothing uses layer dead"));
}

TEST_CASE(two_layers_of_one_name_are_refused) {
    nets_net *net;
    assert_int_equal(nets_net_create("small", &net), MM_OK);
    int x = nets_add_data(net, 2, 2, 3, 10);
    x = nets_add1(net, "same", NETS_RELU, NULL, x);
    x = nets_add1(net, "same", NETS_LINEAR, &(nets_attrs){.out_channels = 10}, x);
    nets_add1(net, "loss", NETS_LOSS, NULL, x);
    assert_int_equal(nets_net_finish(net), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), "net small: two layers are called same");
    nets_net_destroy(net);
}

TEST_CASE(zoo_builds_all_that_it_lists) {
    const char *name, *summary;
    size_t i;
    for (i = 0; (name = nets_zoo_list(i, &summary)); i++) {
        assert_true(strlen(summary) > 0);
        if (strchr(name, '<')) continue;
        nets_net *net;
        assert_int_equal(nets_zoo_build(name, &net), MM_OK);
        assert_string_equal(nets_net_name(net), name);
        nets_net_destroy(net);
    }
    assert_true(i >= 8);
}

TEST_CASE(unknown_nets_are_not_found_and_the_message_names_the_nearest_or_all) {
    static const char *const unknown[] = {"nope",      "resnet",    "resnet21",           "resnet2",
                                          "resnet020", "resnet20x", "cifar-resnet<6n+2>", "resnet99998"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        nets_net *net;
        assert_int_equal(nets_zoo_build(unknown[i], &net), MM_ERR_NOT_FOUND);
        const bool nearest = strstr(mm_last_error(), "did you mean resnet") && strstr(mm_last_error(), "'mm nets'");
        const bool all = strstr(mm_last_error(), "resnet32") && strstr(mm_last_error(), "tiny");
        if (!nearest && !all) fail_msg("it says '%s'", mm_last_error());
    }
}

TEST_CASE(depths_of_imagenet_names_need_the_long_form) {
    nets_net *net;
    assert_int_equal(nets_zoo_build("resnet152", &net), MM_OK);
    assert_int_equal(nets_net_classes(net), 1000);
    nets_net_destroy(net);
    assert_int_equal(nets_zoo_build("cifar-resnet152", &net), MM_OK);
    assert_int_equal(nets_net_learned_elems(net), resnet_params(25));
    nets_net_destroy(net);
    assert_int_equal(nets_zoo_build("resnet8", &net), MM_OK);
    assert_int_equal(nets_net_learned_elems(net), resnet_params(1));
    nets_net_destroy(net);
}

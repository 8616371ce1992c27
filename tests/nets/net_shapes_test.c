/* SPDX-License-Identifier: MIT */
/* Shapes and parameters by operation and attributes, and refusals. Expected values are torch's for the same layers. */

#include "nets/net.h"
#include "tests/core/test_case.h"

typedef struct shape_case {
    nets_op_kind op;
    nets_attrs attrs;
    int64_t in[3], out[3];
    int64_t weight[4]; /* {0}: none */
} shape_case;

static const shape_case SHAPES[] = {
    {NETS_CONV,
     {.out_channels = 256, .kernel = {5, 5}, .pad = {2, 2}, .groups = 2},
     {27, 27, 96},
     {27, 27, 256},
     {256, 48, 5, 5}},
    {NETS_CONV, {.out_channels = 32, .kernel = {3, 3}, .groups = 32}, {9, 9, 32}, {7, 7, 32}, {32, 1, 3, 3}},
    {NETS_CONV,
     {.out_channels = 8, .kernel = {3, 3}, .pad = {2, 4}, .dilation = {2, 4}},
     {10, 11, 4},
     {10, 11, 8},
     {8, 4, 3, 3}},
    {NETS_CONV,
     {.out_channels = 8, .kernel = {3, 3}, .stride = {2, 2}, .dilation = {3, 1}},
     {10, 10, 4},
     {2, 4, 8},
     {8, 4, 3, 3}},
    {NETS_CONV, {.out_channels = 224, .kernel = {1, 7}, .pad = {0, 3}}, {17, 17, 192}, {17, 17, 224}, {224, 192, 1, 7}},
    {NETS_CONV_TRANSPOSE,
     {.out_channels = 64, .kernel = {2, 2}, .stride = {2, 2}},
     {28, 28, 128},
     {56, 56, 64},
     {128, 64, 2, 2}},
    {NETS_CONV_TRANSPOSE,
     {.out_channels = 21, .kernel = {16, 16}, .stride = {8, 8}},
     {70, 70, 21},
     {568, 568, 21},
     {21, 21, 16, 16}},
    {NETS_CONV_TRANSPOSE,
     {.out_channels = 16, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .output_pad = {1, 1}},
     {7, 5, 32},
     {14, 10, 16},
     {32, 16, 3, 3}},
    {NETS_CONV_TRANSPOSE,
     {.out_channels = 12, .kernel = {3, 2}, .dilation = {2, 3}, .groups = 4},
     {3, 4, 8},
     {7, 7, 12},
     {8, 3, 3, 2}},
    {NETS_LRN, {.size = 5}, {55, 55, 96}, {55, 55, 96}, {0}},
    {NETS_MAX_POOL, {.kernel = {3, 3}, .stride = {2, 2}}, {112, 113, 64}, {55, 56, 64}, {0}},
    {NETS_MAX_POOL, {.kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = true}, {112, 113, 64}, {56, 56, 64}, {0}},
    {NETS_MAX_POOL, {.kernel = {2, 2}, .pad = {1, 1}, .ceil_mode = true}, {7, 6, 3}, {4, 4, 3}, {0}},
    {NETS_MAX_POOL, {.kernel = {1, 1}, .stride = {3, 3}, .ceil_mode = true}, {7, 8, 3}, {3, 3, 3}, {0}},
    {NETS_AVG_POOL, {.kernel = {2, 3}, .stride = {2, 3}, .ceil_mode = true}, {5, 7, 3}, {3, 3, 3}, {0}},
    {NETS_CROP, {.out_size = {5, 4}, .offset = {2, 3}}, {7, 7, 6}, {5, 4, 6}, {0}},
    {NETS_UPSAMPLE, {.scale = {2, 3}}, {7, 5, 6}, {14, 15, 6}, {0}},
    {NETS_LINEAR, {.out_channels = 4096}, {6, 6, 256}, {1, 1, 4096}, {4096, 9216, 1, 1}},
};

TEST_CASE(shapes_and_weights_are_those_of_torch) {
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        const shape_case *c = &SHAPES[i];
        nets_net *net;
        assert_int_equal(nets_net_create("net", &net), MM_OK);
        int layer = nets_add1(net, "layer", c->op, &c->attrs, nets_add_data(net, c->in[0], c->in[1], c->in[2], 10));
        if (layer < 0) fail_msg("case %zu: %s", i, mm_last_error());
        assert_memory_equal(nets_net_layer(net, layer)->shape.dims, c->out, sizeof c->out);
        assert_int_equal(nets_net_params(net), c->weight[0] > 0);
        if (c->weight[0]) {
            assert_memory_equal(nets_net_param(net, 0)->dims, c->weight, sizeof c->weight);
            assert_string_equal(nets_net_param(net, 0)->name, "layer.weight");
        }
        nets_net_destroy(net);
    }
}

TEST_CASE(concat_adds_up_channels) {
    nets_net *net;
    int inputs[NETS_MAX_INPUTS + 1];
    assert_int_equal(nets_net_create("net", &net), MM_OK);
    inputs[0] = nets_add_data(net, 4, 5, 3, 10);
    for (int i = 1; i <= NETS_MAX_INPUTS; i++)
        inputs[i] = nets_add1(net, "conv", NETS_CONV, &(nets_attrs){.out_channels = i, .kernel = {1, 1}}, inputs[0]);
    int layer = nets_add(net, "all", NETS_CONCAT, NULL, inputs, NETS_MAX_INPUTS);
    assert_memory_equal(nets_net_layer(net, layer)->shape.dims, ((const int64_t[3]){4, 5, 3 + 7 * 8 / 2}), 24);
    layer = nets_add(net, "two", NETS_CONCAT, NULL, inputs, 2);
    assert_memory_equal(nets_net_layer(net, layer)->shape.dims, ((const int64_t[3]){4, 5, 4}), 24);
    assert_int_equal(nets_add(net, "too many", NETS_CONCAT, NULL, inputs, NETS_MAX_INPUTS + 1), -1);
    assert_string_equal(mm_last_error(), "layer too many: concat takes 2 to 8 inputs, not 9");
    nets_net_destroy(net);
}

TEST_CASE(one_map_may_be_two_inputs) {
    nets_net *net;
    assert_int_equal(nets_net_create("twice", &net), MM_OK);
    int data = nets_add_data(net, 4, 5, 3, 10);
    int sum = nets_add(net, "sum", NETS_ADD, NULL, (const int[]){data, data}, 2);
    int cat = nets_add(net, "cat", NETS_CONCAT, NULL, (const int[]){data, sum, data}, 3);
    assert_memory_equal(nets_net_layer(net, sum)->shape.dims, ((const int64_t[3]){4, 5, 3}), 24);
    assert_memory_equal(nets_net_layer(net, cat)->shape.dims, ((const int64_t[3]){4, 5, 9}), 24);
    nets_net_destroy(net);
}

/* Gives `op` two inputs: the data, 8x8x3, and 4 channels at half its size. */
static void expect_pair_refused(nets_op_kind op, const char *message) {
    nets_net *net;
    assert_int_equal(nets_net_create("bad", &net), MM_OK);
    int data = nets_add_data(net, 8, 8, 3, 10);
    int half =
        nets_add1(net, "half", NETS_CONV, &(nets_attrs){.out_channels = 4, .kernel = {2, 2}, .stride = {2, 2}}, data);
    assert_int_equal(nets_add(net, "pair", op, NULL, (const int[]){data, half}, 2), -1);
    assert_int_equal(nets_net_finish(net), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), message);
    nets_net_destroy(net);
}

TEST_CASE(inputs_that_do_not_fit_together_are_refused) {
    expect_pair_refused(NETS_CONCAT, "layer pair: its input 1 is 4x4, not 8x8 as the first");
    expect_pair_refused(NETS_CROP, "layer pair: crop takes 1 input, not 2");
}

typedef struct refusal {
    nets_op_kind op;
    nets_attrs attrs;
    const char *message;
} refusal;

/* For an input of 8x9x6. */
static const refusal REFUSED[] = {
    {NETS_CONV,
     {.out_channels = 8, .kernel = {1, 1}, .groups = 4},
     "layer bad: \"groups\" must be from 1 to 16777216, dividing input's and output's channels, not 4; the "
     "input is 8x9x6; \"out_channels\" is 8"},
    {NETS_CONV,
     {.out_channels = 9, .kernel = {1, 1}, .groups = 2},
     "layer bad: \"groups\" must be from 1 to 16777216, dividing input's and output's channels, not 2; the "
     "input is 8x9x6; \"out_channels\" is 9"},
    {NETS_CONV,
     {.out_channels = 8, .kernel = {1, 1}, .groups = -1},
     "layer bad: \"groups\" must be from 1 to 16777216, dividing input's and output's channels, not -1"},
    {NETS_CONV,
     {.out_channels = 8, .kernel = {3, 3}, .dilation = {4, 4}},
     "layer bad: kernel 9 does not fit into height 8 padded by 0"},
    {NETS_CONV,
     {.out_channels = 8, .kernel = {3, 3}, .dilation = {1, -2}},
     "layer bad: \"dilation\" must be from 1 to 16777216, not [1, -2]"},
    {NETS_CONV_TRANSPOSE,
     {.out_channels = 8, .kernel = {2, 2}, .stride = {2, 2}, .output_pad = {0, 2}},
     "layer bad: \"output_pad\" must be from 0 to 16777216, less than the stride, not [0, 2]; \"stride\" is 2"},
    {NETS_CONV_TRANSPOSE,
     {.out_channels = 8, .kernel = {1, 1}, .pad = {4, 0}},
     "layer bad: padding 4 leaves nothing of height 8"},
    {NETS_CONV_TRANSPOSE,
     {.out_channels = 8, .kernel = {1 << 24, 1 << 24}, .dilation = {1 << 24, 1 << 24}},
     "layer bad: its output is 281474959933448x281474959933449x8: each must be from 1 to 2147483647, and all together "
     "at "
     "most 2^60 elements"},
    {NETS_LRN, {.size = 4}, "layer bad: \"size\" must be from 1 to 16777216, odd, not 4"},
    {NETS_LRN, {.size = 0}, "layer bad: \"size\" is missing; it must be from 1 to 16777216, odd"},
    {NETS_LRN, {.size = 5, .beta = -1}, "layer bad: \"beta\" must be above 0, at most 16, not -1"},
    {NETS_AVG_POOL,
     {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .ceil_mode = true},
     "layer bad: ceil_mode makes a window end beyond the padding, which the average counts; give \"exclude_pad\": "
     "true, "
     "or leave out ceil_mode or the padding"},
    {NETS_CROP,
     {.out_size = {9, 9}},
     "layer bad: \"out_size\" must be from 1 to 2147483647, at most the input's, not 9; the input is 8x9x6"},
    {NETS_CROP,
     {.out_size = {8, 0}},
     "layer bad: \"out_size\" must be from 1 to 2147483647, at most the input's, not [8, 0]"},
    {NETS_CROP,
     {.out_size = {4, 4}, .offset = {4, 6}},
     "layer bad: \"offset\" must be from 0 to 2147483647, with out_size at most the input's, not [4, 6]; the input is "
     "8x9x6; \"out_size\" is 4"},
    {NETS_CROP,
     {.out_size = {4, 4}, .offset = {-1, 0}},
     "layer bad: \"offset\" must be from 0 to 2147483647, with out_size at most the input's, not [-1, 0]"},
    {NETS_CROP,
     {.out_size = {4, 4}, .offset = {1, 0}, .center = true},
     "layer bad: \"offset\" is 1, but \"center\" makes it 2; leave one out"},
    {NETS_MAX_POOL,
     {.kernel = {16, 16}},
     "layer bad: \"kernel\" must be from 1 to 255, height times width at most 255, not 16"},
    {NETS_MAX_POOL,
     {.kernel = {2, 3}, .pad = {1, 2}},
     "layer bad: \"pad\" must be from 0 to 16777216, at most half the kernel, not [1, 2]; \"kernel\" is [2, 3]"},
    {NETS_UPSAMPLE, {.scale = {2, 0}}, "layer bad: \"scale\" must be from 1 to 16777216, not [2, 0]"},
    {NETS_UPSAMPLE, {.scale = {1 << 25, 1}}, "layer bad: \"scale\" must be from 1 to 16777216, not [33554432, 1]"},
};

TEST_CASE(bad_attributes_are_refused_by_name) {
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++) {
        nets_net *net;
        assert_int_equal(nets_net_create("bad", &net), MM_OK);
        assert_int_equal(nets_add1(net, "bad", REFUSED[i].op, &REFUSED[i].attrs, nets_add_data(net, 8, 9, 6, 10)), -1);
        assert_string_equal(mm_last_error(), REFUSED[i].message);
        nets_net_destroy(net);
    }
}

/* Each scale is in range; together they give 2^96 pixels. */
TEST_CASE(chains_that_overflow_are_refused) {
    nets_net *net;
    assert_int_equal(nets_net_create("large", &net), MM_OK);
    int x = nets_add_data(net, 1, 1, 1, 10);
    const nets_attrs wide = {.scale = {1, 1 << 20}}, high = {.scale = {1 << 20, 1}};
    x = nets_add1(net, "wide", NETS_UPSAMPLE, &wide, x);
    x = nets_add1(net, "high", NETS_UPSAMPLE, &high, x);
    assert_true(x > 0);
    nets_shape shape;
    assert_int_equal(nets_net_shape(net, x, 1 << 20, &shape), MM_OK);
    assert_int_equal(nets_net_shape(net, x, (1 << 20) + 1, &shape), MM_ERR_INVALID);
    assert_int_equal(nets_add1(net, "wider", NETS_UPSAMPLE, &wide, x), -1);
    assert_string_equal(
        mm_last_error(),
        "layer wider: its output is 1048576x1099511627776x1: each must be from 1 to 2147483647, and all "
        "together at most 2^60 elements");
    nets_net_destroy(net);
}

TEST_CASE(defaults_are_filled_in) {
    nets_net *net;
    assert_int_equal(nets_net_create("net", &net), MM_OK);
    int x = nets_add_data(net, 8, 8, 4, 10);
    x = nets_add1(net, "conv", NETS_CONV, &(nets_attrs){.out_channels = 4, .kernel = {3, 3}}, x);
    const nets_attrs *a = &nets_net_layer(net, x)->attrs;
    assert_true(a->groups == 1 && a->dilation[0] == 1 && a->dilation[1] == 1 && a->stride[1] == 1);
    x = nets_add1(net, "crop", NETS_CROP, &(nets_attrs){.out_size = {3, 2}, .center = true}, x);
    a = &nets_net_layer(net, x)->attrs;
    assert_true(a->offset[0] == 1 && a->offset[1] == 2);
    nets_net_destroy(net);
}

TEST_CASE(a_loss_of_a_map_has_a_label_for_each_pixel) {
    for (int map = 0; map < 2; map++) {
        nets_net *net;
        assert_int_equal(nets_net_create("net", &net), MM_OK);
        int x = nets_add_data(net, 4, 6, 3, 5);
        if (map)
            x = nets_add1(net, "score", NETS_CONV, &(nets_attrs){.out_channels = 5, .kernel = {1, 1}}, x);
        else
            x = nets_add1(net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 5}, x);
        nets_add1(net, "loss", NETS_LOSS, NULL, x);
        assert_int_equal(nets_net_finish(net), MM_OK);
        assert_int_equal(nets_net_labels(net), map ? 24 : 1);
        nets_net_destroy(net);
    }
}

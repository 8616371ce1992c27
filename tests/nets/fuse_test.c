/* SPDX-License-Identifier: MIT */
/* Which layers are fused: over the zoo, and where they must not be. */
#include <stdlib.h>
#include <string.h>

#include "nets/lower/fuse.h"
#include "nets/zoo/zoo.h"
#include "tests/core/test_case.h"

typedef struct fixture {
    nets_net *net;
    nets_fused *fused;
} fixture;

static void fuse(fixture *f) {
    int n = nets_net_layers(f->net), *consumers = malloc((size_t)n * sizeof *consumers);
    f->fused = malloc((size_t)n * sizeof *f->fused);
    assert_true(consumers && f->fused);
    nets_fuse(f->net, consumers, f->fused);
    free(consumers);
}

static void finish(fixture *f) {
    free(f->fused);
    nets_net_destroy(f->net);
}

static int find(const fixture *f, const char *name) {
    for (int i = 0; i < nets_net_layers(f->net); i++)
        if (strcmp(nets_net_layer(f->net, i)->name, name) == 0) return i;
    fail_msg("no layer %s", name);
    return -1;
}

static const nets_fused *at(const fixture *f, const char *name) { return &f->fused[find(f, name)]; }

/* Links between fused layers agree in both directions. */
static void check_consistent(const fixture *f) {
    for (int i = 0; i < nets_net_layers(f->net); i++) {
        const nets_fused *one = &f->fused[i];
        const nets_layer *layer = nets_net_layer(f->net, i);
        assert_true(one->within >= i);
        assert_true(one->within == i || layer->op == NETS_BATCH_NORM || layer->op == NETS_ADD ||
                    layer->op == NETS_SILU);
        if (one->gate >= 0) assert_true(layer->op == NETS_MUL && f->fused[one->gate].within == i);
        assert_int_equal(f->fused[one->within].within, one->within);
        if (one->norm >= 0) assert_int_equal(f->fused[one->norm].within, i);
        if (one->biased >= 0) assert_true(f->fused[one->biased].no_bias);
        if (one->norm >= 0 || one->biased >= 0) assert_int_equal(layer->op, NETS_RELU);
        assert_true(one->norm < 0 || one->biased < 0);
        assert_true(one->addend < 0 || one->norm >= 0);
    }
}

/* Checks a network's numbers of batch norms that are fused with their ReLU (norms), of those among them that are also
 * fused with a sum (sums), and of biases that move into a ReLU (biases). */
static void expect_zoo(const char *name, int norms, int sums, int biases) {
    fixture f;
    int found[3] = {0};
    assert_int_equal(nets_zoo_build(name, &f.net), MM_OK);
    fuse(&f);
    check_consistent(&f);
    for (int i = 0; i < nets_net_layers(f.net); i++) {
        found[0] += f.fused[i].norm >= 0;
        found[1] += f.fused[i].addend >= 0;
        found[2] += f.fused[i].biased >= 0;
    }
    if (found[0] != norms || found[1] != sums || found[2] != biases)
        fail_msg("%s: %d batch norms, %d sums, %d biases", name, found[0], found[1], found[2]);
    finish(&f);
}

TEST_CASE(what_is_fused_in_the_zoo) {
    /* Fused are the stem's batch norm and three in each of 16 blocks, of which one is also fused with the sum. In four
     * blocks a second batch norm, the projection's or that to which it is added, stays unfused. */
    expect_zoo("resnet50", 1 + 3 * 16, 16, 0);
    expect_zoo("resnet18", 1 + 2 * 8, 8, 0);
    expect_zoo("resnet20", 1 + 2 * 9, 9, 0);
    expect_zoo("vgg16", 0, 0, 13 + 2);
    expect_zoo("alexnet", 0, 0, 5 + 2);
    expect_zoo("unet", 0, 0, 2 * 9);
    expect_zoo("googlenet", 57, 0, 0);
    expect_zoo("densenet121", 1 + 2 * 58 + 3 + 1, 0, 0);
}

TEST_CASE(a_llamas_products_take_their_silu) {
    fixture f;
    int found = 0;
    assert_int_equal(nets_zoo_build("llama-15m", &f.net), MM_OK);
    fuse(&f);
    check_consistent(&f);
    for (int i = 0; i < nets_net_layers(f.net); i++) found += f.fused[i].gate >= 0;
    assert_int_equal(found, 6);
    assert_int_equal(at(&f, "layers.0.mlp.mul")->gate, find(&f, "layers.0.mlp.act"));
    finish(&f);
}

TEST_CASE(the_later_one_of_two_batch_norms_takes_the_sum) {
    fixture f;
    assert_int_equal(nets_zoo_build("resnet50", &f.net), MM_OK);
    fuse(&f);
    assert_int_equal(at(&f, "layer1.0.relu3")->norm, find(&f, "layer1.0.downsample.1"));
    assert_int_equal(at(&f, "layer1.0.relu3")->addend, find(&f, "layer1.0.bn3"));
    assert_int_equal(at(&f, "layer1.0.add")->within, find(&f, "layer1.0.relu3"));
    assert_int_equal(at(&f, "layer1.0.bn3")->within, find(&f, "layer1.0.bn3"));
    assert_int_equal(at(&f, "layer1.1.relu3")->norm, find(&f, "layer1.1.bn3"));
    assert_int_equal(at(&f, "layer1.1.relu3")->addend, find(&f, "layer1.0.relu3"));
    finish(&f);
}

TEST_CASE(nothing_is_fused_unless_asked) {
    fixture f;
    assert_int_equal(nets_zoo_build("tiny", &f.net), MM_OK);
    fuse(&f);
    assert_true(at(&f, "relu1")->biased >= 0 && at(&f, "relu2")->norm >= 0);
    nets_fuse_none(f.net, f.fused);
    for (int i = 0; i < nets_net_layers(f.net); i++) {
        const nets_fused *one = &f.fused[i];
        assert_true(one->within == i && one->norm == -1 && one->addend == -1 && one->biased == -1 && one->gate == -1 &&
                    !one->no_bias);
    }
    finish(&f);
}

/* ---------------------------------------------------------------- where it must not be */

static int conv(nets_net *net, const char *name, bool bias, int input) {
    return nets_add1(net, name, NETS_CONV,
                     &(nets_attrs){.out_channels = 4, .kernel = {3, 3}, .pad = {1, 1}, .bias = bias}, input);
}

static int norm(nets_net *net, const char *name, int input) {
    return nets_add1(net, name, NETS_BATCH_NORM, NULL, input);
}
static int relu(nets_net *net, const char *name, int input) { return nets_add1(net, name, NETS_RELU, NULL, input); }
static int sum(nets_net *net, const char *name, int a, int b) {
    return nets_add(net, name, NETS_ADD, NULL, (const int[]){a, b}, 2);
}

static int begin(fixture *f) {
    assert_int_equal(nets_net_create("net", &f->net), MM_OK);
    return conv(f->net, "stem", false, nets_add_data(f->net, 6, 6, 3, 5));
}

static void end(fixture *f, int x) {
    x = nets_add1(f->net, "pool", NETS_GLOBAL_AVG_POOL, NULL, x);
    x = nets_add1(f->net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 5, .bias = true}, x);
    nets_add1(f->net, "loss", NETS_LOSS, NULL, x);
    if (nets_net_finish(f->net) != MM_OK) fail_msg("%s", mm_last_error());
    fuse(f);
    check_consistent(f);
}

static void expect_alone(const fixture *f, const char *relu_name) {
    assert_int_equal(at(f, relu_name)->norm, -1);
    assert_int_equal(at(f, relu_name)->addend, -1);
    assert_int_equal(at(f, relu_name)->biased, -1);
}

TEST_CASE(a_batch_norm_that_two_layers_read) {
    fixture f;
    int x = begin(&f);
    x = norm(f.net, "bn", x);
    end(&f, sum(f.net, "sum", relu(f.net, "relu", x), x));
    expect_alone(&f, "relu");
    finish(&f);
}

TEST_CASE(a_bias_whose_sum_two_layers_read) {
    fixture f;
    int x = begin(&f);
    x = conv(f.net, "conv", true, x);
    end(&f, sum(f.net, "sum", relu(f.net, "relu", x), x));
    expect_alone(&f, "relu");
    assert_false(at(&f, "conv")->no_bias);
    finish(&f);
}

TEST_CASE(a_sum_that_two_layers_read) {
    fixture f;
    int stem = begin(&f), x = norm(f.net, "bn", conv(f.net, "conv", false, stem));
    x = sum(f.net, "sum", x, stem);
    end(&f, sum(f.net, "end", relu(f.net, "relu", x), x));
    expect_alone(&f, "relu");
    finish(&f);
}

TEST_CASE(a_sum_without_a_batch_norm) {
    fixture f;
    int stem = begin(&f);
    end(&f, relu(f.net, "relu", sum(f.net, "sum", conv(f.net, "conv", true, stem), stem)));
    expect_alone(&f, "relu");
    assert_false(at(&f, "conv")->no_bias);
    finish(&f);
}

/* The batch norm's gradient by its input and that by the addend would be one tensor. */
TEST_CASE(a_batch_norm_that_its_own_input_is_added_to) {
    fixture f;
    int stem = begin(&f);
    end(&f, relu(f.net, "relu", sum(f.net, "sum", norm(f.net, "bn", stem), stem)));
    expect_alone(&f, "relu");
    finish(&f);
}

static int dropout(nets_net *net, const char *name, int input) {
    return nets_add1(net, name, NETS_DROPOUT, &(nets_attrs){.p = 0.5f}, input);
}

/* In evaluation dropout is the identity, so input and addend would be one tensor. */
TEST_CASE(a_batch_norm_that_its_own_input_is_added_to_through_dropout) {
    fixture f;
    int stem = begin(&f), late = dropout(f.net, "late", dropout(f.net, "later", stem));
    int x = relu(f.net, "relu1", sum(f.net, "sum1", norm(f.net, "bn1", stem), late));
    int before = dropout(f.net, "before", x);
    int y = relu(f.net, "relu2", sum(f.net, "sum2", norm(f.net, "bn2", before), x));
    int left = dropout(f.net, "left", y), right = dropout(f.net, "right", y);
    end(&f, relu(f.net, "relu3", sum(f.net, "sum3", norm(f.net, "bn3", left), right)));
    expect_alone(&f, "relu1");
    expect_alone(&f, "relu2");
    expect_alone(&f, "relu3");
    finish(&f);
}

TEST_CASE(dropout_of_another_map_may_be_added) {
    fixture f;
    int stem = begin(&f), dropped = dropout(f.net, "drop", stem);
    int x = norm(f.net, "bn", conv(f.net, "conv", false, stem));
    end(&f, relu(f.net, "relu", sum(f.net, "sum", x, dropped)));
    assert_int_equal(at(&f, "relu")->norm, x);
    assert_int_equal(at(&f, "relu")->addend, dropped);
    finish(&f);
}

static int gated(nets_net *net, const char *name, int silu, int x2) {
    return nets_add(net, name, NETS_MUL, NULL, (const int[]){silu, x2}, 2);
}

/* The SiLU is read twice; it is the second factor; the other factor is its own input, or a number for each channel. */
TEST_CASE(products_that_leave_the_silu_alone) {
    fixture f;
    int stem = begin(&f), other = conv(f.net, "other", false, stem);
    int a = nets_add1(f.net, "a", NETS_SILU, NULL, stem), twice = sum(f.net, "twice", gated(f.net, "m", a, other), a);
    int b = nets_add1(f.net, "b", NETS_SILU, NULL, conv(f.net, "conv_b", false, twice));
    int second = gated(f.net, "second", twice, b), x = conv(f.net, "conv_c", false, second);
    int own = gated(f.net, "own", nets_add1(f.net, "c", NETS_SILU, NULL, x), x);
    int mean = nets_add1(f.net, "mean", NETS_GLOBAL_AVG_POOL, NULL, own);
    int each = gated(f.net, "each", nets_add1(f.net, "d", NETS_SILU, NULL, conv(f.net, "conv_d", false, own)), mean);
    end(&f, relu(f.net, "relu", each));
    for (int i = 0; i < nets_net_layers(f.net); i++) assert_int_equal(f.fused[i].gate, -1);
    finish(&f);
}

TEST_CASE(no_relu_behind_it_or_no_bias_before_it) {
    fixture f;
    int stem = begin(&f), x = norm(f.net, "bn", stem);
    x = dropout(f.net, "drop", x);
    end(&f, relu(f.net, "relu2", conv(f.net, "conv", false, relu(f.net, "relu", x))));
    expect_alone(&f, "relu");
    expect_alone(&f, "relu2");
    assert_int_equal(at(&f, "bn")->within, find(&f, "bn"));
    finish(&f);
}

/* Three layers contribute gradients to the stem, in the order of the layers. Fusion would move the first batch norm
 * behind the second; the second has nothing between it and its ReLU, so it is fused. */
TEST_CASE(no_consumer_of_the_same_map_is_overtaken) {
    fixture f;
    int stem = begin(&f), a = norm(f.net, "a", stem), b = norm(f.net, "b", stem);
    int x = sum(f.net, "sum", relu(f.net, "relu_a", a), relu(f.net, "relu_b", b));
    end(&f, sum(f.net, "end", x, stem));
    expect_alone(&f, "relu_a");
    assert_int_equal(at(&f, "relu_b")->norm, b);
    finish(&f);
}

TEST_CASE(nor_one_of_the_addend) {
    fixture f;
    int stem = begin(&f), a = norm(f.net, "a", conv(f.net, "conv_a", false, stem));
    int x = sum(f.net, "sum", a, stem), b = conv(f.net, "conv_b", false, stem);
    end(&f, sum(f.net, "end", relu(f.net, "relu", x), b));
    expect_alone(&f, "relu");
    finish(&f);
}

TEST_CASE(biases_move_from_convolutions_and_linear_layers) {
    fixture f;
    int x = begin(&f);
    x = relu(f.net, "relu1", conv(f.net, "conv", true, x));
    x = nets_add1(f.net, "up", NETS_CONV_TRANSPOSE,
                  &(nets_attrs){.out_channels = 4, .kernel = {2, 2}, .stride = {2, 2}, .bias = true}, x);
    x = relu(f.net, "relu2", x);
    x = nets_add1(f.net, "hidden", NETS_LINEAR, &(nets_attrs){.out_channels = 7, .bias = true}, x);
    end(&f, relu(f.net, "relu3", x));
    assert_int_equal(at(&f, "relu1")->biased, find(&f, "conv"));
    expect_alone(&f, "relu2");
    assert_int_equal(at(&f, "relu3")->biased, find(&f, "hidden"));
    assert_true(at(&f, "hidden")->no_bias && !at(&f, "fc")->no_bias);
    finish(&f);
}

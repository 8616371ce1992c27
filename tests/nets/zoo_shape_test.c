/* SPDX-License-Identifier: MIT */
/* Layers of the zoo's nets: shapes of maps, names and shapes of parameters, published sizes in bytes. */
#include <math.h>
#include <string.h>

#include "nets/zoo/zoo.h"
#include "tests/core/test_case.h"

static nets_net *build(const char *name) {
    nets_net *net;
    if (nets_zoo_build(name, &net) != MM_OK) fail_msg("%s: %s", name, mm_last_error());
    return net;
}

static const nets_layer *find_layer(const nets_net *net, const char *name) {
    for (int i = 0; i < nets_net_layers(net); i++)
        if (strcmp(nets_net_layer(net, i)->name, name) == 0) return nets_net_layer(net, i);
    fail_msg("%s has no layer %s", nets_net_name(net), name);
    return NULL;
}

typedef struct shape {
    const char *layer;
    int64_t dims[3]; /* height, width, channels */
} shape;

static void expect_shapes(const char *name, const shape *shapes, size_t n) {
    nets_net *net = build(name);
    for (size_t i = 0; i < n; i++) {
        const int64_t *dims = find_layer(net, shapes[i].layer)->shape.dims;
        if (memcmp(dims, shapes[i].dims, sizeof shapes[i].dims) != 0)
            fail_msg("%s: %s is %lldx%lldx%lld", name, shapes[i].layer, (long long)dims[0], (long long)dims[1],
                     (long long)dims[2]);
    }
    nets_net_destroy(net);
}

#define EXPECT_SHAPES(name, ...)                                                                                       \
    expect_shapes(name, (const shape[]){__VA_ARGS__}, sizeof((const shape[]){__VA_ARGS__}) / sizeof(shape))

TEST_CASE(shapes_of_alexnets_and_vgg) {
    EXPECT_SHAPES("alexnet", {"features.0", {55, 55, 64}}, {"features.2", {27, 27, 64}}, {"features.5", {13, 13, 192}},
                  {"features.12", {6, 6, 256}}, {"classifier.1", {1, 1, 4096}}, {"loss", {1, 1, 1000}});
    EXPECT_SHAPES("alexnet-2012", {"data", {227, 227, 3}}, {"conv1", {55, 55, 96}}, {"norm1", {55, 55, 96}},
                  {"pool1", {27, 27, 96}}, {"conv2", {27, 27, 256}}, {"pool2", {13, 13, 256}}, {"conv3", {13, 13, 384}},
                  {"conv5", {13, 13, 256}}, {"pool5", {6, 6, 256}}, {"loss", {1, 1, 1000}});
    EXPECT_SHAPES("vgg16", {"features.0", {224, 224, 64}}, {"features.4", {112, 112, 64}},
                  {"features.23", {14, 14, 512}}, {"features.30", {7, 7, 512}}, {"loss", {1, 1, 1000}});
    EXPECT_SHAPES("vgg101", {"features.0", {224, 224, 64}}, {"features.200", {7, 7, 512}}, {"loss", {1, 1, 1000}});
}

TEST_CASE(shapes_of_residual_nets) {
    EXPECT_SHAPES("resnet18", {"conv1", {112, 112, 64}}, {"maxpool", {56, 56, 64}}, {"layer1.1.relu2", {56, 56, 64}},
                  {"layer2.0.downsample.1", {28, 28, 128}}, {"layer4.1.relu2", {7, 7, 512}}, {"loss", {1, 1, 1000}});
    EXPECT_SHAPES("resnet50", {"layer1.0.downsample.0", {56, 56, 256}}, {"layer2.0.conv1", {56, 56, 128}},
                  {"layer2.0.conv2", {28, 28, 128}}, {"layer3.5.relu3", {14, 14, 1024}}, {"layer4.2.add", {7, 7, 2048}},
                  {"avgpool", {1, 1, 2048}});
    EXPECT_SHAPES("resnet256", {"layer2.15.relu3", {28, 28, 512}}, {"layer3.61.relu3", {14, 14, 1024}});
    EXPECT_SHAPES("resnet509", {"layer1.0.relu3", {32, 32, 64}}, {"layer2.55.relu3", {16, 16, 128}},
                  {"layer3.55.relu3", {8, 8, 256}}, {"loss", {1, 1, 10}});
}

TEST_CASE(shapes_of_nets_of_branches) {
    EXPECT_SHAPES("googlenet", {"conv1.conv", {112, 112, 64}}, {"maxpool1", {56, 56, 64}}, {"maxpool2", {28, 28, 192}},
                  {"inception3a.cat", {28, 28, 256}}, {"inception3b.cat", {28, 28, 480}}, {"maxpool3", {14, 14, 480}},
                  {"inception4e.cat", {14, 14, 832}}, {"inception5b.cat", {7, 7, 1024}}, {"loss", {1, 1, 1000}});
    /* Szegedy et al. 2016, figures 3 and 9. */
    EXPECT_SHAPES("inception-v4", {"features.0.conv", {149, 149, 32}}, {"features.2.conv", {147, 147, 64}},
                  {"features.3.cat", {73, 73, 160}}, {"features.4.cat", {71, 71, 192}},
                  {"features.5.cat", {35, 35, 384}}, {"features.9.cat", {35, 35, 384}},
                  {"features.10.cat", {17, 17, 1024}}, {"features.17.cat", {17, 17, 1024}},
                  {"features.18.cat", {8, 8, 1536}}, {"features.21.cat", {8, 8, 1536}}, {"loss", {1, 1, 1000}});
    EXPECT_SHAPES("squeezenet1_0", {"features.0", {109, 109, 96}}, {"features.2", {54, 54, 96}},
                  {"features.3.cat", {54, 54, 128}}, {"features.6", {27, 27, 256}}, {"features.11", {13, 13, 512}},
                  {"classifier.1", {13, 13, 1000}}, {"loss", {1, 1, 1000}});
    EXPECT_SHAPES("densenet121", {"features.pool0", {56, 56, 64}},
                  {"features.denseblock1.denselayer6.cat", {56, 56, 256}}, {"features.transition1.pool", {28, 28, 128}},
                  {"features.transition2.pool", {14, 14, 256}},
                  {"features.denseblock3.denselayer24.cat", {14, 14, 1024}},
                  {"features.denseblock4.denselayer16.cat", {7, 7, 1024}}, {"loss", {1, 1, 1000}});
}

TEST_CASE(shapes_of_nin_and_overfeat) {
    EXPECT_SHAPES("nin", {"conv1", {54, 54, 96}}, {"pool1", {27, 27, 96}}, {"pool2", {13, 13, 256}},
                  {"pool3", {6, 6, 384}}, {"cccp8", {6, 6, 1000}}, {"loss", {1, 1, 1000}});
    EXPECT_SHAPES("nin-cifar", {"pool1", {16, 16, 96}}, {"pool2", {8, 8, 192}}, {"cccp6", {8, 8, 10}},
                  {"loss", {1, 1, 10}});
    /* Sermanet et al. 2013, table 1: after the first layer, inputs of 24, 12, 12, 12 and 6 rows. */
    EXPECT_SHAPES("overfeat", {"data", {231, 231, 3}}, {"conv1", {56, 56, 96}}, {"conv2", {24, 24, 256}},
                  {"pool2", {12, 12, 256}}, {"conv5", {12, 12, 1024}}, {"pool5", {6, 6, 1024}}, {"fc6", {1, 1, 3072}});
}

TEST_CASE(shapes_of_nets_with_labels_of_pixels) {
    /* Ronneberger et al. 2015, figure 1. */
    EXPECT_SHAPES("unet", {"data", {572, 572, 1}}, {"down1.conv2", {568, 568, 64}}, {"down4.conv2", {64, 64, 512}},
                  {"bottom5.conv2", {28, 28, 1024}}, {"up4.crop", {56, 56, 512}}, {"up4.cat", {56, 56, 1024}},
                  {"up1.upconv", {392, 392, 64}}, {"up1.cat", {392, 392, 128}}, {"up1.conv2", {388, 388, 64}},
                  {"loss", {388, 388, 2}});
    EXPECT_SHAPES("fcn8s-vgg16", {"conv1_1", {422, 422, 64}}, {"pool5", {14, 14, 512}}, {"fc7", {8, 8, 4096}},
                  {"upscore2", {18, 18, 21}}, {"score_pool4c", {18, 18, 21}}, {"upscore_pool4", {38, 38, 21}},
                  {"upscore8", {312, 312, 21}}, {"loss", {224, 224, 21}});
    /* For any input size, each pixel has scores. */
    EXPECT_SHAPES("fcn8s-vgg16@500x375,thin=8", {"upscore8", {568, 440, 21}}, {"loss", {500, 375, 21}});
    nets_net *net = build("unet");
    assert_int_equal(nets_net_labels(net), 388 * 388);
    nets_net_destroy(net);
    net = build("vgg11");
    assert_int_equal(nets_net_labels(net), 1);
    nets_net_destroy(net);
}

TEST_CASE(parameters_are_called_as_in_torchvision) {
    static const struct {
        const char *net, *param;
        int64_t dims[4];
    } known[] = {
        {"alexnet", "features.10.weight", {256, 256, 3, 3}},
        {"alexnet", "classifier.6.bias", {1000, 1, 1, 1}},
        {"alexnet-2012", "conv2.weight", {256, 48, 5, 5}},
        {"vgg16", "features.0.weight", {64, 3, 3, 3}},
        {"vgg16", "features.28.bias", {512, 1, 1, 1}},
        {"vgg16", "classifier.0.weight", {4096, 25088, 1, 1}},
        {"resnet18", "layer1.0.conv1.weight", {64, 64, 3, 3}},
        {"resnet34", "layer3.5.bn2.running_var", {256, 1, 1, 1}},
        {"resnet50", "layer1.0.downsample.0.weight", {256, 64, 1, 1}},
        {"resnet152", "layer3.35.conv3.weight", {1024, 256, 1, 1}},
        {"squeezenet1_0", "features.3.squeeze.weight", {16, 96, 1, 1}},
        {"squeezenet1_0", "features.12.expand3x3.bias", {256, 1, 1, 1}},
        {"squeezenet1_0", "classifier.1.weight", {1000, 512, 1, 1}},
        {"densenet121", "features.conv0.weight", {64, 3, 7, 7}},
        {"densenet121", "features.denseblock1.denselayer1.norm1.weight", {64, 1, 1, 1}},
        {"densenet121", "features.denseblock3.denselayer24.conv1.weight", {128, 992, 1, 1}},
        {"densenet121", "features.transition2.conv.weight", {256, 512, 1, 1}},
        {"densenet121", "classifier.weight", {1000, 1024, 1, 1}},
        {"googlenet", "conv1.bn.running_mean", {64, 1, 1, 1}},
        {"googlenet", "inception3a.branch1.conv.weight", {64, 192, 1, 1}},
        {"googlenet", "inception4d.branch3.1.conv.weight", {64, 32, 3, 3}},
        {"googlenet", "inception5b.branch4.1.bn.bias", {128, 1, 1, 1}},
        {"inception-v4", "features.4.branch1.1.conv.weight", {64, 64, 1, 7}},
        {"inception-v4", "features.19.branch2_3b.conv.weight", {256, 512, 3, 1}},
        {"inception-v4", "last_linear.weight", {1000, 1536, 1, 1}},
        {"mobilenet_v2", "features.1.conv.0.0.weight", {32, 1, 3, 3}},
        {"mobilenet_v2", "features.17.conv.3.running_var", {320, 1, 1, 1}},
        {"efficientnet_b0", "features.2.0.block.2.fc1.weight", {4, 96, 1, 1}},
        {"efficientnet_b0", "features.7.0.block.1.0.weight", {1152, 1, 3, 3}},
        {"vit_b_16", "class_token", {1, 1, 768, 1}},
        {"vit_b_16", "encoder.pos_embedding", {1, 197, 768, 1}},
        {"vit_b_16", "encoder.layers.encoder_layer_0.self_attention.in_proj_weight", {2304, 768, 1, 1}},
        {"vit_b_16", "encoder.layers.encoder_layer_11.mlp.0.weight", {3072, 768, 1, 1}},
        {"vit_b_16", "heads.head.bias", {1000, 1, 1, 1}},
        {"fcn8s-vgg16", "upscore8.weight", {21, 21, 16, 16}},
        {"unet", "up4.upconv.weight", {1024, 512, 2, 2}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        nets_net *net = build(known[i].net);
        int param = nets_net_find_param(net, known[i].param);
        if (param < 0) fail_msg("%s has no parameter %s", known[i].net, known[i].param);
        assert_memory_equal(nets_net_param(net, param)->dims, known[i].dims, sizeof known[i].dims);
        nets_net_destroy(net);
    }
}

/* MiB of all layers' outputs but the data, each in its own storage; and of the largest one. */
static void output_sizes(const char *name, int64_t batch, double *sum_out, double *largest_out) {
    nets_net *net = build(name);
    *sum_out = *largest_out = 0;
    for (int i = 1; i < nets_net_layers(net); i++) {
        nets_shape shape;
        assert_int_equal(nets_net_shape(net, i, batch, &shape), MM_OK);
        double mib = (double)nets_shape_elems(&shape) * sizeof(float) / (1 << 20);
        *sum_out += mib;
        *largest_out = mib > *largest_out ? mib : *largest_out;
    }
    nets_net_destroy(net);
}

/* FreeLunch's figures for naive allocation, with the digits given there. Counting every layer's output meets them all:
 * convolutions, ReLUs, normalisations, pools, linear layers, dropouts, and the probabilities (without which AlexNet's
 * would be 940.1), but not the images. */
TEST_CASE(outputs_take_what_freelunch_says) {
    double sum, largest;
    output_sizes("alexnet-2012", 128, &sum, &largest);
    assert_true(fabs(sum - 940.5) < 0.05);
    assert_true(fabs(largest - 141.8) < 0.05);
    output_sizes("resnet152@227", 24, &sum, &largest);
    assert_true(fabs(largest - 76.15) < 0.005);
}

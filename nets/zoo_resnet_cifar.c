#include <stdio.h>

#include "nets/zoo.h"

typedef struct block_name {
    char text[32]; /* "layer3.199" */
} block_name;

typedef struct layer_name {
    char text[NETS_NAME_CAPACITY];
} layer_name;

static layer_name in_block(const block_name *block, const char *suffix) {
    layer_name name;
    snprintf(name.text, sizeof name.text, "%.31s.%.31s", block->text, suffix);
    return name;
}

static int conv(nets_net *net, const char *name, int64_t channels, int64_t kernel, int64_t stride, int input) {
    int64_t pad = kernel / 2;
    return nets_add1(
        net, name, NETS_CONV,
        &(nets_attrs){
            .out_channels = channels, .kernel = {kernel, kernel}, .stride = {stride, stride}, .pad = {pad, pad}},
        input);
}

static int basic_block(nets_net *net, const block_name *name, int64_t channels, int64_t stride, bool project,
                       int input) {
    int x = conv(net, in_block(name, "conv1").text, channels, 3, stride, input);
    x = nets_add1(net, in_block(name, "bn1").text, NETS_BATCH_NORM, NULL, x);
    x = nets_add1(net, in_block(name, "relu1").text, NETS_RELU, NULL, x);
    x = conv(net, in_block(name, "conv2").text, channels, 3, 1, x);
    x = nets_add1(net, in_block(name, "bn2").text, NETS_BATCH_NORM, NULL, x);
    int shortcut = input;
    if (project) {
        shortcut = conv(net, in_block(name, "downsample.0").text, channels, 1, stride, input);
        shortcut = nets_add1(net, in_block(name, "downsample.1").text, NETS_BATCH_NORM, NULL, shortcut);
    }
    x = nets_add(net, in_block(name, "add").text, NETS_ADD, NULL, (const int[]){x, shortcut}, 2);
    return nets_add1(net, in_block(name, "relu2").text, NETS_RELU, NULL, x);
}

void nets_build_resnet_cifar(nets_net *net, int blocks_per_stage) {
    int x = nets_add_data(net, 32, 32, 3, 10);
    x = conv(net, "conv1", 16, 3, 1, x);
    x = nets_add1(net, "bn1", NETS_BATCH_NORM, NULL, x);
    x = nets_add1(net, "relu", NETS_RELU, NULL, x);
    for (int stage = 0; stage < 3; stage++) {
        for (int block = 0; block < blocks_per_stage; block++) {
            block_name name;
            snprintf(name.text, sizeof name.text, "layer%d.%d", stage + 1, block);
            bool narrows = stage > 0 && block == 0;
            x = basic_block(net, &name, 16 << stage, narrows ? 2 : 1, narrows, x);
        }
    }
    x = nets_add1(net, "avgpool", NETS_GLOBAL_AVG_POOL, NULL, x);
    x = nets_add1(net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 10, .bias = true}, x);
    nets_add1(net, "loss", NETS_LOSS, NULL, x);
}

/* SPDX-License-Identifier: MIT */
/* DenseNets for ImageNet, Huang et al. 2016, as torchvision's: growth 32, bottlenecks of four times the growth. A
 * layer's input is the concatenation of all outputs before it in its block. Each concatenation has two inputs, the one
 * before it and the layer's output, which gives the same map as joining all outputs again. */
#include "nets/zoo/layers.h"

enum { GROWTH = 32, BOTTLENECK = 4 };

static int norm_relu_conv(const zoo *z, const char *layer, int i, int64_t channels, zoo_window window, int input) {
    int x = zoo_batch_norm(z, zoo_namef("%s.norm%d", layer, i).text, input);
    x = zoo_relu(z, zoo_namef("%s.relu%d", layer, i).text, x);
    return zoo_conv_bare(z, zoo_namef("%s.conv%d", layer, i).text, channels, window, x);
}

static int dense_block(const zoo *z, int index, int layers, int input) {
    int all = input;
    for (int i = 1; i <= layers; i++) {
        const zoo_name layer = zoo_namef("features.denseblock%d.denselayer%d", index, i);
        int x = norm_relu_conv(z, layer.text, 1, BOTTLENECK * GROWTH, (zoo_window){1, 1, 0}, all);
        x = norm_relu_conv(z, layer.text, 2, GROWTH, (zoo_window){3, 1, 1}, x);
        all = zoo_concat(z, zoo_namef("%s.cat", layer.text).text, (const int[]){all, x}, 2);
    }
    return all;
}

static int transition(const zoo *z, int index, int64_t channels, int input) {
    const zoo_name name = zoo_namef("features.transition%d", index);
    int x = zoo_batch_norm(z, zoo_namef("%s.norm", name.text).text, input);
    x = zoo_relu(z, zoo_namef("%s.relu", name.text).text, x);
    x = zoo_conv_bare(z, zoo_namef("%s.conv", name.text).text, channels, (zoo_window){1, 1, 0}, x);
    return nets_add1(z->net, zoo_namef("%s.pool", name.text).text, NETS_AVG_POOL, &(nets_attrs){.kernel = {2, 2}}, x);
}

void zoo_build_densenet(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    int64_t channels = 2 * GROWTH;
    int x = zoo_data(z, 3);
    x = zoo_conv_bare(z, "features.conv0", channels, (zoo_window){7, 2, 3}, x);
    x = zoo_relu(z, "features.relu0", zoo_batch_norm(z, "features.norm0", x));
    x = zoo_max_pool(z, "features.pool0", (zoo_window){3, 2, 1}, x);
    for (int block = 0; numbers[block]; block++) {
        x = dense_block(z, block + 1, numbers[block], x);
        channels += (int64_t)numbers[block] * GROWTH;
        if (numbers[block + 1]) x = transition(z, block + 1, channels /= 2, x);
    }
    x = zoo_relu(z, "relu", zoo_batch_norm(z, "features.norm5", x));
    zoo_classify(z, "classifier", zoo_global_pool(z, "avgpool", x));
}

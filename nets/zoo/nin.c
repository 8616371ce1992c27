/* SPDX-License-Identifier: MIT */
/* Network in network, Lin, Chen and Yan 2013: each convolution is followed by two of 1x1 ("cccp"); the scores are a
 * channel for each class, averaged over the whole map. Layers are named as in the authors' Caffe models, nin_imagenet
 * and cifar10_nin; pools round up as Caffe does. */
#include "nets/zoo/layers.h"

static int conv_relu(const zoo *z, const char *name, int64_t channels, zoo_window window, int input) {
    return zoo_relu(z, zoo_namef("relu_%s", name).text, zoo_conv(z, name, channels, window, input));
}

/* A convolution and the two of 1x1 that follow it, cccp<first> and the next, of n1 and n2 channels. */
static int mlp_conv(const zoo *z, const char *name, int64_t channels, zoo_window window, int first, int64_t n1,
                    int64_t n2, int input) {
    const zoo_window point = {1, 1, 0};
    int x = conv_relu(z, name, channels, window, input);
    x = conv_relu(z, zoo_namef("cccp%d", first).text, n1, point, x);
    return conv_relu(z, zoo_namef("cccp%d", first + 1).text, n2, point, x);
}

/* One channel for each class, whatever `thin` is. */
static void classify(const zoo *z, const char *name, int input) {
    const nets_attrs attrs = {.out_channels = z->classes, .kernel = {1, 1}, .bias = true};
    int x = nets_add1(z->net, name, NETS_CONV, &attrs, input);
    x = zoo_relu(z, zoo_namef("relu_%s", name).text, x);
    zoo_loss(z, zoo_global_pool(z, "pool", x));
}

void zoo_build_nin(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    (void)numbers;
    const zoo_window pool = {3, 2, 0};
    int x = zoo_data(z, 3);
    x = mlp_conv(z, "conv1", 96, (zoo_window){11, 4, 0}, 1, 96, 96, x);
    x = zoo_max_pool_ceil(z, "pool1", pool, x);
    x = mlp_conv(z, "conv2", 256, (zoo_window){5, 1, 2}, 3, 256, 256, x);
    x = zoo_max_pool_ceil(z, "pool2", pool, x);
    x = mlp_conv(z, "conv3", 384, (zoo_window){3, 1, 1}, 5, 384, 384, x);
    x = zoo_dropout(z, "drop", 0.5f, zoo_max_pool_ceil(z, "pool3", pool, x));
    x = conv_relu(z, "conv4", 1024, (zoo_window){3, 1, 1}, x);
    x = conv_relu(z, "cccp7", 1024, (zoo_window){1, 1, 0}, x);
    classify(z, "cccp8", x);
}

void zoo_build_nin_cifar(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    (void)numbers;
    int x = zoo_data(z, 3);
    x = mlp_conv(z, "conv1", 192, (zoo_window){5, 1, 2}, 1, 160, 96, x);
    x = zoo_dropout(z, "drop1", 0.5f, zoo_max_pool_ceil(z, "pool1", (zoo_window){3, 2, 0}, x));
    x = mlp_conv(z, "conv2", 192, (zoo_window){5, 1, 2}, 3, 192, 192, x);
    x = nets_add1(z->net, "pool2", NETS_AVG_POOL, &(nets_attrs){.kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = true},
                  x);
    x = zoo_dropout(z, "drop2", 0.5f, x);
    x = conv_relu(z, "conv3", 192, (zoo_window){3, 1, 1}, x);
    x = conv_relu(z, "cccp5", 192, (zoo_window){1, 1, 0}, x);
    classify(z, "cccp6", x);
}

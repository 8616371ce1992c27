/* SPDX-License-Identifier: MIT */
/* SqueezeNet 1.0, Iandola et al. 2016, as torchvision's: fire modules squeeze to few channels, then expand with 1x1 and
 * 3x3 convolutions side by side; the scores are a channel for each class, averaged over the whole map. */
#include "nets/zoo/layers.h"

static int conv_relu(const zoo *z, const char *fire, const char *name, int64_t channels, int64_t kernel, int input) {
    const zoo_window window = {kernel, 1, kernel / 2};
    int x = zoo_conv(z, zoo_namef("%s.%s", fire, name).text, channels, window, input);
    return zoo_relu(z, zoo_namef("%s.%s_activation", fire, name).text, x);
}

static int fire(const zoo *z, int index, int64_t squeeze, int64_t expand, int input) {
    const zoo_name name = zoo_namef("features.%d", index);
    int x = conv_relu(z, name.text, "squeeze", squeeze, 1, input);
    const int expanded[2] = {conv_relu(z, name.text, "expand1x1", expand, 1, x),
                             conv_relu(z, name.text, "expand3x3", expand, 3, x)};
    return zoo_concat(z, zoo_namef("%s.cat", name.text).text, expanded, 2);
}

void zoo_build_squeezenet(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    (void)numbers;
    const zoo_window pool = {3, 2, 0};
    int x = zoo_data(z, 3);
    x = zoo_relu(z, "features.1", zoo_conv(z, "features.0", 96, (zoo_window){7, 2, 0}, x));
    x = zoo_max_pool_ceil(z, "features.2", pool, x);
    x = fire(z, 3, 16, 64, x);
    x = fire(z, 4, 16, 64, x);
    x = fire(z, 5, 32, 128, x);
    x = zoo_max_pool_ceil(z, "features.6", pool, x);
    x = fire(z, 7, 32, 128, x);
    x = fire(z, 8, 48, 192, x);
    x = fire(z, 9, 48, 192, x);
    x = fire(z, 10, 64, 256, x);
    x = zoo_max_pool_ceil(z, "features.11", pool, x);
    x = fire(z, 12, 64, 256, x);
    x = zoo_dropout(z, "classifier.0", 0.5f, x);
    const nets_attrs classes = {.out_channels = z->classes, .kernel = {1, 1}, .bias = true};
    x = zoo_relu(z, "classifier.2", nets_add1(z->net, "classifier.1", NETS_CONV, &classes, x));
    zoo_loss(z, zoo_global_pool(z, "classifier.3", x));
}

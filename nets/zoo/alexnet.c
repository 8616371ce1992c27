/* SPDX-License-Identifier: MIT */
/* AlexNet twice.
 *
 * alexnet: torchvision's, after Krizhevsky's "One weird trick" (2014): no groups, no normalisation, 224x224.
 * alexnet-2012: Krizhevsky, Sutskever and Hinton 2012, as it was trained on two devices: grouped convolutions, local
 * response normalisation after the first two ReLUs and before their pools, overlapping pools, 227x227. Layers are named
 * as in Caffe's bvlc_alexnet. */
#include "nets/zoo/layers.h"

static const zoo_window POOL = {3, 2, 0};

void zoo_build_alexnet(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    (void)numbers;
    int x = zoo_data(z, 3);
    x = zoo_relu(z, "features.1", zoo_conv(z, "features.0", 64, (zoo_window){11, 4, 2}, x));
    x = zoo_max_pool(z, "features.2", POOL, x);
    x = zoo_relu(z, "features.4", zoo_conv(z, "features.3", 192, (zoo_window){5, 1, 2}, x));
    x = zoo_max_pool(z, "features.5", POOL, x);
    x = zoo_relu(z, "features.7", zoo_conv(z, "features.6", 384, (zoo_window){3, 1, 1}, x));
    x = zoo_relu(z, "features.9", zoo_conv(z, "features.8", 256, (zoo_window){3, 1, 1}, x));
    x = zoo_relu(z, "features.11", zoo_conv(z, "features.10", 256, (zoo_window){3, 1, 1}, x));
    x = zoo_max_pool(z, "features.12", POOL, x);
    x = zoo_dropout(z, "classifier.0", 0.5f, x);
    x = zoo_relu(z, "classifier.2", zoo_linear(z, "classifier.1", 4096, x));
    x = zoo_dropout(z, "classifier.3", 0.5f, x);
    x = zoo_relu(z, "classifier.5", zoo_linear(z, "classifier.4", 4096, x));
    zoo_classify(z, "classifier.6", x);
}

static int grouped(const zoo *z, const char *name, int64_t channels, zoo_window window, int input) {
    return zoo_layer(z, name, NETS_CONV,
                     (nets_attrs){.out_channels = channels,
                                  .kernel = {window.kernel, window.kernel},
                                  .pad = {window.pad, window.pad},
                                  .groups = 2,
                                  .bias = true},
                     input);
}

/* LRN with Caffe's constants: k = 1, and alpha is divided by the window's size (the paper has k = 2 and does not
 * divide). */
static int normalise(const zoo *z, const char *name, int input) {
    return nets_add1(z->net, name, NETS_LRN, &(nets_attrs){.size = 5, .alpha = 1e-4f, .beta = 0.75f, .k = 1}, input);
}

void zoo_build_alexnet_2012(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    (void)numbers;
    int x = zoo_data(z, 3);
    x = zoo_relu(z, "relu1", zoo_conv(z, "conv1", 96, (zoo_window){11, 4, 0}, x));
    x = zoo_max_pool(z, "pool1", POOL, normalise(z, "norm1", x));
    x = zoo_relu(z, "relu2", grouped(z, "conv2", 256, (zoo_window){5, 1, 2}, x));
    x = zoo_max_pool(z, "pool2", POOL, normalise(z, "norm2", x));
    x = zoo_relu(z, "relu3", zoo_conv(z, "conv3", 384, (zoo_window){3, 1, 1}, x));
    x = zoo_relu(z, "relu4", grouped(z, "conv4", 384, (zoo_window){3, 1, 1}, x));
    x = zoo_relu(z, "relu5", grouped(z, "conv5", 256, (zoo_window){3, 1, 1}, x));
    x = zoo_max_pool(z, "pool5", POOL, x);
    x = zoo_dropout(z, "drop6", 0.5f, zoo_relu(z, "relu6", zoo_linear(z, "fc6", 4096, x)));
    x = zoo_dropout(z, "drop7", 0.5f, zoo_relu(z, "relu7", zoo_linear(z, "fc7", 4096, x)));
    zoo_classify(z, "fc8", x);
}

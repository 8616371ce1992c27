/* SPDX-License-Identifier: MIT */
/* Simonyan and Zisserman 2014, as torchvision's without batch norm: five groups of 3x3 convolutions on 64, 128, 256,
 * 512 and 512 channels with a pool after each, three linear layers.
 *
 * VGG-101, a network of the moDNN paper, is our reading: vDNN makes VGG-116 to VGG-416 from VGG-16 by adding the same
 * number of convolutions to each of the five groups; 17 more in each group give 98 convolutions and three linear
 * layers. */
#include "nets/zoo/layers.h"

void zoo_build_vgg(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    int x = zoo_data(z, 3), at = 0; /* `at`: torchvision numbers all layers of its "features" in a row */
    for (int group = 0; numbers[group]; group++) {
        for (int i = 0; i < numbers[group]; i++) {
            int64_t channels = group < 3 ? 64 << group : 512;
            x = zoo_conv(z, zoo_namef("features.%d", at++).text, channels, (zoo_window){3, 1, 1}, x);
            x = zoo_relu(z, zoo_namef("features.%d", at++).text, x);
        }
        x = zoo_max_pool(z, zoo_namef("features.%d", at++).text, (zoo_window){2, 2, 0}, x);
    }
    x = zoo_relu(z, "classifier.1", zoo_linear(z, "classifier.0", 4096, x));
    x = zoo_dropout(z, "classifier.2", 0.5f, x);
    x = zoo_relu(z, "classifier.4", zoo_linear(z, "classifier.3", 4096, x));
    x = zoo_dropout(z, "classifier.5", 0.5f, x);
    zoo_classify(z, "classifier.6", x);
}

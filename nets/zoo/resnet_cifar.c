/* SPDX-License-Identifier: MIT */
/* He et al. 2016, section 4.2: ResNets for CIFAR's 32x32x3, three stages of n blocks on 16, 32, 64 channels.
 *
 * Basic blocks: depth 6n + 2. Where the shape changes the shortcut is a 1x1 convolution with batch norm (their option
 * B), named downsample.0 and downsample.1 as torchvision does: it needs no padding of channels, and 2752 more
 * parameters than their option A.
 *
 * Bottlenecks (the same authors' "Identity mappings in deep residual networks", 2016): depth 9n + 2, with four times
 * the channels between blocks; here with the activation after the sum, as in all networks of this zoo. All three stages
 * begin with a projection; if those are counted too, the depth is 9n + 5. Of the depths that the Gist paper trains, 509
 * (n = 56) and 851 (n = 94) are neither 6n + 2 nor 9n + 2, but both are 9n + 5, so we take them for that. (1202 is 9n +
 * 5, too, with n = 133: that is cifar-resnet-bottleneck1199 here, while resnet1202 is the 6n + 2 of He et al.) */
#include "nets/zoo/layers.h"

static int stem(const zoo *z) {
    int x = zoo_conv_bare(z, "conv1", 16, (zoo_window){3, 1, 1}, zoo_data(z, 3));
    return zoo_relu(z, "relu", zoo_batch_norm(z, "bn1", x));
}

static void head(const zoo *z, int x) { zoo_classify(z, "fc", zoo_global_pool(z, "avgpool", x)); }

void zoo_build_resnet_cifar(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    int x = stem(z);
    for (int stage = 0; stage < 3; stage++)
        for (int i = 0; i < numbers[0]; i++) {
            bool narrows = stage > 0 && i == 0;
            x = zoo_basic_block(z, zoo_namef("layer%d.%d", stage + 1, i).text, 16 << stage, narrows ? 2 : 1, narrows,
                                x);
        }
    head(z, x);
}

void zoo_build_resnet_cifar_bottleneck(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    int x = stem(z);
    for (int stage = 0; stage < 3; stage++)
        for (int i = 0; i < numbers[0]; i++)
            x = zoo_bottleneck(z, zoo_namef("layer%d.%d", stage + 1, i).text, 16 << stage, stage && !i ? 2 : 1, !i, x);
    head(z, x);
}

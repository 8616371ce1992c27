/* SPDX-License-Identifier: MIT */
/* He et al. 2016, table 1: ResNets for ImageNet, as torchvision's: stages of 64, 128, 256, ... channels, the stride of
 * a bottleneck in its 3x3 convolution, a projection where a stage's shape differs from the one before. ResNet-256's
 * stages of 3, 16, 62 and 3 bottlenecks make 254 layers as He et al. count. */
#include "nets/zoo/layers.h"

static int shortcut(const zoo *z, const char *block, int64_t channels, int64_t stride, int input) {
    int x = zoo_conv_bare(z, zoo_namef("%s.downsample.0", block).text, channels, (zoo_window){1, stride, 0}, input);
    return zoo_batch_norm(z, zoo_namef("%s.downsample.1", block).text, x);
}

/* The block's i-th convolution with its batch norm. */
static int conv_norm(const zoo *z, const char *block, int i, int64_t channels, zoo_window window, int input) {
    int x = zoo_conv_bare(z, zoo_namef("%s.conv%d", block, i).text, channels, window, input);
    return zoo_batch_norm(z, zoo_namef("%s.bn%d", block, i).text, x);
}

static int relu(const zoo *z, const char *block, int i, int input) {
    return zoo_relu(z, zoo_namef("%s.relu%d", block, i).text, input);
}

int zoo_basic_block(const zoo *z, const char *name, int64_t channels, int64_t stride, bool project, int input) {
    int x = conv_norm(z, name, 1, channels, (zoo_window){3, stride, 1}, input);
    x = relu(z, name, 1, x);
    x = conv_norm(z, name, 2, channels, (zoo_window){3, 1, 1}, x);
    int past = project ? shortcut(z, name, channels, stride, input) : input;
    return relu(z, name, 2, zoo_add(z, zoo_namef("%s.add", name).text, x, past));
}

int zoo_bottleneck(const zoo *z, const char *name, int64_t channels, int64_t stride, bool project, int input) {
    int x = conv_norm(z, name, 1, channels, (zoo_window){1, 1, 0}, input);
    x = relu(z, name, 1, x);
    x = conv_norm(z, name, 2, channels, (zoo_window){3, stride, 1}, x);
    x = relu(z, name, 2, x);
    x = conv_norm(z, name, 3, 4 * channels, (zoo_window){1, 1, 0}, x);
    int past = project ? shortcut(z, name, 4 * channels, stride, input) : input;
    return relu(z, name, 3, zoo_add(z, zoo_namef("%s.add", name).text, x, past));
}

typedef int block_builder(const zoo *z, const char *name, int64_t channels, int64_t stride, bool project, int input);

/* `first_projects`: whether the first stage's blocks give more channels than the stem. */
static void build(const zoo *z, const int blocks[ZOO_NUMBERS], block_builder *block, bool first_projects) {
    int x = zoo_data(z, 3);
    x = zoo_conv_bare(z, "conv1", 64, (zoo_window){7, 2, 3}, x);
    x = zoo_batch_norm(z, "bn1", x);
    x = zoo_relu(z, "relu", x);
    x = zoo_max_pool(z, "maxpool", (zoo_window){3, 2, 1}, x);
    for (int stage = 0; blocks[stage]; stage++)
        for (int i = 0; i < blocks[stage]; i++)
            x = block(z, zoo_namef("layer%d.%d", stage + 1, i).text, INT64_C(64) << stage, stage && !i ? 2 : 1,
                      !i && (stage || first_projects), x);
    x = zoo_global_pool(z, "avgpool", x);
    zoo_classify(z, "fc", x);
}

void zoo_build_resnet(const zoo *z, const int numbers[ZOO_NUMBERS]) { build(z, numbers, zoo_basic_block, false); }

void zoo_build_resnet_bottleneck(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    build(z, numbers, zoo_bottleneck, true);
}

/* SPDX-License-Identifier: MIT */
/* FCN-8s on VGG-16, Long, Shelhamer and Darrell 2015: a class for each pixel. Layers are named as in the authors' Caffe
 * model voc-fcn8s. VGG's linear layers are convolutions here. Their coarse scores are doubled in size, and the scores
 * of the fourth pool are added; the sum is doubled in size, and the scores of the third pool are added; this second sum
 * is enlarged to the input's size.
 *
 * The first convolution pads by 100, so that the last map is larger than the kernel of fc6 for any input; crops cut all
 * of it off again. Their offsets are the model's: by how much a map extends beyond the one that it is added to. */
#include "nets/zoo/layers.h"

static int group(const zoo *z, int index, int convs, int64_t channels, int64_t first_pad, int x) {
    for (int i = 1; i <= convs; i++) {
        const zoo_window window = {3, 1, i == 1 ? first_pad : 1};
        x = zoo_conv(z, zoo_namef("conv%d_%d", index, i).text, channels, window, x);
        x = zoo_relu(z, zoo_namef("relu%d_%d", index, i).text, x);
    }
    return zoo_max_pool_ceil(z, zoo_namef("pool%d", index).text, (zoo_window){2, 2, 0}, x);
}

static int score(const zoo *z, const char *name, int input) {
    const nets_attrs attrs = {.out_channels = z->classes, .kernel = {1, 1}, .bias = true};
    return nets_add1(z->net, name, NETS_CONV, &attrs, input);
}

/* Enlarges scores `factor` times. */
static int upscore(const zoo *z, const char *name, int64_t factor, int input) {
    const nets_attrs attrs = {
        .out_channels = z->classes, .kernel = {2 * factor, 2 * factor}, .stride = {factor, factor}};
    return nets_add1(z->net, name, NETS_CONV_TRANSPOSE, &attrs, input);
}

static int crop(const zoo *z, const char *name, int64_t offset, int64_t height, int64_t width, int input) {
    const nets_attrs attrs = {.out_size = {height, width}, .offset = {offset, offset}};
    return nets_add1(z->net, name, NETS_CROP, &attrs, input);
}

/* Coarse scores plus the part of a pool's scores that they cover. */
static int fuse(const zoo *z, int pool, int64_t offset, int scores, int coarse) {
    if (coarse < 0) return -1; /* the net has failed before */
    const int64_t *shape = nets_net_layer(z->net, coarse)->shape.dims;
    int cut = crop(z, zoo_namef("score_pool%dc", pool).text, offset, shape[0], shape[1], scores);
    return zoo_add(z, zoo_namef("fuse_pool%d", pool).text, coarse, cut);
}

void zoo_build_fcn8s(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    (void)numbers;
    int x = zoo_data(z, 3);
    x = group(z, 1, 2, 64, 100, x);
    x = group(z, 2, 2, 128, 1, x);
    int pool3 = group(z, 3, 3, 256, 1, x);
    int pool4 = group(z, 4, 3, 512, 1, pool3);
    x = group(z, 5, 3, 512, 1, pool4);
    x = zoo_relu(z, "relu6", zoo_conv(z, "fc6", 4096, (zoo_window){7, 1, 0}, x));
    x = zoo_dropout(z, "drop6", 0.5f, x);
    x = zoo_relu(z, "relu7", zoo_conv(z, "fc7", 4096, (zoo_window){1, 1, 0}, x));
    x = zoo_dropout(z, "drop7", 0.5f, x);
    x = upscore(z, "upscore2", 2, score(z, "score_fr", x));
    x = fuse(z, 4, 5, score(z, "score_pool4", pool4), x);
    x = upscore(z, "upscore_pool4", 2, x);
    x = fuse(z, 3, 9, score(z, "score_pool3", pool3), x);
    x = upscore(z, "upscore8", 8, x);
    zoo_loss(z, crop(z, "score", 31, z->height, z->width, x));
}

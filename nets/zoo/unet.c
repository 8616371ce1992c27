/* SPDX-License-Identifier: MIT */
/* U-Net, Ronneberger, Fischer and Brox 2015, figure 1: one channel of 572x572 in, two classes for each of 388x388
 * pixels out. Convolutions have no padding, so maps of the contracting path are cropped on all sides before the
 * expanding path joins them. Dropout is at the contracting path's end, as in section 3.1. */
#include "nets/zoo/layers.h"

enum { DEPTH = 4, FIRST_CHANNELS = 64 };

/* Two convolutions of 3x3, <path><level>.conv1 and .conv2. */
static int double_conv(const zoo *z, const char *path, int level, int64_t channels, int x) {
    for (int i = 1; i <= 2; i++) {
        x = zoo_conv(z, zoo_namef("%s%d.conv%d", path, level, i).text, channels, (zoo_window){3, 1, 0}, x);
        x = zoo_relu(z, zoo_namef("%s%d.relu%d", path, level, i).text, x);
    }
    return x;
}

/* Doubles the map, halves the channels. */
static int double_size(const zoo *z, int level, int64_t channels, int x) {
    const nets_attrs attrs = {.out_channels = channels, .kernel = {2, 2}, .stride = {2, 2}, .bias = true};
    return zoo_layer(z, zoo_namef("up%d.upconv", level).text, NETS_CONV_TRANSPOSE, attrs, x);
}

void zoo_build_unet(const zoo *z, const int numbers[ZOO_NUMBERS]) {
    (void)numbers;
    int passed[DEPTH]; /* maps for the expanding path */
    int x = zoo_data(z, 1);
    for (int level = 0; level < DEPTH; level++) {
        x = double_conv(z, "down", level + 1, FIRST_CHANNELS << level, x);
        if (level == DEPTH - 1) x = zoo_dropout(z, "down4.dropout", 0.5f, x);
        passed[level] = x;
        x = zoo_max_pool(z, zoo_namef("down%d.pool", level + 1).text, (zoo_window){2, 2, 0}, x);
    }
    x = double_conv(z, "bottom", DEPTH + 1, FIRST_CHANNELS << DEPTH, x);
    x = zoo_dropout(z, "bottom5.dropout", 0.5f, x);
    for (int level = DEPTH - 1; level >= 0; level--) {
        x = double_size(z, level + 1, FIRST_CHANNELS << level, x);
        int cut = zoo_crop(z, zoo_namef("up%d.crop", level + 1).text, passed[level], x);
        x = zoo_concat(z, zoo_namef("up%d.cat", level + 1).text, (const int[]){cut, x}, 2);
        x = double_conv(z, "up", level + 1, FIRST_CHANNELS << level, x);
    }
    const nets_attrs classes = {.out_channels = z->classes, .kernel = {1, 1}, .bias = true};
    zoo_loss(z, nets_add1(z->net, "classes", NETS_CONV, &classes, x));
}

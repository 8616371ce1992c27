/* SPDX-License-Identifier: MIT */
#include "nets/io/reader_augment.h"

#include "nets/io/reader_random.h"

#include <string.h>

void nets_shuffle(uint64_t seed, int64_t epoch, int64_t samples, int32_t *order_out) {
    uint64_t key = nets_random_key(NETS_RANDOM_SHUFFLE, seed, (uint64_t)epoch, 0);
    for (int64_t i = 0; i < samples; i++) order_out[i] = (int32_t)i;
    for (int64_t i = samples - 1; i > 0; i--) {
        uint64_t j = nets_random_below(nets_random_at(key, (uint64_t)i), (uint64_t)i + 1);
        int32_t swapped = order_out[i];
        order_out[i] = order_out[j];
        order_out[j] = swapped;
    }
}

nets_augmentation nets_augmentation_draw(uint64_t seed, int64_t epoch, int64_t sample, int64_t pad) {
    uint64_t key = nets_random_key(NETS_RANDOM_AUGMENT, seed, (uint64_t)epoch, (uint64_t)sample);
    uint64_t corners = 2 * (uint64_t)pad + 1;
    return (nets_augmentation){
        .top = (int64_t)nets_random_below(nets_random_at(key, 0), corners),
        .left = (int64_t)nets_random_below(nets_random_at(key, 1), corners),
        .flip = nets_random_below(nets_random_at(key, 2), 2) == 1,
    };
}

void nets_augmentation_apply(const nets_augmentation *augmentation, int64_t pad, const nets_image_shape *shape,
                             const float *image, float *image_out) {
    int64_t width = shape->width, channels = shape->channels;
    size_t pixel_bytes = (size_t)channels * sizeof(float);
    for (int64_t y = 0; y < shape->height; y++) {
        float *row_out = image_out + y * width * channels;
        int64_t from_y = y + augmentation->top - pad;
        if (from_y < 0 || from_y >= shape->height) {
            memset(row_out, 0, (size_t)width * pixel_bytes);
            continue;
        }
        const float *row = image + from_y * width * channels;
        for (int64_t x = 0; x < width; x++) {
            int64_t from_x = (augmentation->flip ? width - 1 - x : x) + augmentation->left - pad;
            if (from_x < 0 || from_x >= width)
                memset(row_out + x * channels, 0, pixel_bytes);
            else
                memcpy(row_out + x * channels, row + from_x * channels, pixel_bytes);
        }
    }
}

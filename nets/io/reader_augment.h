/* SPDX-License-Identifier: MIT */
/* A training reader's shuffling and augmentation (pad, crop, flip). Pure functions. */
#ifndef NETS_IO_READER_AUGMENT_H
#define NETS_IO_READER_AUGMENT_H

#include "nets/io/reader.h"

/* The order of an epoch: a permutation of 0..samples-1 (Fisher-Yates). */
void nets_shuffle(uint64_t seed, int64_t epoch, int64_t samples, int32_t *order_out);

typedef struct nets_augmentation {
    int64_t top, left; /* the crop's corner in the padded image, 0..2*pad */
    bool flip;
} nets_augmentation;

nets_augmentation nets_augmentation_draw(uint64_t seed, int64_t epoch, int64_t sample, int64_t pad);

/* Pads the normalised image with `pad` zeros (the mean colour) on each side, crops it to its own size, and mirrors that
 * left to right if `flip`. */
void nets_augmentation_apply(const nets_augmentation *augmentation, int64_t pad, const nets_image_shape *shape,
                             const float *image, float *image_out);

#endif

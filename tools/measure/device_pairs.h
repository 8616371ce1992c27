/* SPDX-License-Identifier: MIT */
/* Measures how much kinds of work slow each other on a device. */
#ifndef TOOLS_MEASURE_DEVICE_PAIRS_H
#define TOOLS_MEASURE_DEVICE_PAIRS_H

#include "mm/core/facts/facts.h"
#include "nets/contract/op.h"
#include "pipeline/codec/codec.h"

enum { DEVICE_PAIRS_UNKNOWN = -1, DEVICE_PAIRS_IMAGES = 2048 };

/* Slowdown for each pair, as in mm_contention; DEVICE_PAIRS_UNKNOWN: not measured. */
typedef struct device_pairs {
    int permille[MM_WORK_KINDS][MM_WORK_KINDS];
} device_pairs;

/* Runs a 3x3 convolution (MM_WORK_DEAR), a ReLU (MM_WORK_CHEAP), an encode, a decode, and copies out and in (link),
 * each alone and then each pair beside each other, on streams with the priorities that they have in an iteration. All
 * work on a map of f32 [images][16][16][64], with enough images, up to most_images, that the work takes long enough to
 * time.
 *
 * device: with mm_device_config.timed, or one whose events always have times. backend: of that device. codec: one that
 * device_pairs_takes; NULL: pairs with encode or decode are not measured. Takes about half a second, and at most nine
 * maps of 128 MiB on the device. */
MM_CHECKED mm_status device_pairs_measure(mm_device *device, nets_backend *backend, const mm_codec *codec,
                                          int64_t most_images, device_pairs *pairs_out);

/* Whether the codec can be measured: it gives values, and no code is larger than its map. */
bool device_pairs_takes(const mm_codec *codec);

/* Computes how much two kinds of work slow each other, in permille, 0 to MM_CONTENTION_MOST. alone_ns: the time of each
 * alone; end_ns: when each ends if both begin together. Once the first has ended, the other has the device to
 * itself. */
void device_pairs_slowdowns(const int64_t alone_ns[2], const int64_t end_ns[2], int permille_out[2]);

#endif

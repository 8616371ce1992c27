/* SPDX-License-Identifier: MIT */
/* Measures how much kinds of work slow each other on a device. */
#ifndef TOOLS_MEASURE_DEVICE_PAIRS_H
#define TOOLS_MEASURE_DEVICE_PAIRS_H

#include "mm/core/facts/facts.h"
#include "nets/contract/op.h"
#include "pipeline/codec/codec.h"

enum { DEVICE_PAIRS_UNKNOWN = -1, DEVICE_PAIRS_IMAGES = 2048 };

/* Per pair, as mm_contention; DEVICE_PAIRS_UNKNOWN: not measured. */
typedef struct device_pairs {
    int permille[MM_WORK_KINDS][MM_WORK_KINDS];
} device_pairs;

/* Runs a 3x3 convolution (dear), a ReLU (cheap), an encode, a decode, and copies out and in in turn (link), each alone
 * and each two beside each other on streams of the priorities that they have in an iteration. All are of a map of f32
 * [images][16][16][64]: as many images, at most `most_images`, as make the kinds long enough to be timed.
 *
 * device: with mm_device_config.timed, or one whose events always have times. backend: of that device. codec: NULL: the
 * pairs with encode and decode are not measured; else device_pairs_takes it. Meant to take about half a second, and of
 * the device at most nine maps of 128 MiB. */
MM_CHECKED mm_status device_pairs_measure(mm_device *device, nets_backend *backend, const mm_codec *codec,
                                          int64_t most_images, device_pairs *pairs_out);

/* Whether the codec can be measured: it gives values, and no code is larger than its map. */
bool device_pairs_takes(const mm_codec *codec);

/* Both slowdowns of two kinds of work of which each takes alone_ns alone, and that begin together and end after end_ns.
 * The second to end has the device for itself from the end of the first on. In permille, 0 to MM_CONTENTION_MOST. */
void device_pairs_slowdowns(const int64_t alone_ns[2], const int64_t end_ns[2], int permille_out[2]);

#endif

/* SPDX-License-Identifier: MIT */
/* Key and counter of a packed codec's random rounding, for host and device. */
#ifndef PIPELINE_CODEC_PACKED_PACKED_DRAW_H
#define PIPELINE_CODEC_PACKED_PACKED_DRAW_H

#include <stdint.h>

typedef struct mm_packed_draw {
    uint32_t seed, tensor;
    const int64_t *iteration; /* in device memory, read when the task runs; NULL: iteration 0 */
    int64_t first;            /* index in the tensor of the first element, a multiple of a group's elements */
} mm_packed_draw;

#endif

/* SPDX-License-Identifier: MIT */
/* Values to measure with that resemble those of a feature map. */
#ifndef TOOLS_MEASURE_SMOOTH_H
#define TOOLS_MEASURE_SMOOTH_H

#include <stdint.h>

/* Smooth values, half of them below zero, as after a batch norm; raised to `least` (0: as after a ReLU). */
static inline void smooth_put(float *values, int64_t n, float least) {
    uint32_t state = 1;
    float level = 0;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        level = 0.9f * level + (float)(int32_t)state * 0x1p-31f;
        values[i] = level > least ? level : least;
    }
}

#endif

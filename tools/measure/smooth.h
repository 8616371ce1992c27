/* SPDX-License-Identifier: MIT */
/* Values that are something like a map's, to measure with. */
#ifndef TOOLS_MEASURE_SMOOTH_H
#define TOOLS_MEASURE_SMOOTH_H

#include <stdint.h>

/* Smooth, and half of them below zero, as a batch norm gives them; none below `least`: 0 gives what a ReLU gives. */
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

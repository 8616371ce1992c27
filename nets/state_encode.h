/* SPDX-License-Identifier: MIT */
/* Encodes one element of a state (state_codes.h). Host and CUDA code both include it, and give the same bits. */
#ifndef NETS_STATE_ENCODE_H
#define NETS_STATE_ENCODE_H

#include <math.h>

#include "nets/state_codes.h"

#ifndef NETS_STATE_FUNCTION
#define NETS_STATE_FUNCTION static inline /* .cu files define it with __device__ */
#endif

/* The map's magnitude nearest to a in [0, 1]. `squares`: 1 for the map without signs, else 0. First finds the cell to
 * within one, then compares, so rounding does not matter. */
NETS_STATE_FUNCTION int nets_state_magnitude(const float *above, int squares, float a) {
    int decade = squares;
    float by = 1e6f / 0.9f; /* 10^(6 - i) / 0.9: takes a decade to [1/9, 10/9] */
    decade += a >= 1e-6f, by = a >= 1e-6f ? 1e5f / 0.9f : by;
    decade += a >= 1e-5f, by = a >= 1e-5f ? 1e4f / 0.9f : by;
    decade += a >= 1e-4f, by = a >= 1e-4f ? 1e3f / 0.9f : by;
    decade += a >= 1e-3f, by = a >= 1e-3f ? 1e2f / 0.9f : by;
    decade += a >= 1e-2f, by = a >= 1e-2f ? 1e1f / 0.9f : by;
    decade += a >= 1e-1f, by = a >= 1e-1f ? 1e0f / 0.9f : by;
    const int n = 1 << decade;
    int cell = (int)((a * by - 1 / 9.0f) * (float)n);
    cell = cell < 0 ? 0 : cell;
    cell = cell < n ? cell : n - 1;
    int p = n - squares + cell;
    p += a > above[p];
    p -= a <= above[p - 1];
    return p;
}

/* The code of x, which is absmax at most in magnitude, or NaN. */
NETS_STATE_FUNCTION uint8_t nets_state_encode(const float *above, int squares, float x, float absmax) {
    const float share = absmax > 0 ? x / absmax : 0, magnitude = fabsf(share);
    const int p = nets_state_magnitude(above, squares, magnitude <= 1 ? magnitude : 1);
    if (squares) return (uint8_t)p;
    const int below = p < NETS_STATE_ZERO_SIGNED ? p : NETS_STATE_ZERO_SIGNED;
    return (uint8_t)(share < 0 ? NETS_STATE_ZERO_SIGNED - below : NETS_STATE_ZERO_SIGNED + p);
}

#endif

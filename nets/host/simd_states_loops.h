/* SPDX-License-Identifier: MIT */
/* The loops of simd_states.h. The including file defines TARGET, the attribute of their instruction set, and UPDATE,
 * the function's name. No target uses fused multiply-add, so all round alike. */
#include "nets/host/simd_states.h"

#include <string.h>

TARGET static void decode(const uint8_t *restrict codes, const float *restrict value, float absmax, int n,
                          float *restrict x) {
    for (int i = 0; i < n; i++) x[i] = value[codes[i]] * absmax;
}

/* The largest magnitude; NaN if there is one. Floats without a sign are in the order of their bits, NaN above all. */
TARGET static float find_absmax(const float *x, int n) {
    int32_t most = 0;
    for (int i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    float absmax;
    memcpy(&absmax, &most, sizeof absmax);
    return absmax;
}

/* `squares` is constant in each caller, so the loop has no branch. */
TARGET static inline void encode(const float *restrict x, float absmax, const float *restrict above, int squares, int n,
                                 uint8_t *restrict codes) {
#pragma omp simd
    for (int i = 0; i < n; i++) codes[i] = nets_state_encode(above, squares, x[i], absmax);
}

TARGET static void move(nets_adamw_factors f, float clip, const float *restrict gradient, int n, float *restrict weight,
                        float *restrict average, float *restrict square) {
    for (int i = 0; i < n; i++) weight[i] = nets_adamw_move(f, weight[i], clip * gradient[i], &average[i], &square[i]);
}

TARGET void UPDATE(const nets_state_maps *maps, const nets_update_param *param, nets_adamw_factors f, float clip,
                   int64_t block, int n) {
    float average[NETS_STATE_BLOCK], square[NETS_STATE_BLOCK];
    const int64_t at = block * NETS_STATE_BLOCK;
    decode(param->codes[0] + at, maps->of[0].value, param->absmax[0][block], n, average);
    decode(param->codes[1] + at, maps->of[1].value, param->absmax[1][block], n, square);
    move(f, clip, param->gradient + at, n, param->weight + at, average, square);
    param->absmax[0][block] = find_absmax(average, n);
    param->absmax[1][block] = find_absmax(square, n);
    encode(average, param->absmax[0][block], maps->of[0].above, 0, n, param->codes[0] + at);
    encode(square, param->absmax[1][block], maps->of[1].above, 1, n, param->codes[1] + at);
}

/* SPDX-License-Identifier: MIT */
/* The loops of simd_update.h. The including file defines TARGET, the attribute of their instruction set, and UPDATES,
 * the name of their table. */
#include "nets/host/simd_update.h"

#include <math.h>
#include <string.h>

#include "nets/bf16.h"

TARGET static void move_sgd(const nets_simd_move *by, float *weight, float *const state[NETS_OPTIMIZER_STATES],
                            const float *gradient, int64_t n) {
    const float clip = by->clip, lr = by->lr, keep = by->keep, decay = by->decay;
    float *restrict w = weight, *restrict momentum = state[0];
    const float *restrict g = gradient;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float v = keep * momentum[i] + (clip * g[i] + decay * w[i]);
        momentum[i] = v;
        w[i] -= lr * v;
    }
}

TARGET static void move_plain_sgd(const nets_simd_move *by, float *weight, float *const state[NETS_OPTIMIZER_STATES],
                                  const float *gradient, int64_t n) {
    const float clip = by->clip, lr = by->lr, decay = by->decay;
    float *restrict w = weight;
    const float *restrict g = gradient;
    (void)state;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) w[i] -= lr * (clip * g[i] + decay * w[i]);
}

TARGET static void move_adamw(const nets_simd_move *by, float *weight, float *const state[NETS_OPTIMIZER_STATES],
                              const float *gradient, int64_t n) {
    const nets_adamw_factors f = by->adamw;
    const float clip = by->clip;
    float *restrict w = weight, *restrict average = state[0], *restrict square = state[1];
    const float *restrict g = gradient;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) w[i] = nets_adamw_move(f, w[i], clip * g[i], &average[i], &square[i]);
}

TARGET static void copy_weight(const float *weight, int64_t n, uint16_t *copy) {
    const float *restrict w = weight;
    uint16_t *restrict to = copy;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &w[i], sizeof bits);
        to[i] = nets_bf16_of(bits);
    }
}

/* The loop does not end early, so that only memory limits its speed. */
TARGET static bool overflows(const float *gradient, int64_t n, float most) {
    int32_t bad = 0;
#pragma omp simd reduction(| : bad)
    for (int64_t i = 0; i < n; i++) bad |= !(fabsf(gradient[i]) <= most);
    return bad;
}

const nets_simd_update UPDATES = {
    .move = {[NETS_SGD] = move_sgd,
             [NETS_PLAIN_SGD] = move_plain_sgd,
             [NETS_ADAMW] = move_adamw,
             [NETS_ADAMW_8BIT] = move_adamw /* of parameters without codes */},
    .copy = copy_weight,
    .overflows = overflows,
};
_Static_assert(sizeof UPDATES.move / sizeof *UPDATES.move == NETS_OPTIMIZERS, "an update for each");

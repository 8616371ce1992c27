/* SPDX-License-Identifier: MIT */
/* Vectorised loops of the optimizers' updates on the CPU, compiled for two instruction sets that give the same bits:
 * those of the formulas in plain C (adamw.h; sgd: optimizer.h), since no product is fused with an addition.
 * Internal. */
#ifndef NETS_HOST_SIMD_UPDATE_H
#define NETS_HOST_SIMD_UPDATE_H

#include "nets/adamw.h"

/* The numbers of an update that are the same for all elements of a parameter. */
typedef struct nets_simd_move {
    float clip; /* gradients are multiplied by it */
    float lr, keep, decay;
    nets_adamw_factors adamw;
} nets_simd_move;

/* Updates n elements: weight and states. `weight` and `gradient`, and the states that the optimizer has, are apart. */
typedef void (*nets_simd_update_fn)(const nets_simd_move *by, float *weight, float *const state[NETS_OPTIMIZER_STATES],
                                    const float *gradient, int64_t n);

typedef struct nets_simd_update {
    nets_simd_update_fn move[NETS_OPTIMIZERS];                       /* by nets_optimizer_id */
    void (*copy)(const float *weight, int64_t n, uint16_t *copy);    /* to bf16, rounded (bf16.h) */
    bool (*overflows)(const float *gradient, int64_t n, float most); /* whether one is NaN or above in magnitude */
} nets_simd_update;

extern const nets_simd_update nets_simd_update_portable, nets_simd_update_avx2; /* avx2: on x86-64 only */

/* The loops for the best instruction set of this processor. */
const nets_simd_update *nets_simd_update_best(void);

#endif

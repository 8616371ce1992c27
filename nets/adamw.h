/* SPDX-License-Identifier: MIT */
/* AdamW's formula (optimizer.h) for one element. Host and CUDA code both include it, so the host and the CUDA emulation
 * give the same bits. Elements are computed in float32, the constants of an update in float64. */
#ifndef NETS_ADAMW_H
#define NETS_ADAMW_H

#include <math.h>
#include <stdint.h>

#include "nets/optimizer.h"

#ifndef NETS_ADAMW_FUNCTION
#define NETS_ADAMW_FUNCTION static inline /* .cu files define it with __device__ */
#endif

/* The factors of one update, the same for all elements. */
typedef struct nets_adamw_factors {
    float take1, keep2, take2; /* 1 - beta1, beta2, 1 - beta2 */
    float rate;                /* lr / (1 - beta1^t) */
    float root;                /* 1 / sqrt(1 - beta2^t) */
    float decay, eps;          /* decay: lr * weight_decay */
} nets_adamw_factors;

/* base^exponent, computed by squaring: two libraries' pow() may differ in the last bit. */
NETS_ADAMW_FUNCTION double nets_adamw_power(double base, uint32_t exponent) {
    double power = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1) power *= base;
    return power;
}

/* The constants of the t-th update; t from 1. */
NETS_ADAMW_FUNCTION nets_adamw_factors nets_adamw_factors_at(const nets_optimizer *o, uint32_t t, float lr) {
    nets_adamw_factors f;
    f.take1 = (float)(1 - o->beta1);
    f.keep2 = (float)o->beta2;
    f.take2 = (float)(1 - o->beta2);
    f.rate = (float)((double)lr / (1 - nets_adamw_power(o->beta1, t)));
    f.root = (float)(1 / sqrt(1 - nets_adamw_power(o->beta2, t)));
    f.decay = (float)((double)lr * o->weight_decay);
    f.eps = (float)o->eps;
    return f;
}

/* Returns the new weight, and updates the averages of the gradient and of its square. */
NETS_ADAMW_FUNCTION float nets_adamw_move(nets_adamw_factors f, float weight, float gradient, float *average,
                                          float *square) {
    const float m = *average + f.take1 * (gradient - *average);
    const float v = f.keep2 * *square + f.take2 * gradient * gradient;
    *average = m;
    *square = v;
    return weight - (f.rate * m / (sqrtf(v) * f.root + f.eps) + f.decay * weight);
}

#endif

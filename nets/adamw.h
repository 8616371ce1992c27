/* AdamW's formula for one element (optimizer.h), the same text on every device: it gives the same bits on the host and on
 * CUDA's emulation. float32, but for what all elements of an update have in common. */
#ifndef NETS_ADAMW_H
#define NETS_ADAMW_H

#include <math.h>
#include <stdint.h>

#include "nets/optimizer.h"

#ifndef NETS_ADAMW_FUNCTION
#define NETS_ADAMW_FUNCTION static inline /* kernels call it too, and say so */
#endif

/* Constants of one update. */
typedef struct nets_adamw_factors {
    float take1, keep2, take2; /* 1 - beta1, beta2, 1 - beta2 */
    float rate;                /* lr / (1 - beta1^t) */
    float root;                /* 1 / sqrt(1 - beta2^t) */
    float decay, eps;          /* lr weight_decay */
} nets_adamw_factors;

/* By squaring: no library's pow, since two of them may differ. */
NETS_ADAMW_FUNCTION double nets_adamw_power(double base, uint32_t exponent) {
    double power = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1) power *= base;
    return power;
}

/* Of the t-th update, from 1. */
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

/* The new weight; the averages move. */
NETS_ADAMW_FUNCTION float nets_adamw_move(nets_adamw_factors f, float weight, float gradient, float *average,
                                          float *square) {
    const float m = *average + f.take1 * (gradient - *average);
    const float v = f.keep2 * *square + f.take2 * gradient * gradient;
    *average = m;
    *square = v;
    return weight - (f.rate * m / (sqrtf(v) * f.root + f.eps) + f.decay * weight);
}

#endif

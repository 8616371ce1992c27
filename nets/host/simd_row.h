/* SPDX-License-Identifier: MIT */
/* Vectorised loops over one row of floats on the CPU, compiled for three instruction sets that give the same bits
 * (NaNs' may differ). Internal. Sums are f32 in ROW_LANES lanes, which are added in a fixed order. An output may be an
 * input of the same call. */
#ifndef NETS_HOST_SIMD_ROW_H
#define NETS_HOST_SIMD_ROW_H

#include <stdbool.h>
#include <stdint.h>

/* An activation (nets/activation.h), and dx = dy times its derivative at `at`, the input or the output. */
typedef struct nets_simd_activation {
    void (*value)(const float *x, float slope, int64_t n, float *y);
    void (*gradient)(const float *at, const float *dy, float slope, int64_t n, float *dx);
} nets_simd_activation;

typedef struct nets_simd_row {
    float (*sum)(const float *x, int64_t n);
    float (*dot)(const float *a, const float *b, int64_t n);
    /* The sum of (x - mean)^2. */
    float (*squares)(const float *x, float mean, int64_t n);
    /* The largest. A NaN is passed over, unless it is x[0]: then the result is NaN. */
    float (*top)(const float *x, int64_t n);
    /* y = e^(scale x - shift), or 0 if that is below 2^-126; returns the sum of y. */
    float (*exps)(const float *x, float scale, float shift, int64_t n, float *y);
    void (*scale)(const float *x, float factor, int64_t n, float *y);
    void (*add)(const float *x, int64_t n, float *sum);
    /* y = (x - mean) factor weight + bias; bias NULL: 0 */
    void (*normalise)(const float *x, float mean, float factor, const float *weight, const float *bias, int64_t n,
                      float *y);
    /* With g = dy weight: sums_out = the sums of g and of g (x - mean) factor. Adds dy to dbias, and dy (x - mean)
     * factor to dweight. */
    void (*normalise_sums)(const float *x, float mean, float factor, const float *weight, const float *dy, int64_t n,
                           float *dweight, float *dbias, float sums_out[2]);
    /* dx = factor (g - means[0] - (x - mean) factor means[1]), with g = dy weight */
    void (*normalise_gradient)(const float *x, float mean, float factor, const float *weight, const float *dy,
                               const float means[2], int64_t n, float *dx);
    const nets_simd_activation *activations; /* by nets_activation */
} nets_simd_row;

extern const nets_simd_row nets_simd_row_portable;
extern const nets_simd_row nets_simd_row_avx2, nets_simd_row_avx512; /* on x86-64 only */

#if defined(__x86_64__)
/* The attribute of loops with AVX-512. gcc takes vectors of 256 bits by default. */
#if defined(__clang__)
#define NETS_SIMD_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define NETS_SIMD_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif

/* Whether this processor has the parts of AVX-512 that the loops use. */
static inline bool nets_simd_has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

/* The loops for the best instruction set of this processor. */
const nets_simd_row *nets_simd_row_best(void);

#endif

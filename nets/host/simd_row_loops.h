/* SPDX-License-Identifier: MIT */
/* The loops of simd_row.h. The including file defines TARGET, the attribute of their instruction set, and ROWS, the
 * name of their table. No target uses fused multiply-add, so all round alike. */
#include "nets/host/simd_row.h"

#include <string.h>

enum { ROW_LANES = 16 };

/* ---------------------------------------------------------------- sums */

/* Evaluates the expression for each element i, in lane k = i mod ROW_LANES. */
#define FOR_LANES(expression)                                                                                          \
    for (int64_t at = 0; at < n; at += ROW_LANES) {                                                                    \
        const int64_t m = n - at < ROW_LANES ? n - at : ROW_LANES;                                                     \
        if (m == ROW_LANES) {                                                                                          \
            _Pragma("omp simd") for (int k = 0; k < ROW_LANES; k++) {                                                  \
                const int64_t i = at + k;                                                                              \
                expression;                                                                                            \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int k = 0; k < (int)m; k++) {                                                                         \
                const int64_t i = at + k;                                                                              \
                expression;                                                                                            \
            }                                                                                                          \
        }                                                                                                              \
    }

static inline float joined(float lanes[ROW_LANES]) {
    for (int half = ROW_LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
    return lanes[0];
}

TARGET static float sum(const float *x, int64_t n) {
    float lanes[ROW_LANES] = {0};
    FOR_LANES(lanes[k] += x[i])
    return joined(lanes);
}

TARGET static float dot(const float *a, const float *b, int64_t n) {
    float lanes[ROW_LANES] = {0};
    FOR_LANES(lanes[k] += a[i] * b[i])
    return joined(lanes);
}

TARGET static float squares(const float *x, float mean, int64_t n) {
    float lanes[ROW_LANES] = {0};
    FOR_LANES(const float d = x[i] - mean; lanes[k] += d * d)
    return joined(lanes);
}

TARGET static float top(const float *x, int64_t n) {
    float lanes[ROW_LANES];
    for (int k = 0; k < ROW_LANES; k++) lanes[k] = x[0];
    FOR_LANES(lanes[k] = x[i] > lanes[k] ? x[i] : lanes[k])
    for (int k = 1; k < ROW_LANES; k++) lanes[0] = lanes[k] > lanes[0] ? lanes[k] : lanes[0];
    return lanes[0];
}

/* ---------------------------------------------------------------- e^x */

/* 2^k p(r) with x = k ln 2 + r: Cephes' polynomial (expf.c), within 2 units in the last place. NaN stays NaN. */
TARGET static inline float power_of_e(float x) {
    const float least = -87.33654f, most = 88.37626f, shifter = 12582912.0f; /* 1.5 2^23: rounds when added */
    const float in = x < least ? least : x > most ? most : x;
    const float shifted = in * 1.44269504f + shifter, k = shifted - shifter;
    const float r = (in - k * 0.693359375f) - k * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    uint32_t bits;
    float two_to_k;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u) << 23;
    memcpy(&two_to_k, &bits, sizeof two_to_k);
    return x < least ? 0.0f : p * two_to_k;
}

TARGET static float exps(const float *x, float scale, float shift, int64_t n, float *y) {
    float lanes[ROW_LANES] = {0};
    FOR_LANES(const float e = power_of_e(scale * x[i] - shift); y[i] = e; lanes[k] += e)
    return joined(lanes);
}

/* ---------------------------------------------------------------- element by element */

TARGET static void scale(const float *x, float factor, int64_t n, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor;
}

TARGET static void add(const float *x, int64_t n, float *sum) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

TARGET static void normalise(const float *x, float mean, float factor, const float *weight, const float *bias,
                             int64_t n, float *y) {
    if (bias) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * factor * weight[i] + bias[i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * factor * weight[i];
    }
}

TARGET static void normalise_sums(const float *x, float mean, float factor, const float *weight, const float *dy,
                                  int64_t n, float *dweight, float *dbias, float sums_out[2]) {
    float sum_g[ROW_LANES] = {0}, sum_gx[ROW_LANES] = {0};
    FOR_LANES(const float d = dy[i]; const float normal = (x[i] - mean) * factor; const float g = d * weight[i];
              sum_g[k] += g; sum_gx[k] += g * normal; dweight[i] += d * normal; dbias[i] += d)
    sums_out[0] = joined(sum_g);
    sums_out[1] = joined(sum_gx);
}

TARGET static void normalise_gradient(const float *x, float mean, float factor, const float *weight, const float *dy,
                                      const float means[2], int64_t n, float *dx) {
    const float mean_g = means[0], mean_gx = means[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = factor * (dy[i] * weight[i] - mean_g - (x[i] - mean) * factor * mean_gx);
}

/* ---------------------------------------------------------------- activations */

#define NETS_ACTIVATION_FUNCTION     TARGET static inline
#define NETS_ACTIVATION_EXP(x)       power_of_e(x)
#define NETS_ACTIVATION_DIVIDE(a, b) ((a) / (b))
#include "nets/activation.h"

#define ACTIVATION_LOOPS(NAME, name, OP, BY)                                                                           \
    TARGET static void name##_value(const float *x, float slope, int64_t n, float *y) {                                \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = nets_##name##_value(x[i], slope);                   \
    }                                                                                                                  \
    TARGET static void name##_gradient(const float *at, const float *dy, float slope, int64_t n, float *dx) {          \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * nets_##name##_slope(at[i], slope);         \
    }
NETS_ACTIVATIONS(ACTIVATION_LOOPS)

#define ACTIVATION(NAME, name, OP, BY) {name##_value, name##_gradient},
static const nets_simd_activation ACTIVATIONS[NETS_ACTIVATION_KINDS] = {NETS_ACTIVATIONS(ACTIVATION)};
#undef ACTIVATION

#undef FOR_LANES

const nets_simd_row ROWS = {.sum = sum,
                            .dot = dot,
                            .squares = squares,
                            .top = top,
                            .exps = exps,
                            .scale = scale,
                            .add = add,
                            .normalise = normalise,
                            .normalise_sums = normalise_sums,
                            .normalise_gradient = normalise_gradient,
                            .activations = ACTIVATIONS};

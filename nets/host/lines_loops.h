/* The loops of lines.h. The including file defines TARGET, the attribute of their instruction set, and LINES, the name
 * of their table. The pragmas say that elements do not depend on each other; without them the compiler runs scalar code
 * if an input and an output are the same array. No target fuses products with sums, so all round alike. */
#include "nets/host/lines.h"

static inline int64_t part(int64_t lanes, int64_t rest) { return rest < lanes ? rest : lanes; }

#define FOR_EACH_LANE(expression)                                                                                      \
    for (int64_t at = 0; at < n; at += lanes) {                                                                        \
        int64_t m = part(lanes, n - at);                                                                               \
        _Pragma("omp simd") for (int64_t i = 0; i < m; i++) { expression; }                                            \
    }

/* ---------------------------------------------------------------- sums */

TARGET static void sums(const float *x, const float *from, int64_t n, int64_t lanes, float *sum) {
    for (int64_t i = 0; i < lanes; i++) sum[i] = 0;
    if (from)
        FOR_EACH_LANE(sum[i] += x[at + i] - from[i])
    else
        FOR_EACH_LANE(sum[i] += x[at + i])
}

TARGET static void squares(const float *x, int64_t n, int64_t lanes, const float *mean, float *sum) {
    for (int64_t i = 0; i < lanes; i++) sum[i] = 0;
    FOR_EACH_LANE(float d = x[at + i] - mean[i]; sum[i] += d * d)
}

TARGET static void products(const float *y, const float *dy, const float *x, int64_t n, int64_t lanes,
                            const float *mean, float *g, float *sum_g, float *sum_gx) {
    for (int64_t i = 0; i < lanes; i++) sum_g[i] = sum_gx[i] = 0;
    if (y)
        FOR_EACH_LANE(float passing = dy[at + i]; float p = y[at + i] > 0 ? passing : 0; g[at + i] = p; sum_g[i] += p;
                      sum_gx[i] += p * (x[at + i] - mean[i]))
    else
        FOR_EACH_LANE(sum_g[i] += dy[at + i]; sum_gx[i] += dy[at + i] * (x[at + i] - mean[i]))
}

/* y of one lane. Every loop that computes y's signs from x uses this expression, so they agree. */
#define MAPPED ((x[at + i] - mean[i]) * factor[i] + shift[i])

TARGET static void products_by_x(nets_lanes_map y, const float *dy, const float *x, int64_t n, int64_t lanes,
                                 float *sum_g, float *sum_gx) {
    const float *mean = y.mean, *factor = y.factor, *shift = y.shift;
    for (int64_t i = 0; i < lanes; i++) sum_g[i] = sum_gx[i] = 0;
    FOR_EACH_LANE(float passing = dy[at + i]; float p = MAPPED > 0 ? passing : 0; sum_g[i] += p;
                  sum_gx[i] += p * (x[at + i] - mean[i]))
}

/* ---------------------------------------------------------------- maps */

TARGET static void map(const float *x, const float *x2, int64_t n, int64_t lanes, nets_lanes_map with, bool relu,
                       float *y) {
    const float *mean = with.mean, *factor = with.factor, *shift = with.shift;
    if (relu && x2)
        FOR_EACH_LANE(float v = MAPPED + x2[at + i]; y[at + i] = v < 0 ? 0 : v)
    else if (relu)
        FOR_EACH_LANE(float v = MAPPED; y[at + i] = v < 0 ? 0 : v)
    else
        FOR_EACH_LANE(y[at + i] = MAPPED)
}

TARGET static void add_bias(const float *x, int64_t n, int64_t lanes, const float *bias, bool relu, float *y) {
    if (relu)
        FOR_EACH_LANE(float v = x[at + i] + bias[i]; y[at + i] = v < 0 ? 0 : v)
    else
        FOR_EACH_LANE(y[at + i] = x[at + i] + bias[i])
}

#define GRADIENT(g) ((((g)-mean_g[i]) - (x[at + i] - mean[i]) * slope[i]) * to_x[i])

TARGET static void gradient(const float *g, const float *x, const float *earlier, int64_t n, int64_t lanes,
                            nets_lanes_gradient with, float *dx) {
    const float *mean = with.mean, *to_x = with.factor, *mean_g = with.mean_g, *slope = with.slope;
    if (earlier)
        FOR_EACH_LANE(dx[at + i] = GRADIENT(g[at + i]) + earlier[at + i])
    else
        FOR_EACH_LANE(dx[at + i] = GRADIENT(g[at + i]))
}

TARGET static void gradient_by_x(nets_lanes_map y, const float *dy, const float *x, const float *earlier, int64_t n,
                                 int64_t lanes, nets_lanes_gradient with, float *dx) {
    const float *mean = y.mean, *factor = y.factor, *shift = y.shift;
    const float *to_x = with.factor, *mean_g = with.mean_g, *slope = with.slope;
    if (earlier)
        FOR_EACH_LANE(float passing = dy[at + i]; float p = MAPPED > 0 ? passing : 0;
                      dx[at + i] = GRADIENT(p) + earlier[at + i])
    else
        FOR_EACH_LANE(float passing = dy[at + i]; float p = MAPPED > 0 ? passing : 0; dx[at + i] = GRADIENT(p))
}

#undef GRADIENT
#undef MAPPED
#undef FOR_EACH_LANE

/* ---------------------------------------------------------------- loops without lanes */

/* Each gradient is loaded even if it does not pass: a conditional load cannot be vectorised. */
TARGET static void gate_by_value(const float *y, const float *dy, int64_t n, float *g) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float passing = dy[i];
        g[i] = y[i] > 0 ? passing : 0;
    }
}

TARGET static void gate_by_mask(const uint32_t *mask, const float *dy, int64_t n, float *g) {
    uint32_t bits[32]; /* a table: not every processor can shift each lane by another count */
    for (int k = 0; k < 32; k++) bits[k] = UINT32_C(1) << k;
    for (int64_t i = 0; i + 32 <= n; i += 32) {
        uint32_t word = mask[i / 32];
        const float *in = dy + i;
        float *out = g + i;
#pragma omp simd
        for (int k = 0; k < 32; k++) {
            float passing = in[k];
            out[k] = (word & bits[k]) != 0 ? passing : 0;
        }
    }
    for (int64_t i = n / 32 * 32; i < n; i++) g[i] = mask[i / 32] & bits[i % 32] ? dy[i] : 0;
}

TARGET static void gate(const float *y, const uint32_t *mask, const float *dy, int64_t n, float *g) {
    if (mask)
        gate_by_mask(mask, dy, n, g);
    else
        gate_by_value(y, dy, n, g);
}

TARGET static void rectify(const float *x, int64_t n, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i];
}

TARGET static void add(const float *a, const float *b, int64_t n, float *sum) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] = a[i] + b[i];
}

const nets_lines LINES = {.sums = sums,
                          .squares = squares,
                          .products = products,
                          .products_by_x = products_by_x,
                          .map = map,
                          .add_bias = add_bias,
                          .gradient = gradient,
                          .gradient_by_x = gradient_by_x,
                          .gate = gate,
                          .rectify = rectify,
                          .add = add};

/* SPDX-License-Identifier: MIT */
/* The loops of simd_map.h. The including file defines TARGET, the attribute of their instruction set, LINES, the name
 * of their table, and HALF if the elements are bf16. The pragmas say that elements do not depend on each other; without
 * them the compiler runs scalar code if an input and an output are the same array. No target uses fused multiply-add,
 * so all round alike. */
#include <float.h>
#include <string.h>

#include "nets/host/simd_map.h"

#ifdef HALF
#include "nets/bf16.h"
typedef uint16_t elem;
/* A value above this is above zero when it is rounded to bf16. */
#define LEAST 0x1p-134f

TARGET static inline float wide(elem half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

TARGET static inline elem rounded(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return nets_bf16_of(bits);
}
#else
typedef float elem;
#define LEAST          0
#define wide(value)    (value)
#define rounded(value) (value)
#endif

static inline int64_t part(int64_t lanes, int64_t rest) { return rest < lanes ? rest : lanes; }

#define FOR_EACH_LANE(expression)                                                                                      \
    for (int64_t at = 0; at < n; at += lanes) {                                                                        \
        int64_t m = part(lanes, n - at);                                                                               \
        _Pragma("omp simd") for (int64_t i = 0; i < m; i++) { expression; }                                            \
    }

/* ---------------------------------------------------------------- sums */

TARGET static void sums(const void *map_x, const float *from, int64_t n, int64_t lanes, float *sum) {
    const elem *x = map_x;
    for (int64_t i = 0; i < lanes; i++) sum[i] = 0;
    if (from)
        FOR_EACH_LANE(sum[i] += wide(x[at + i]) - from[i])
    else
        FOR_EACH_LANE(sum[i] += wide(x[at + i]))
}

/* Some lines at once, whose sums are in registers: x is in the cache. From memory that would be slower. */
TARGET static void squares(const void *map_x, int64_t n, int64_t lanes, const float *mean, float *sum) {
    enum { LINES_AT_ONCE = 4 };
    const elem *x = map_x;
    int64_t first = 0;
    for (int64_t i = 0; i < lanes; i++) sum[i] = 0;
    for (; first + LINES_AT_ONCE * lanes <= n; first += LINES_AT_ONCE * lanes)
#pragma omp simd
        for (int64_t i = 0; i < lanes; i++) {
            float s = sum[i];
            for (int line = 0; line < LINES_AT_ONCE; line++) {
                const float d = wide(x[first + line * lanes + i]) - mean[i];
                s += d * d;
            }
            sum[i] = s;
        }
    x += first;
    n -= first;
    FOR_EACH_LANE(float d = wide(x[at + i]) - mean[i]; sum[i] += d * d)
}

TARGET static void products(const void *map_y, const void *map_dy, const void *map_x, int64_t n, int64_t lanes,
                            const float *mean, void *map_g, float *sum_g, float *sum_gx) {
    const elem *y = map_y, *dy = map_dy, *x = map_x;
    elem *g = map_g;
    for (int64_t i = 0; i < lanes; i++) sum_g[i] = sum_gx[i] = 0;
    if (y)
        FOR_EACH_LANE(float passing = wide(dy[at + i]); float p = wide(y[at + i]) > 0 ? passing : 0;
                      g[at + i] = rounded(p); sum_g[i] += p; sum_gx[i] += p * (wide(x[at + i]) - mean[i]))
    else
        FOR_EACH_LANE(float p = wide(dy[at + i]); sum_g[i] += p; sum_gx[i] += p * (wide(x[at + i]) - mean[i]))
}

/* y of one lane. Every loop that computes y's signs from x uses this expression, so they agree. */
#define MAPPED ((wide(x[at + i]) - mean[i]) * factor[i] + shift[i])

TARGET static void products_by_x(nets_lanes_map y, const void *map_dy, const void *map_x, int64_t n, int64_t lanes,
                                 float *sum_g, float *sum_gx) {
    const elem *dy = map_dy, *x = map_x;
    const float *mean = y.mean, *factor = y.factor, *shift = y.shift;
    for (int64_t i = 0; i < lanes; i++) sum_g[i] = sum_gx[i] = 0;
    FOR_EACH_LANE(float passing = wide(dy[at + i]); float p = MAPPED > LEAST ? passing : 0; sum_g[i] += p;
                  sum_gx[i] += p * (wide(x[at + i]) - mean[i]))
}

enum { PRODUCTS_AT_ONCE = 32 };

/* Adds up the products of `m` neighbours; a constant number of sums stays in registers. */
#define ADD_PRODUCTS(m)                                                                                                \
    do {                                                                                                               \
        float sum[PRODUCTS_AT_ONCE] = {0};                                                                             \
        for (int64_t r = 0; r < rows; r++)                                                                             \
            for (int64_t t = 0; t < columns; t++) {                                                                    \
                const elem *p = a + r * a_steps.row + t * a_steps.column + at;                                         \
                const elem *q = b + r * b_steps.row + t * b_steps.column + at;                                         \
                _Pragma("omp simd") for (int64_t i = 0; i < (m); i++) sum[i] += wide(p[i]) * wide(q[i]);               \
            }                                                                                                          \
        for (int64_t i = 0; i < (m); i++) sums[at + i] += sum[i];                                                      \
    } while (0)

TARGET static void add_products(const void *map_a, nets_simd_grid a_steps, const void *map_b, nets_simd_grid b_steps,
                                int64_t rows, int64_t columns, int64_t n, float *sums) {
    const elem *a = map_a, *b = map_b;
    for (int64_t at = 0; at < n; at += PRODUCTS_AT_ONCE)
        if (n - at >= PRODUCTS_AT_ONCE)
            ADD_PRODUCTS(PRODUCTS_AT_ONCE);
        else
            ADD_PRODUCTS(n - at);
}
#undef ADD_PRODUCTS

/* ---------------------------------------------------------------- maps */

TARGET static void map(const void *map_x, const void *map_x2, int64_t n, int64_t lanes, nets_lanes_map with, bool relu,
                       void *map_y) {
    const elem *x = map_x, *x2 = map_x2;
    elem *y = map_y;
    const float *mean = with.mean, *factor = with.factor, *shift = with.shift;
    if (relu && x2)
        FOR_EACH_LANE(float v = MAPPED + wide(x2[at + i]); y[at + i] = rounded(v < 0 ? 0 : v))
    else if (relu)
        FOR_EACH_LANE(float v = MAPPED; y[at + i] = rounded(v < 0 ? 0 : v))
    else
        FOR_EACH_LANE(y[at + i] = rounded(MAPPED))
}

TARGET static void add_bias(const void *map_x, int64_t n, int64_t lanes, const float *bias, bool relu, void *map_y) {
    const elem *x = map_x;
    elem *y = map_y;
    if (relu)
        FOR_EACH_LANE(float v = wide(x[at + i]) + bias[i]; y[at + i] = rounded(v < 0 ? 0 : v))
    else
        FOR_EACH_LANE(y[at + i] = rounded(wide(x[at + i]) + bias[i]))
}

#define GRADIENT(g) ((((g)-mean_g[i]) - (wide(x[at + i]) - mean[i]) * slope[i]) * to_x[i])

TARGET static void gradient(const void *map_g, const void *map_x, const void *map_earlier, int64_t n, int64_t lanes,
                            nets_lanes_gradient with, void *map_dx) {
    const elem *g = map_g, *x = map_x, *earlier = map_earlier;
    elem *dx = map_dx;
    const float *mean = with.mean, *to_x = with.factor, *mean_g = with.mean_g, *slope = with.slope;
    if (earlier)
        FOR_EACH_LANE(dx[at + i] = rounded(GRADIENT(wide(g[at + i])) + wide(earlier[at + i])))
    else
        FOR_EACH_LANE(dx[at + i] = rounded(GRADIENT(wide(g[at + i]))))
}

TARGET static void gradient_by_x(nets_lanes_map y, const void *map_dy, const void *map_x, const void *map_earlier,
                                 int64_t n, int64_t lanes, nets_lanes_gradient with, void *map_dx) {
    const elem *dy = map_dy, *x = map_x, *earlier = map_earlier;
    elem *dx = map_dx;
    const float *mean = y.mean, *factor = y.factor, *shift = y.shift;
    const float *to_x = with.factor, *mean_g = with.mean_g, *slope = with.slope;
    if (earlier)
        FOR_EACH_LANE(float passing = wide(dy[at + i]); float p = MAPPED > LEAST ? passing : 0;
                      dx[at + i] = rounded(GRADIENT(p) + wide(earlier[at + i])))
    else
        FOR_EACH_LANE(float passing = wide(dy[at + i]); float p = MAPPED > LEAST ? passing : 0;
                      dx[at + i] = rounded(GRADIENT(p)))
}

#undef GRADIENT
#undef MAPPED
#undef FOR_EACH_LANE

/* ---------------------------------------------------------------- loops without lanes */

/* Each gradient is loaded even if it does not pass: a conditional load cannot be vectorised. */
TARGET static void gate_by_value(const elem *y, const elem *dy, int64_t n, elem *g) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        elem passing = dy[i];
        g[i] = wide(y[i]) > 0 ? passing : 0;
    }
}

TARGET static void gate_by_mask(const uint32_t *mask, const elem *dy, int64_t n, elem *g) {
    uint32_t bits[32]; /* a table: not every processor can shift each lane by another count */
    for (int k = 0; k < 32; k++) bits[k] = UINT32_C(1) << k;
    for (int64_t i = 0; i + 32 <= n; i += 32) {
        uint32_t word = mask[i / 32];
        const elem *in = dy + i;
        elem *out = g + i;
#pragma omp simd
        for (int k = 0; k < 32; k++) {
            elem passing = in[k];
            out[k] = (word & bits[k]) != 0 ? passing : 0;
        }
    }
    for (int64_t i = n / 32 * 32; i < n; i++) g[i] = mask[i / 32] & bits[i % 32] ? dy[i] : 0;
}

TARGET static void gate(const void *y, const uint32_t *mask, const void *dy, int64_t n, void *g) {
    if (mask)
        gate_by_mask(mask, dy, n, g);
    else
        gate_by_value(y, dy, n, g);
}

TARGET static void rectify(const void *map_x, int64_t n, void *map_y) {
    const elem *x = map_x;
    elem *y = map_y;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = wide(x[i]) < 0 ? 0 : x[i];
}

TARGET static void add(const void *map_a, const void *map_b, int64_t n, void *map_sum) {
    const elem *a = map_a, *b = map_b;
    elem *sum = map_sum;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] = rounded(wide(a[i]) + wide(b[i]));
}

TARGET static void add_floats(const void *map_a, const float *b, int64_t n, void *map_sum) {
    const elem *a = map_a;
    elem *sum = map_sum;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] = rounded(wide(a[i]) + b[i]);
}

TARGET static void widen(const void *map_x, int64_t n, float *to) {
    const elem *x = map_x;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = wide(x[i]);
}

TARGET static void narrow(const float *from, int64_t n, void *map_y) {
    elem *y = map_y;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = rounded(from[i]);
}

/* ---------------------------------------------------------------- max pools */

enum { POOLED_AT_ONCE = 32 }; /* channels whose maxima stay in registers */

/* The windows' elements from `from` to below `end` that lie inside the image; window `at` along an axis. */
typedef struct inside {
    int64_t from, end;
} inside;

static inline inside inside_of(const nets_simd_pool *p, int axis, int64_t at) {
    const int64_t first = at * p->stride[axis] - p->pad[axis], left = p->x[axis] - first;
    return (inside){first < 0 ? -first : 0, left < p->kernel[axis] ? left : p->kernel[axis]};
}

/* The windows along an axis that have place `at` of the image. */
static inline inside windows_of(const nets_simd_pool *p, int axis, int64_t at) {
    const int64_t before = at + p->pad[axis] - p->kernel[axis], last = (at + p->pad[axis]) / p->stride[axis];
    return (inside){before < 0 ? 0 : before / p->stride[axis] + 1, last < p->y[axis] ? last + 1 : p->y[axis]};
}

/* Of `m` channels; a constant number of them stays in registers. */
#define MAXIMA(m)                                                                                                      \
    do {                                                                                                               \
        float most[POOLED_AT_ONCE];                                                                                    \
        int32_t place[POOLED_AT_ONCE];                                                                                 \
        for (int64_t i = 0; i < (m); i++) most[i] = -FLT_MAX, place[i] = 0;                                            \
        for (int64_t k = rows.from, first = 1; k < rows.end; k++)                                                      \
            for (int64_t l = columns.from; l < columns.end; l++, first = 0) {                                          \
                const elem *in = x + (window + k * p->x[1] + l) * p->channels + at;                                    \
                const int32_t here = (int32_t)(k * p->kernel[1] + l);                                                  \
                if (first)                                                                                             \
                    _Pragma("omp simd") for (int64_t i = 0; i < (m); i++) most[i] = wide(in[i]), place[i] = here;      \
                else                                                                                                   \
                    _Pragma("omp simd") for (int64_t i = 0; i < (m); i++) {                                            \
                        const float v = wide(in[i]);                                                                   \
                        const int32_t is_more = (v > most[i]) | (v != v);                                              \
                        most[i] = is_more ? v : most[i];                                                               \
                        place[i] = is_more ? here : place[i];                                                          \
                    }                                                                                                  \
            }                                                                                                          \
        _Pragma("omp simd") for (int64_t i = 0; i < (m); i++) y[at + i] = rounded(most[i]);                            \
        if (places) _Pragma("omp simd") for (int64_t i = 0; i < (m); i++) places[at + i] = (uint8_t)place[i];          \
    } while (0)

TARGET static void maxima(const nets_simd_pool *p, const void *map_x, int64_t row, void *map_y, uint8_t *places) {
    const inside rows = inside_of(p, 0, row);
    const elem *x = map_x;
    elem *y = map_y;
    for (int64_t c = 0; c < p->y[1]; c++) {
        const inside columns = inside_of(p, 1, c);
        const int64_t window = (row * p->stride[0] - p->pad[0]) * p->x[1] + c * p->stride[1] - p->pad[1];
        for (int64_t at = 0; at < p->channels; at += POOLED_AT_ONCE)
            if (p->channels - at >= POOLED_AT_ONCE)
                MAXIMA(POOLED_AT_ONCE);
            else
                MAXIMA(p->channels - at);
        y += p->channels;
        if (places) places += p->channels;
    }
}
#undef MAXIMA

#define MAXIMA_GRADIENT(m)                                                                                             \
    do {                                                                                                               \
        float sum[POOLED_AT_ONCE] = {0};                                                                               \
        for (int64_t r = rows.from; r < rows.end; r++)                                                                 \
            for (int64_t c = columns.from; c < columns.end; c++) {                                                     \
                const elem *in = dy + (r * p->y[1] + c) * p->channels + at;                                            \
                const uint8_t *place = places + (r % ring * p->y[1] + c) * p->channels + at;                           \
                const int64_t k = row + p->pad[0] - r * p->stride[0], l = column + p->pad[1] - c * p->stride[1];       \
                const uint8_t here = (uint8_t)(k * p->kernel[1] + l);                                                  \
                _Pragma("omp simd") for (int64_t i = 0; i < (m); i++) {                                                \
                    const float passing = wide(in[i]);                                                                 \
                    sum[i] += place[i] == here ? passing : 0;                                                          \
                }                                                                                                      \
            }                                                                                                          \
        if (earlier)                                                                                                   \
            _Pragma("omp simd") for (int64_t i = 0; i < (m); i++) dx[at + i] =                                         \
                rounded(sum[i] + wide(earlier[at + i]));                                                               \
        else                                                                                                           \
            _Pragma("omp simd") for (int64_t i = 0; i < (m); i++) dx[at + i] = rounded(sum[i]);                        \
    } while (0)

TARGET static void maxima_gradient(const nets_simd_pool *p, const void *map_dy, const uint8_t *places, int64_t ring,
                                   int64_t row, const void *map_earlier, void *map_dx) {
    const inside rows = windows_of(p, 0, row);
    const elem *dy = map_dy, *earlier = map_earlier;
    elem *dx = map_dx;
    for (int64_t column = 0; column < p->x[1]; column++) {
        const inside columns = windows_of(p, 1, column);
        for (int64_t at = 0; at < p->channels; at += POOLED_AT_ONCE)
            if (p->channels - at >= POOLED_AT_ONCE)
                MAXIMA_GRADIENT(POOLED_AT_ONCE);
            else
                MAXIMA_GRADIENT(p->channels - at);
        dx += p->channels;
        if (earlier) earlier += p->channels;
    }
}
#undef MAXIMA_GRADIENT

const nets_simd_map LINES = {.sums = sums,
                             .squares = squares,
                             .products = products,
                             .products_by_x = products_by_x,
                             .add_products = add_products,
                             .map = map,
                             .add_bias = add_bias,
                             .gradient = gradient,
                             .gradient_by_x = gradient_by_x,
                             .gate = gate,
                             .rectify = rectify,
                             .maxima = maxima,
                             .maxima_gradient = maxima_gradient,
                             .add = add,
                             .add_floats = add_floats,
                             .widen = widen,
                             .narrow = narrow};

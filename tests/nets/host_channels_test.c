/* SPDX-License-Identifier: MIT */
/* The host's loops (simd_map.h) and sums over channels (channels.h): every instruction set gives the portable bits;
 * and the accuracy of GELU (nets/activation.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/philox.h"
#include "nets/activation.h"
#include "nets/host/channels.h"
#include "nets/host/simd_row.h"
#include "tests/core/test_case.h"

/* Rows of `lanes` elements: whole vectors or with a rest; `elems` ends within a row, or within a mask's word. */
static const struct {
    int64_t lanes, elems;
} LINES[] = {{256, 256 * 9}, {256, 256 * 4 + 33}, {259, 259 * 3 + 37}, {1, 5}, {24, 7}, {1000, 1000}};
enum { N_LINES = sizeof LINES / sizeof LINES[0], MOST = 4096, N_ARRAYS = 4 };

static void fill(float *out, int64_t n, uint32_t seed) {
    const uint32_t key[2] = {seed, 3};
    for (int64_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 0, 0};
        uint32_t words[4];
        mm_philox(key, counter, words);
        out[i] = (float)((double)words[0] / 2147483648.0 - 1.0);
    }
}

typedef struct arrays {
    float in[N_ARRAYS][MOST], lane[N_ARRAYS][MOST], out[2][MOST];
    uint16_t half[N_ARRAYS][MOST]; /* `in` as bf16 */
    uint32_t mask[MOST / 32];
} arrays;

static arrays *make_arrays(void) {
    arrays *a = calloc(1, sizeof *a);
    assert_non_null(a);
    for (int i = 0; i < N_ARRAYS; i++) {
        fill(a->in[i], MOST, (uint32_t)i + 1);
        fill(a->lane[i], MOST, (uint32_t)i + 11);
    }
    a->in[0][3] = NAN;
    a->in[1][4] = -0.0f;
    for (int i = 0; i < N_ARRAYS; i++) nets_simd_map_bf16_portable.narrow(a->in[i], MOST, a->half[i]);
    for (int i = 0; i < MOST; i++) a->mask[i / 32] |= (uint32_t)(a->in[1][i] > 0) << i % 32;
    return a;
}

/* Overlapping windows, at borders too, over an image of 5 x 6 pixels; less than a block of channels, or several. */
static nets_simd_pool small_pool(int64_t lanes) {
    return (nets_simd_pool){
        .x = {5, 6}, .y = {3, 7}, .kernel = {3, 2}, .stride = {2, 1}, .pad = {1, 1}, .channels = lanes % 67 + 1};
}

/* Runs a loop by its number; false past the last. */
static bool run_loop(const nets_simd_map *l, bool half, int loop, arrays *a, int64_t n, int64_t lanes) {
    const nets_lanes_map by = {a->lane[0], a->lane[1], a->lane[2]};
    const nets_lanes_gradient gradient = {a->lane[0], a->lane[1], a->lane[2], a->lane[3]};
    const void *map[N_ARRAYS];
    for (int i = 0; i < N_ARRAYS; i++) map[i] = half ? (const void *)a->half[i] : a->in[i];
    const void *x = map[0], *y = map[1], *dy = map[2], *more = map[3];
    memset(a->out, 0xff, sizeof a->out);
    switch (loop) {
    case 0:
    case 15:
        l->sums(x, loop == 0 ? NULL : a->lane[0], n, lanes, a->out[0]);
        return true;
    case 1:
        l->squares(x, n, lanes, a->lane[0], a->out[0]);
        return true;
    case 2:
    case 3: {
        float g[MOST];
        l->products(loop == 2 ? y : NULL, dy, x, n, lanes, a->lane[0], g, a->out[0], a->out[1]);
        return true;
    }
    case 4:
    case 5:
    case 6:
        l->map(x, loop == 4 ? more : NULL, n, lanes, by, loop != 6, a->out[0]);
        return true;
    case 7:
    case 8:
        l->add_bias(x, n, lanes, a->lane[0], loop == 7, a->out[0]);
        return true;
    case 9:
    case 10:
        l->gradient(dy, x, loop == 9 ? more : NULL, n, lanes, gradient, a->out[0]);
        return true;
    case 11:
    case 12:
        l->gate(loop == 11 ? y : NULL, loop == 11 ? NULL : a->mask, dy, n, a->out[0]);
        return true;
    case 13:
        l->rectify(x, n, a->out[0]);
        return true;
    case 14:
        l->add(x, dy, n, a->out[0]);
        return true;
    case 16:
        l->products_by_x(by, dy, x, n, lanes, a->out[0], a->out[1]);
        return true;
    case 17:
    case 18:
        l->gradient_by_x(by, dy, x, loop == 17 ? more : NULL, n, lanes, gradient, a->out[0]);
        return true;
    case 19:
        l->add_floats(x, a->in[2], n, a->out[0]);
        return true;
    case 20:
        l->widen(x, n, a->out[0]);
        return true;
    case 21:
        l->narrow(a->in[2], n, a->out[0]);
        return true;
    case 22:
    case 23: {
        const nets_simd_pool pool = small_pool(lanes);
        for (int64_t row = 0; row < pool.y[0]; row++)
            l->maxima(&pool, x, row, a->out[0] + row * 500, loop == 22 ? (uint8_t *)a->out[1] : NULL);
        return true;
    }
    case 24:
    case 25: {
        const nets_simd_pool pool = small_pool(lanes);
        uint8_t places[3 * MOST];
        for (int i = 0; i < 3 * MOST; i++) places[i] = (uint8_t)(i * 7 % 11 % 6);
        for (int64_t row = 0; row < pool.x[0]; row++)
            l->maxima_gradient(&pool, dy, places, 2, row, loop == 24 ? more : NULL, a->out[row % 2]);
        return true;
    }
    default:
        return false;
    }
}

TEST_CASE(every_instruction_set_gives_the_same_bits) {
    arrays *a = make_arrays(), *b = make_arrays();
    if (nets_simd_map_best(MM_F32) == &nets_simd_map_portable) skip();
    for (int i = 0; i < 2 * N_LINES; i++) {
        const bool half = i >= N_LINES;
        const nets_simd_map *portable = half ? &nets_simd_map_bf16_portable : &nets_simd_map_portable;
        const int64_t elems = LINES[i % N_LINES].elems, lanes = LINES[i % N_LINES].lanes;
        const nets_simd_map *const others[] = {
            nets_simd_map_best(half ? MM_BF16 : MM_F32),
#if defined(__x86_64__)
            half ? &nets_simd_map_bf16_avx2 : &nets_simd_map_avx2,
#endif
        };
        for (int loop = 0; run_loop(portable, half, loop, a, elems, lanes); loop++)
            for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
                run_loop(others[k], half, loop, b, elems, lanes);
                if (memcmp(a->out, b->out, sizeof a->out) != 0)
                    fail_msg("loop %d over %d elements by %d lanes", loop, (int)elems, (int)lanes);
            }
    }
    free(a);
    free(b);
}

TEST_CASE(a_gate_by_mask_is_that_by_value_and_lets_no_nan_decide) {
    arrays *a = make_arrays();
    float g[MOST];
    for (int i = 0; i < N_LINES; i++) {
        nets_simd_map_best(MM_F32)->gate(a->in[1], NULL, a->in[2], LINES[i].elems, a->out[0]);
        nets_simd_map_best(MM_F32)->gate(NULL, a->mask, a->in[2], LINES[i].elems, g);
        assert_memory_equal(g, a->out[0], (size_t)LINES[i].elems * sizeof *g);
    }
    nets_simd_map_best(MM_F32)->gate(a->in[0], NULL, a->in[2], 8, g);
    assert_true(g[3] == 0);
    nets_simd_map_best(MM_F32)->rectify(a->in[0], 8, g);
    assert_true(isnan(g[3]));
    free(a);
}

/* rows x channels: less than a vector, less than a chunk, several chunks, one row. */
static const int64_t SHAPES[][2] = {{1, 1}, {1, 300}, {50, 3}, {40000, 1}, {3000, 16}, {70, 515}, {20000, 7}};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0] };

/* Channels with means up to 8000 and deviations of about a half. They drift, so the chunks' means differ. */
static float *drifting(int64_t rows, int64_t channels) {
    float *x = malloc((size_t)(rows * channels) * sizeof *x);
    assert_non_null(x);
    fill(x, rows * channels, 5);
    for (int64_t i = 0; i < rows * channels; i++)
        x[i] += 1000.0f * (float)(i % channels % 9) + (float)(i / channels) / (float)rows;
    return x;
}

TEST_CASE(statistics_are_those_in_double_however_far_from_zero) {
    for (int i = 0; i < N_SHAPES; i++) {
        int64_t rows = SHAPES[i][0], channels = SHAPES[i][1];
        nets_channels ch = nets_channels_of(rows, channels, MM_F32, NULL);
        float *x = drifting(rows, channels), *mean = malloc((size_t)channels * 4), *var = malloc((size_t)channels * 4);
        void *scratch = malloc((size_t)ch.scratch_bytes);
        assert_true(mean && var && scratch);
        nets_channels_statistics(&ch, x, mean, var, scratch);
        for (int64_t c = 0; c < channels; c++) {
            double m = 0, v = 0;
            for (int64_t r = 0; r < rows; r++) m += (double)x[r * channels + c] / (double)rows;
            for (int64_t r = 0; r < rows; r++)
                v += (x[r * channels + c] - m) * (x[r * channels + c] - m) / (double)rows;
            assert_true(fabs((double)mean[c] - m) <= 1e-6 * (1 + fabs(m)));
            assert_true(fabs((double)var[c] - v) <= 1e-5 * v);
        }
        free(scratch);
        free(var);
        free(mean);
        free(x);
    }
}

/* The gradients are the same whether ReLU's zeros are told from x or from y. Odd cases have a NaN. */
TEST_CASE(gradients_told_from_x_are_those_told_from_y) {
    for (int i = 0; i < 2 * N_SHAPES; i++) {
        int64_t rows = SHAPES[i / 2][0], channels = SHAPES[i / 2][1], elems = rows * channels;
        nets_channels ch = nets_channels_of(rows, channels, MM_F32, NULL);
        float *x = drifting(rows, channels), *rest = malloc((size_t)(5 * elems + 8 * channels) * sizeof *rest);
        void *scratch = malloc((size_t)(ch.scratch_bytes + ch.by_x_bytes));
        assert_true(rest && scratch);
        float *y = rest, *dy = y + elems, *earlier = dy + elems, *dx[2] = {earlier + elems, earlier + 2 * elems};
        float *by_channel = dx[1] + elems, *mean = by_channel, *var = mean + channels, *scale = var + channels;
        float *sums[2] = {scale + 2 * channels, scale + 4 * channels};
        fill(dy, 2 * elems, 3);
        fill(scale, 2 * channels, 4);
        nets_channels_statistics(&ch, x, mean, var, scratch);
        if (i % 2) x[elems / 2] = NAN;
        const nets_channels_affine by = {mean, var, scale, scale + channels, 1e-5f};
        const nets_channels_norm norm = {.by = by, .x = x, .relu = true, .y = y};
        nets_channels_normalise(&ch, &norm, scratch);
        for (int by_x = 0; by_x < 2; by_x++) {
            const nets_channels_gradients g = {.by = by,
                                               .relu = true,
                                               .y = by_x ? NULL : y,
                                               .x = x,
                                               .dy = dy,
                                               .earlier = i % 4 < 2 ? earlier : NULL,
                                               .dx = dx[by_x],
                                               .dscale = sums[by_x],
                                               .dshift = sums[by_x] + channels};
            nets_channels_backward(&ch, &g, scratch);
        }
        assert_memory_equal(dx[0], dx[1], (size_t)elems * sizeof *x);
        assert_memory_equal(sums[0], sums[1], 2 * (size_t)channels * sizeof *x);
        free(scratch);
        free(rest);
        free(x);
    }
}

TEST_CASE(a_biass_gradient_is_the_sum_in_double) {
    for (int i = 0; i < N_SHAPES; i++) {
        int64_t rows = SHAPES[i][0], channels = SHAPES[i][1], elems = rows * channels;
        nets_channels ch = nets_channels_of(rows, channels, MM_F32, NULL);
        float *dy = malloc((size_t)elems * 4), *y = malloc((size_t)elems * 4), *sum = malloc((size_t)channels * 4);
        void *scratch = malloc((size_t)(ch.scratch_bytes + ch.chunk_bytes));
        assert_true(dy && y && sum && scratch);
        fill(dy, elems, 1);
        fill(y, elems, 2);
        for (int gated = 0; gated < 2; gated++) {
            const nets_channels_bias b = {.dy = dy, .y = gated ? y : NULL, .dbias = sum};
            nets_channels_bias_backward(&ch, &b, scratch);
            for (int64_t c = 0; c < channels; c++) {
                double exact = 0, size = 0;
                for (int64_t e = c; e < elems; e += channels) {
                    if (gated && !(y[e] > 0)) continue;
                    exact += (double)dy[e];
                    size += fabs((double)dy[e]);
                }
                assert_true(fabs((double)sum[c] - exact) <= 1e-6 * size);
            }
        }
        free(scratch);
        free(sum);
        free(y);
        free(dy);
    }
}

/* Runs a row's loop by its number on n floats; false past the last. */
static bool run_row(const nets_simd_row *l, int loop, const arrays *from, int64_t n, arrays *a) {
    const float *x = from->in[1], *w = from->in[2], *dy = from->in[3], mean = 0.1f, factor = 1.7f;
    float *y = a->out[0], *sums = a->out[1];
    memset(a->out, 0, sizeof a->out);
    if (loop == 0) sums[0] = l->sum(x, n), sums[1] = l->dot(x, w, n), sums[2] = l->squares(x, mean, n);
    if (loop == 1) sums[0] = l->top(x, n), sums[1] = l->exps(x, 2, 0.5f, n, y);
    if (loop == 2) l->scale(x, factor, n, y), l->add(w, n, y);
    if (loop == 3) l->normalise(x, mean, factor, w, dy, n, y);
    if (loop == 4) l->normalise_sums(x, mean, factor, w, dy, n, y, y + MOST / 2, sums);
    if (loop == 5) l->normalise_gradient(x, mean, factor, w, dy, (const float[]){0.2f, 0.3f}, n, y);
    const int activation = loop - 6;
    if (activation < 0) return true;
    if (activation >= NETS_ACTIVATION_KINDS) return false;
    l->activations[activation].value(x, 0.1f, n, y);
    l->activations[activation].gradient(x, dy, 0.1f, n, sums);
    return true;
}

TEST_CASE(every_instruction_set_gives_the_same_bits_of_rows) {
    if (nets_simd_row_best() == &nets_simd_row_portable) skip();
    arrays *from = make_arrays(), *a = make_arrays(), *b = make_arrays();
    const nets_simd_row *const others[] = {
        nets_simd_row_best(),
#if defined(__x86_64__)
        &nets_simd_row_avx2,
#endif
    };
    for (int64_t n = 1; n <= MOST / 2; n = 3 * n + 2)
        for (int loop = 0; run_row(&nets_simd_row_portable, loop, from, n, a); loop++)
            for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
                run_row(others[k], loop, from, n, b);
                if (memcmp(a->out, b->out, sizeof a->out) != 0) fail_msg("loop %d over %d floats", loop, (int)n);
            }
    free(from);
    free(a);
    free(b);
}

/* Also far below 0, where the share is tiny; the density has the same exponential. */
TEST_CASE(gelu_has_the_accuracy_that_it_promises) {
    enum { N = 1 << 16 };
    const nets_simd_activation *gelu = &nets_simd_row_best()->activations[NETS_ACTIVATION_GELU];
    const nets_simd_activation *portable = &nets_simd_row_portable.activations[NETS_ACTIVATION_GELU];
    static float x[N], one[N], y[N], slope[N], other[N];
    const double pi = 3.14159265358979323846;
    for (int i = 0; i < N; i++) x[i] = (float)(26.0 * i / N - 13), one[i] = 1;
    gelu->value(x, 0, N, y);
    gelu->gradient(x, one, 0, N, slope);
    for (int i = 0; i < N; i++) {
        const double at = (double)x[i], share = erfc(-at / sqrt(2)) / 2, value = at * share;
        assert_true(fabs((double)y[i] - value) <= 6e-7 * fabs(value));
        assert_true(fabs((double)slope[i] - share - at * exp(-at * at / 2) / sqrt(2 * pi)) <= 3e-7);
    }
    portable->value(x, 0, N, other);
    assert_memory_equal(other, y, sizeof y);
    portable->gradient(x, one, 0, N, other);
    assert_memory_equal(other, slope, sizeof slope);
    const float far[4] = {NAN, INFINITY, 1e30f, -1e30f};
    gelu->value(far, 0, 4, y);
    assert_true(isnan(y[0]) && isinf(y[1]) && y[2] == far[2] && y[3] == 0);
}

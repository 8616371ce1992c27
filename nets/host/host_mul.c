/* SPDX-License-Identifier: MIT */
/* The product of two maps, or of a map and one number for each image and channel, in own loops, which also work in
 * place. The first map may pass SiLU before (nets_op_desc.silu), in blocks that stay in the fastest cache. Gradients of
 * numbers for each image and channel are sums over an image's pixels: in f32 over SUMMED_ROWS pixels, then over these
 * sums, in order. */
#include <stdlib.h>

#include "nets/activation.h"
#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"
#include "nets/host/simd_row.h"

/* CHANNELS: sums that are worked on at a time. BLOCK: elements that pass SiLU at a time. All are chosen. */
enum { SUMMED_ROWS = 64, CHANNELS = 256, BLOCK = 1024 };

typedef struct mul_op {
    nets_op base;
    mm_host_pool *pool;
    int64_t rows, channels;
    int64_t pixels; /* rows of the first input for each row of the second */
    bool silu;
} mul_op;

/* out = a b (+ earlier) of n elements; out may be any of them. */
static void multiply_span(const float *a, const float *b, const float *earlier, int64_t n, float *out) {
    if (earlier) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) out[i] = a[i] * b[i] + earlier[i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) out[i] = a[i] * b[i];
    }
}

/* The same of rows, where a row of b serves `pixels` rows. */
typedef struct product {
    const float *a, *b, *earlier;
    float *out;
    int64_t pixels, channels;
} product;

static void multiply(const void *ctx, int64_t from, int64_t to) {
    const product *p = ctx;
    const int64_t n = p->channels;
    for (int64_t r = from; r < to; r++) {
        const float *a = p->a + r * n, *b = p->b + r / p->pixels * n;
        multiply_span(a, b, p->earlier ? p->earlier + r * n : NULL, n, p->out + r * n);
    }
}

static void run_product(const mul_op *op, const float *a, const float *b, int64_t pixels, const float *earlier,
                        float *out) {
    const product p = {a, b, earlier, out, pixels, op->channels};
    if (out) nets_ranges(op->pool, op->rows, 1, op->channels, multiply, &p);
}

/* ---------------------------------------------------------------- with SiLU */

typedef struct gated_product {
    const nets_simd_activation *silu;
    const nets_simd_map *lines;
    void *const *at;
} gated_product;

static void gate_forward(const void *ctx, int64_t from, int64_t to) {
    const gated_product *g = ctx;
    const float *x = g->at[NETS_X], *x2 = g->at[NETS_X2];
    float gate[BLOCK];
    for (int64_t i = from, n; i < to; i += n) {
        n = to - i < BLOCK ? to - i : BLOCK;
        g->silu->value(x + i, 0, n, gate);
        multiply_span(gate, x2 + i, NULL, n, (float *)g->at[NETS_Y] + i);
    }
}

/* dx may be dy. */
static void gate_backward(const void *ctx, int64_t from, int64_t to) {
    const gated_product *g = ctx;
    const float *x = g->at[NETS_X], *x2 = g->at[NETS_X2], *dy = g->at[NETS_DY];
    const float *earlier = g->at[NETS_EARLIER], *earlier2 = g->at[NETS_EARLIER2];
    float *dx = g->at[NETS_DX], *dx2 = g->at[NETS_DX2], block[BLOCK];
    for (int64_t i = from, n; i < to; i += n) {
        n = to - i < BLOCK ? to - i : BLOCK;
        g->silu->value(x + i, 0, n, block);
        if (dx2) multiply_span(dy + i, block, earlier2 ? earlier2 + i : NULL, n, dx2 + i);
        if (!dx) continue;
        multiply_span(dy + i, x2 + i, NULL, n, block);
        g->silu->gradient(x + i, block, 0, n, dx + i);
        if (earlier) g->lines->add(dx + i, earlier + i, n, dx + i);
    }
}

static void run_gated(const mul_op *op, nets_range_fn fn, const nets_op_args *args) {
    const gated_product g = {&nets_simd_row_best()->activations[NETS_ACTIVATION_SILU], nets_simd_map_best(MM_F32),
                             args->at};
    nets_ranges(op->pool, op->rows * op->channels, 1, 4, fn, &g);
}

/* ---------------------------------------------------------------- sums over pixels */

typedef struct pixel_sums {
    const mul_op *op;
    const float *x, *dy, *earlier;
    float *out;
} pixel_sums;

static int64_t blocks_of(const mul_op *op) { return (op->channels + CHANNELS - 1) / CHANNELS; }

/* `n` channels of an image, from `first` on. */
static void sum_block(const pixel_sums *s, int64_t image, int64_t first, int64_t n) {
    const int64_t pixels = s->op->pixels, channels = s->op->channels;
    float total[CHANNELS] = {0};
    for (int64_t from = 0; from < pixels; from += SUMMED_ROWS) {
        const int64_t to = from + SUMMED_ROWS < pixels ? from + SUMMED_ROWS : pixels;
        float sum[CHANNELS] = {0};
        for (int64_t r = from; r < to; r++) {
            const int64_t at = (image * pixels + r) * channels + first;
            const float *x = s->x + at, *dy = s->dy + at;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) sum[i] += dy[i] * x[i];
        }
        for (int64_t i = 0; i < n; i++) total[i] += sum[i];
    }
    const int64_t to = image * channels + first;
    for (int64_t i = 0; i < n; i++) s->out[to + i] = total[i] + (s->earlier ? s->earlier[to + i] : 0);
}

static void sum_blocks(const void *ctx, int64_t from, int64_t to) {
    const pixel_sums *s = ctx;
    const int64_t blocks = blocks_of(s->op);
    for (int64_t i = from; i < to; i++) {
        const int64_t first = i % blocks * CHANNELS, rest = s->op->channels - first;
        sum_block(s, i / blocks, first, rest < CHANNELS ? rest : CHANNELS);
    }
}

/* ---------------------------------------------------------------- phases */

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    const mul_op *op = (const mul_op *)base;
    if (op->silu)
        run_gated(op, gate_forward, args);
    else
        run_product(op, args->at[NETS_X], args->at[NETS_X2], op->pixels, NULL, args->at[NETS_Y]);
    return MM_OK;
}

static void give_second(const mul_op *op, const nets_op_args *args) {
    const pixel_sums s = {op, args->at[NETS_X], args->at[NETS_DY], args->at[NETS_EARLIER2], args->at[NETS_DX2]};
    if (op->pixels == 1)
        run_product(op, s.dy, s.x, 1, s.earlier, s.out);
    else if (s.out)
        nets_ranges(op->pool, op->rows / op->pixels * blocks_of(op), 1, op->pixels * CHANNELS, sum_blocks, &s);
}

/* dx may be dy, so it comes last; but if both inputs are one map, the second's gradient is added to the first's. */
static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const mul_op *op = (const mul_op *)base;
    void *const *at = args->at;
    const bool one_map = at[NETS_DX] == at[NETS_DX2];
    if (op->silu) {
        run_gated(op, gate_backward, args);
        return MM_OK;
    }
    if (!one_map) give_second(op, args);
    run_product(op, at[NETS_DY], at[NETS_X2], op->pixels, at[NETS_EARLIER], at[NETS_DX]);
    if (one_map) give_second(op, args);
    return MM_OK;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    mul_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a product");
    *op = (mul_op){.base.impl = &nets_host_op_mul.base,
                   .pool = nets_host_pool(backend),
                   .rows = nets_shape_rows(&desc->x[0]),
                   .channels = nets_shape_channels(&desc->x[0]),
                   .pixels = nets_shape_rows(&desc->x[0]) / nets_shape_rows(&desc->x[1]),
                   .silu = desc->silu};
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_mul =
    NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create, nets_host_free, NULL, run_forward, run_backward);

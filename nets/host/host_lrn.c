/* SPDX-License-Identifier: MIT */
/* Local response normalisation across channels: y = x / s^beta, s = k + alpha / size * (sum of x^2 over a window). Own
 * loops: the backward computes s again from x, while oneDNN saves one or two maps for it.
 *
 *   dx = dy / s^beta - 2 alpha beta / size * x * (sum over the window of dy x / s^(beta + 1))
 *
 * A thread works on a pixel's channels at a time, with these rows in the workspace:
 *
 *   | s^-beta | squares, then the terms of the sums, with half a window of zeros on both sides | sums |
 *
 * A pixel's gradients are written when all its inputs have been read, so results are the same in place or not. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/host/host_ops.h"
#include "nets/host/partition.h"

enum { LEAST_PIXELS = 64 }; /* least pixels of a piece that is worth a thread; chosen */

typedef struct lrn_op {
    nets_op base;
    mm_host_pool *pool;
    nets_cut cut;                   /* cuts the pixels */
    int places;                     /* pieces that are worked on at a time, each with rows of its own */
    int64_t pixels, channels, half; /* how far the window reaches to either side */
    float alpha, beta, k;           /* alpha divided by the window's size */
} lrn_op;

typedef struct lrn_rows {
    float *power, *terms, *sums; /* terms[-half .. channels + half) */
} lrn_rows;

static int64_t place_bytes(const lrn_op *op) {
    return nets_aligned((3 * op->channels + 2 * op->half) * (int64_t)sizeof(float));
}

static lrn_rows rows_of(const lrn_op *op, const nets_op_args *args, int64_t place) {
    float *power = (float *)((char *)args->at[NETS_WORKSPACE] + place * place_bytes(op));
    lrn_rows rows = {power, power + op->channels + op->half, power + 2 * op->channels + 2 * op->half};
    memset(rows.terms - op->half, 0, (size_t)op->half * sizeof(float));
    memset(rows.terms + op->channels, 0, (size_t)op->half * sizeof(float));
    return rows;
}

/* sums[c] = the sum of terms over the window around c. */
static void sum_windows(const lrn_op *op, const lrn_rows *rows) {
    memcpy(rows->sums, rows->terms - op->half, (size_t)op->channels * sizeof(float));
    for (int64_t j = -op->half + 1; j <= op->half; j++) {
        const float *shifted = rows->terms + j;
        float *sums = rows->sums;
#pragma omp simd
        for (int64_t c = 0; c < op->channels; c++) sums[c] += shifted[c];
    }
}

/* power[c] = s^-beta; the sums become s. */
static void normalise(const lrn_op *op, const lrn_rows *rows, const float *x) {
    float *power = rows->power, *s = rows->sums, *squares = rows->terms, alpha = op->alpha, k = op->k;
    int64_t n = op->channels;
#pragma omp simd
    for (int64_t c = 0; c < n; c++) squares[c] = x[c] * x[c];
    sum_windows(op, rows);
    if (op->beta == 0.75f) { /* the usual one, without the power function */
#pragma omp simd
        for (int64_t c = 0; c < n; c++) {
            s[c] = k + alpha * s[c];
            float root = sqrtf(s[c]);
            power[c] = 1 / (root * sqrtf(root));
        }
    } else {
        for (int64_t c = 0; c < n; c++) {
            s[c] = k + alpha * s[c];
            power[c] = powf(s[c], -op->beta);
        }
    }
}

static void forward_pixels(const lrn_op *op, const nets_op_args *args, const lrn_rows *rows, int64_t from, int64_t to) {
    for (int64_t p = from; p < to; p++) {
        const float *x = (const float *)args->at[NETS_X] + p * op->channels, *power = rows->power;
        float *y = (float *)args->at[NETS_Y] + p * op->channels;
        normalise(op, rows, x);
#pragma omp simd
        for (int64_t c = 0; c < op->channels; c++) y[c] = x[c] * power[c];
    }
}

static void backward_pixels(const lrn_op *op, const nets_op_args *args, const lrn_rows *rows, int64_t from,
                            int64_t to) {
    const float factor = 2 * op->alpha * op->beta, *power = rows->power;
    float *terms = rows->terms, *sums = rows->sums;
    for (int64_t p = from; p < to; p++) {
        const float *x = (const float *)args->at[NETS_X] + p * op->channels;
        const float *dy = (const float *)args->at[NETS_DY] + p * op->channels;
        float *dx = (float *)args->at[NETS_DX] + p * op->channels;
        normalise(op, rows, x);
#pragma omp simd
        for (int64_t c = 0; c < op->channels; c++) terms[c] = dy[c] * x[c] * power[c] / sums[c];
        sum_windows(op, rows);
#pragma omp simd
        for (int64_t c = 0; c < op->channels; c++) dx[c] = dy[c] * power[c] - factor * x[c] * sums[c];
    }
}

typedef struct lrn_run {
    const lrn_op *op;
    const nets_op_args *args;
    void (*pixels)(const lrn_op *op, const nets_op_args *args, const lrn_rows *rows, int64_t from, int64_t to);
} lrn_run;

static mm_status run_piece(void *ctx, int64_t piece, int thread) {
    const lrn_run *run = ctx;
    const lrn_op *op = run->op;
    int64_t from = piece * op->cut.each, to = from + op->cut.each;
    const lrn_rows rows = rows_of(op, run->args, op->places == op->cut.pieces ? piece : thread);
    run->pixels(op, run->args, &rows, from, to < op->pixels ? to : op->pixels);
    return MM_OK;
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    lrn_run run = {.op = (const lrn_op *)base, .args = args, .pixels = forward_pixels};
    return mm_host_pool_run(run.op->pool, run.op->cut.pieces, run_piece, &run);
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    lrn_run run = {.op = (const lrn_op *)base, .args = args, .pixels = backward_pixels};
    const lrn_op *op = run.op;
    MM_TRY(mm_host_pool_run(op->pool, op->cut.pieces, run_piece, &run));
    nets_host_accumulate_on(op->pool, args->at[NETS_DX], args->at[NETS_EARLIER], op->pixels * op->channels);
    return MM_OK;
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    (void)phase;
    const lrn_op *op = (const lrn_op *)base;
    return op->places * place_bytes(op);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    lrn_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a normalisation");
    op->base.impl = &nets_host_op_lrn.base;
    op->channels = nets_shape_channels(&desc->x[0]);
    op->pixels = nets_shape_elems(&desc->x[0]) / op->channels;
    op->pool = nets_host_pool(backend);
    int threads = mm_host_pool_threads(op->pool);
    op->cut = nets_cut_of(op->pixels, nets_pieces(op->pool), 1, LEAST_PIXELS);
    op->places = op->cut.pieces < threads ? op->cut.pieces : threads;
    op->half = desc->attrs.size / 2;
    if (op->half >= op->channels) op->half = op->channels - 1; /* the window covers all channels */
    op->alpha = desc->attrs.alpha / (float)desc->attrs.size;
    op->beta = desc->attrs.beta;
    op->k = desc->attrs.k;
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_lrn =
    NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create, nets_host_free, workspace_bytes, run_forward, run_backward);

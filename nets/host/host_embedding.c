/* SPDX-License-Identifier: MIT */
/* Embeddings: a row of weights for each token, or for each position, also behind a class token. A row's gradient is the
 * sum over its tokens in order. Threads divide the channels, or the positions, so no two write the same element. */
#include <stdlib.h>
#include <string.h>

#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"

enum { UNIT = 16 }; /* channels of a cache line */

typedef struct embedding_op {
    nets_op base;
    mm_host_pool *pool;
    const nets_simd_map *lines;                          /* of bf16 elements */
    int64_t rows, rows_per_sample, channels, vocabulary; /* rows: tokens of the batch; vocabulary 0: position */
    int64_t part_rows;
} embedding_op;

typedef struct embedding_run {
    const embedding_op *op;
    const float *x, *weight, *token, *dy, *earlier;
    const uint16_t *halves; /* the weight as bf16 numbers, in place of `weight` */
    float *y, *dx, *dweight;
    const nets_part_args *part; /* which parts of dweight; NULL: it is whole */
} embedding_run;

/* ---------------------------------------------------------------- tokens */

static mm_status check_tokens(const embedding_op *op, const float *tokens) {
    for (int64_t i = 0; i < op->rows; i++)
        if (!(tokens[i] >= 0 && tokens[i] < (float)op->vocabulary && tokens[i] == (float)(int64_t)tokens[i]))
            return mm_fail(MM_ERR_INVALID, "token %g at place %lld of sample %lld is not in the vocabulary of %lld",
                           (double)tokens[i], (long long)(i % op->rows_per_sample),
                           (long long)(i / op->rows_per_sample), (long long)op->vocabulary);
    return MM_OK;
}

static void look_up(const void *ctx, int64_t from, int64_t to) {
    const embedding_run *r = ctx;
    const int64_t channels = r->op->channels;
    for (int64_t i = from; i < to; i++) {
        const int64_t at = (int64_t)r->x[i] * channels;
        if (r->halves)
            r->op->lines->widen(r->halves + at, channels, r->y + i * channels);
        else
            memcpy(r->y + i * channels, r->weight + at, (size_t)channels * sizeof *r->y);
    }
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    const embedding_op *op = (const embedding_op *)base;
    const embedding_run r = {.op = op,
                             .x = args->at[NETS_X],
                             .weight = args->at[NETS_W],
                             .halves = args->at[NETS_W16],
                             .y = args->at[NETS_Y]};
    MM_TRY(check_tokens(op, r.x));
    nets_ranges(op->pool, op->rows, 1, op->channels, look_up, &r);
    return MM_OK;
}

/* Sums the gradients of the channels in units `from` to `to` - 1, of UNIT channels each. */
static void sum_tokens(const void *ctx, int64_t from, int64_t to) {
    const embedding_run *r = ctx;
    const int64_t channels = r->op->channels, first = from * UNIT, end = to * UNIT < channels ? to * UNIT : channels;
    if (!r->op->base.adds)
        for (int64_t v = 0; v < r->op->vocabulary; v++)
            memset(r->dweight + v * channels + first, 0, (size_t)(end - first) * sizeof *r->dweight);
    for (int64_t i = 0; i < r->op->rows; i++) {
        float *sum = r->dweight + (int64_t)r->x[i] * channels;
        const float *dy = r->dy + i * channels;
        for (int64_t c = first; c < end; c++) sum[c] += dy[c];
    }
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const embedding_op *op = (const embedding_op *)base;
    const embedding_run r = {.op = op, .x = args->at[NETS_X], .dy = args->at[NETS_DY], .dweight = args->at[NETS_DW]};
    MM_TRY(check_tokens(op, r.x));
    nets_ranges(op->pool, (op->channels + UNIT - 1) / UNIT, 1, UNIT * op->rows, sum_tokens, &r);
    return MM_OK;
}

/* Sums the gradients of the tokens in a part of the vocabulary. */
static mm_status sum_part(void *ctx, int64_t k, int thread) {
    const embedding_run *r = ctx;
    const int64_t channels = r->op->channels, first = (r->part->first + k * r->part->step) * r->op->part_rows;
    const int64_t left = r->op->vocabulary - first, n = left < r->op->part_rows ? left : r->op->part_rows;
    float *part = r->dweight + k * r->op->part_rows * channels;
    (void)thread;
    if (n <= 0) return MM_OK;
    if (!r->op->base.adds) memset(part, 0, (size_t)(n * channels) * sizeof *part);
    for (int64_t i = 0; i < r->op->rows; i++) {
        const int64_t row = (int64_t)r->x[i] - first;
        if (row < 0 || row >= n) continue;
        float *sum = part + row * channels;
        const float *dy = r->dy + i * channels;
        for (int64_t c = 0; c < channels; c++) sum[c] += dy[c];
    }
    return MM_OK;
}

static mm_status run_parts(nets_op *base, const nets_part_args *args) {
    embedding_run r = {
        .op = (const embedding_op *)base, .x = args->x, .dy = args->dy, .dweight = args->dw, .part = args};
    if (args->first == 0) MM_TRY(check_tokens(r.op, r.x));
    return mm_host_pool_run(r.op->pool, args->n, sum_part, &r);
}

mm_status nets_host_embedding_parts(nets_op *op, const nets_part_args *args, mm_stream *stream) {
    return nets_host_parts(op, run_parts, args, stream);
}

/* ---------------------------------------------------------------- positions */

static void add_places(const void *ctx, int64_t from, int64_t to) {
    const embedding_run *r = ctx;
    const int64_t channels = r->op->channels;
    for (int64_t i = from; i < to; i++) {
        const float *x = r->x + i * channels, *weight = r->weight + i % r->op->rows_per_sample * channels;
        float *y = r->y + i * channels;
#pragma omp simd
        for (int64_t c = 0; c < channels; c++) y[c] = x[c] + weight[c];
    }
}

static mm_status run_position_forward(nets_op *base, const nets_op_args *args) {
    const embedding_op *op = (const embedding_op *)base;
    const embedding_run r = {.op = op, .x = args->at[NETS_X], .weight = args->at[NETS_W], .y = args->at[NETS_Y]};
    nets_ranges(op->pool, op->rows, 1, op->channels, add_places, &r);
    return MM_OK;
}

static void sum_places(const void *ctx, int64_t from, int64_t to) {
    const embedding_run *r = ctx;
    const int64_t sample = r->op->rows_per_sample * r->op->channels, samples = r->op->rows / r->op->rows_per_sample;
    memcpy(r->dweight + from, r->dy + from, (size_t)(to - from) * sizeof *r->dy);
    for (int64_t n = 1; n < samples; n++) {
        const float *dy = r->dy + n * sample;
#pragma omp simd
        for (int64_t e = from; e < to; e++) r->dweight[e] += dy[e];
    }
}

static mm_status run_position_backward(nets_op *base, const nets_op_args *args) {
    const embedding_op *op = (const embedding_op *)base;
    const embedding_run r = {.op = op, .dy = args->at[NETS_DY], .dweight = args->at[NETS_DW]};
    nets_ranges(op->pool, op->rows_per_sample * op->channels, UNIT, op->rows / op->rows_per_sample, sum_places, &r);
    nets_host_pass_gradient(op->pool, MM_F32, r.dy, args->at[NETS_EARLIER], args->at[NETS_DX], op->rows * op->channels);
    return MM_OK;
}

/* ---------------------------------------------------------------- class tokens */

/* Rows of the output: each sample's first is the class token, the others are its rows of x. */
static void put_tokens(const void *ctx, int64_t from, int64_t to) {
    const embedding_run *r = ctx;
    const int64_t channels = r->op->channels, places = r->op->rows_per_sample;
    for (int64_t i = from; i < to; i++) {
        const int64_t place = i % places;
        const float *own = place ? r->x + (i - i / places - 1) * channels : r->token;
        const float *position = r->weight + place * channels;
        float *y = r->y + i * channels;
#pragma omp simd
        for (int64_t c = 0; c < channels; c++) y[c] = own[c] + position[c];
    }
}

static mm_status run_class_token_forward(nets_op *base, const nets_op_args *args) {
    const embedding_op *op = (const embedding_op *)base;
    const embedding_run r = {
        .op = op, .x = args->at[NETS_X], .token = args->at[NETS_W], .weight = args->at[NETS_B], .y = args->at[NETS_Y]};
    nets_ranges(op->pool, op->rows, 1, op->channels, put_tokens, &r);
    return MM_OK;
}

/* Rows of dx. */
static void pass_rest(const void *ctx, int64_t from, int64_t to) {
    const embedding_run *r = ctx;
    const int64_t channels = r->op->channels, pixels = r->op->rows_per_sample - 1;
    for (int64_t i = from; i < to; i++) {
        float *dx = r->dx + i * channels;
        memcpy(dx, r->dy + (i + i / pixels + 1) * channels, (size_t)channels * sizeof *dx);
        nets_host_accumulate(dx, r->earlier ? r->earlier + i * channels : NULL, channels);
    }
}

/* The class token's gradient is that of its position. */
static mm_status run_class_token_backward(nets_op *base, const nets_op_args *args) {
    const embedding_op *op = (const embedding_op *)base;
    const int64_t samples = op->rows / op->rows_per_sample;
    const embedding_run r = {.op = op,
                             .dy = args->at[NETS_DY],
                             .earlier = args->at[NETS_EARLIER],
                             .dx = args->at[NETS_DX],
                             .dweight = args->at[NETS_DB]};
    nets_ranges(op->pool, op->rows_per_sample * op->channels, UNIT, samples, sum_places, &r);
    memcpy(args->at[NETS_DW], r.dweight, (size_t)op->channels * sizeof *r.dweight);
    if (r.dx) nets_ranges(op->pool, op->rows - samples, 1, op->channels, pass_rest, &r);
    return MM_OK;
}

/* ---------------------------------------------------------------- creation */

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const bool tokens = desc->kind == NETS_EMBEDDING;
    embedding_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for an embedding");
    op->base.impl = backend->ops->impls[desc->kind];
    op->base.adds = tokens && desc->training && (desc->pass.adds || desc->shared);
    op->pool = nets_host_pool(backend);
    op->lines = nets_simd_map_best(MM_BF16);
    op->rows = nets_shape_rows(&desc->y);
    op->rows_per_sample = op->rows / desc->y.dims[0];
    op->channels = nets_shape_channels(&desc->y);
    op->vocabulary = desc->attrs.vocabulary;
    op->part_rows = desc->part_rows;
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_embedding =
    NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create, nets_host_free, NULL, run_forward, run_backward);
const nets_host_impl nets_host_op_position =
    NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create, nets_host_free, NULL, run_position_forward, run_position_backward);
const nets_host_impl nets_host_op_class_token = NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create, nets_host_free, NULL,
                                                               run_class_token_forward, run_class_token_backward);

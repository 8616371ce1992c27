/* SPDX-License-Identifier: MIT */
/* Max pools, by own loops over rows of maxima, or of the gradient, so that maps may be bf16. A maximum's place in its
 * window is a byte, of which two share one where they fit (nets_halves_index). A piece has them as bytes in its part of
 * the workspace: those of a row of maxima; in the backward, those of the rows whose windows meet. */
#include <stdlib.h>

#include "mm/core/graph/dtype.h"
#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"

typedef struct max_pool_op {
    nets_op base;
    mm_host_pool *threads;
    const nets_simd_map *lines;
    nets_simd_pool pool;
    int64_t elem_bytes;
    int64_t ring;               /* rows of maxima whose windows meet; without `halves` all of an image */
    nets_cut forward, backward; /* cut rows of maxima, and of the gradient */
    bool halves;
} max_pool_op;

typedef struct max_pool_run {
    const max_pool_op *op;
    const nets_op_args *args;
} max_pool_run;

static int64_t x_row(const max_pool_op *op) { return op->pool.x[1] * op->pool.channels; }
static int64_t y_row(const max_pool_op *op) { return op->pool.y[1] * op->pool.channels; }

static int pieces_of(const max_pool_op *op, mm_phase phase) {
    return phase == MM_FORWARD ? op->forward.pieces : op->backward.pieces;
}

/* A piece's bytes of the workspace; 0: places are used where they are saved. */
static int64_t piece_bytes(const max_pool_op *op, mm_phase phase) {
    return op->halves ? nets_aligned((phase == MM_FORWARD ? 1 : op->ring) * y_row(op)) : 0;
}

static uint8_t *bytes_of(const max_pool_run *run, mm_phase phase, int64_t piece, int thread) {
    if (!run->op->halves) return NULL;
    const int64_t at = nets_place(run->op->threads, pieces_of(run->op, phase), piece, thread);
    return (uint8_t *)run->args->at[NETS_WORKSPACE] + at * piece_bytes(run->op, phase);
}

static void halve(const uint8_t *whole, int64_t n, uint8_t *halves) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) halves[i] = (uint8_t)((whole[2 * i] & 15) | whole[2 * i + 1] << 4);
}

static void unhalve(const uint8_t *halves, int64_t n, uint8_t *whole) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        whole[2 * i] = halves[i] & 15;
        whole[2 * i + 1] = halves[i] >> 4;
    }
}

/* ---------------------------------------------------------------- forward */

static mm_status find_maxima(void *ctx, int64_t piece, int thread) {
    const max_pool_run *run = ctx;
    const max_pool_op *op = run->op;
    const int64_t rows = op->pool.y[0], image = op->pool.x[0] * x_row(op) * op->elem_bytes, n = y_row(op);
    const int64_t from = piece * op->forward.each, end = from + op->forward.each;
    uint8_t *index = run->args->at[NETS_INDEX], *bytes = bytes_of(run, MM_FORWARD, piece, thread);
    for (int64_t at = from; at < end && at < op->forward.items; at++) {
        const char *x = (const char *)run->args->at[NETS_X] + at / rows * image;
        char *y = (char *)run->args->at[NETS_Y] + at * n * op->elem_bytes;
        uint8_t *places = !index ? NULL : op->halves ? bytes : index + at * n;
        op->lines->maxima(&op->pool, x, at % rows, y, places);
        if (places && op->halves) halve(places, n / 2, index + at * n / 2);
    }
    return MM_OK;
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    max_pool_run run = {(const max_pool_op *)base, args};
    return mm_host_pool_run(run.op->threads, run.op->forward.pieces, find_maxima, &run);
}

/* ---------------------------------------------------------------- backward */

/* The places of an image's rows up to that of the last window that has row `row`, as bytes. `next` is the first row
 * that is not in the ring yet; rows before the ring's are left out. */
static const uint8_t *places_for(const max_pool_op *op, const uint8_t *image, int64_t row, uint8_t *ring,
                                 int64_t *next) {
    const nets_simd_pool *p = &op->pool;
    const int64_t n = y_row(op), last = (row + p->pad[0]) / p->stride[0];
    if (!op->halves) return image;
    if (*next < last - op->ring + 1) *next = last - op->ring + 1;
    for (; *next <= last && *next < p->y[0]; ++*next)
        unhalve(image + *next * n / 2, n / 2, ring + *next % op->ring * n);
    return ring;
}

static mm_status give_rows(void *ctx, int64_t piece, int thread) {
    const max_pool_run *run = ctx;
    const max_pool_op *op = run->op;
    const char *earlier = run->args->at[NETS_EARLIER];
    const int64_t rows = op->pool.x[0], row_bytes = x_row(op) * op->elem_bytes, maxima = op->pool.y[0] * y_row(op);
    const int64_t from = piece * op->backward.each, end = from + op->backward.each;
    uint8_t *ring = bytes_of(run, MM_BACKWARD, piece, thread);
    int64_t next = 0;
    for (int64_t at = from; at < end && at < op->backward.items; at++) {
        const int64_t image = at / rows, row = at % rows;
        if (row == 0) next = 0;
        const uint8_t *index = (const uint8_t *)run->args->at[NETS_INDEX] + image * maxima / (op->halves ? 2 : 1);
        const uint8_t *places = places_for(op, index, row, ring, &next);
        op->lines->maxima_gradient(&op->pool, (const char *)run->args->at[NETS_DY] + image * maxima * op->elem_bytes,
                                   places, op->ring, row, earlier ? earlier + at * row_bytes : NULL,
                                   (char *)run->args->at[NETS_DX] + at * row_bytes);
    }
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    max_pool_run run = {(const max_pool_op *)base, args};
    return mm_host_pool_run(run.op->threads, run.op->backward.pieces, give_rows, &run);
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const max_pool_op *op = (const max_pool_op *)base;
    return nets_places(op->threads, pieces_of(op, phase)) * piece_bytes(op, phase);
}

/* ---------------------------------------------------------------- creation */

/* The least rows of a piece: some ten microseconds' work. Chosen. */
static int64_t least_rows(int64_t row_elems) { return nets_larger((1 << 12) / row_elems, 1); }

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    max_pool_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a max pool");
    const nets_dnn_windows w = nets_host_windows(desc);
    op->base.impl = &nets_host_op_max_pool.base;
    op->threads = nets_host_pool(backend);
    op->lines = nets_simd_map_best(desc->maps);
    op->elem_bytes = mm_dtype_bytes(desc->maps);
    op->pool.channels = w.x[3];
    for (int d = 0; d < 2; d++) {
        op->pool.x[d] = w.x[1 + d];
        op->pool.y[d] = w.y[1 + d];
        op->pool.kernel[d] = w.kernel[d];
        op->pool.stride[d] = w.stride[d];
        op->pool.pad[d] = w.pad[d];
    }
    op->halves = desc->training && nets_halves_index(&desc->attrs, w.x[3]);
    op->ring = op->halves ? (w.kernel[0] - 1) / w.stride[0] + 1 : w.y[1];
    const int pieces = nets_pieces(op->threads);
    op->forward = nets_cut_of(w.y[0] * w.y[1], pieces, 1, least_rows(y_row(op)));
    op->backward = nets_cut_of(w.x[0] * w.x[1], pieces, 1, least_rows(x_row(op)));
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_max_pool = NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16), create,
                                                            nets_host_free, workspace_bytes, run_forward, run_backward);

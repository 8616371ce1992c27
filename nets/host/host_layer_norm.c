/* SPDX-License-Identifier: MIT */
/* Layer norm, and RMS norm, which is a layer norm that takes each row's mean for 0 and has no bias. Each row is
 * computed by itself. The gradients of weight and bias are summed over the rows of each part, then over the parts in
 * order; the parts depend only on the shape. A row of bf16 is computed as f32, in the thread's place of the workspace:
 *
 *   | the parts' sums, in the backward | x, dy, dx or y of a row, f32: thread 0's | thread 1's | ... |
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"
#include "nets/host/simd_row.h"

enum { PARTS = 32, LEAST_ROWS = 64 }; /* the most parts, and the least rows of a part; chosen */

typedef struct layer_norm_op {
    nets_op base;
    mm_host_pool *pool;
    const nets_simd_row *loops;
    const nets_simd_map *lines;
    int64_t elem_bytes; /* of a map */
    nets_cut cut;       /* cuts the rows, for sums over them */
    int64_t rows, channels;
    float eps;
    bool rms;
    nets_role factors; /* of the saved factors */
} layer_norm_op;

typedef struct layer_norm_run {
    const layer_norm_op *op;
    const nets_op_args *args;
    char *rows; /* the threads' rows in the workspace */
} layer_norm_run;

static bool is_half(const layer_norm_op *op) { return op->elem_bytes != (int64_t)sizeof(float); }

enum { ROW_X, ROW_DY, ROW_OUT, THREAD_ROWS };
static int64_t row_bytes(const layer_norm_op *op) { return nets_aligned(op->channels * (int64_t)sizeof(float)); }
static float *row_of(const layer_norm_run *run, int thread, int row) {
    return (float *)(void *)(run->rows + (thread * THREAD_ROWS + row) * row_bytes(run->op));
}

/* Row r of a map as floats. */
static const float *read_row(const layer_norm_run *run, nets_role role, int64_t r, int thread, int row) {
    const layer_norm_op *op = run->op;
    return nets_simd_floats(op->lines, op->elem_bytes, run->args->at[role], r * op->channels, op->channels,
                            is_half(op) ? row_of(run, thread, row) : NULL);
}

/* Where row r of a map is computed as floats. */
static float *out_row(const layer_norm_run *run, nets_role role, int64_t r, int thread) {
    if (is_half(run->op)) return row_of(run, thread, ROW_OUT);
    return (float *)run->args->at[role] + r * run->op->channels;
}

/* Writes the row that was computed there to the map, after that of the map `earlier` is added; NULL: there is none. */
static void write_row(const layer_norm_run *run, nets_role role, const char *earlier, int64_t r, const float *row) {
    const layer_norm_op *op = run->op;
    const int64_t n = op->channels, at = r * n * op->elem_bytes;
    char *map = (char *)run->args->at[role] + at;
    if (earlier)
        op->lines->add_floats(earlier + at, row, n, map);
    else if (is_half(op))
        op->lines->narrow(row, n, map);
}

static mm_status normalise_part(void *ctx, int64_t part, int thread) {
    const layer_norm_run *run = ctx;
    const layer_norm_op *op = run->op;
    void *const *at = run->args->at;
    const int64_t n = op->channels, from = part * op->cut.each;
    const int64_t to = from + op->cut.each < op->rows ? from + op->cut.each : op->rows;
    float *means = op->rms ? NULL : at[NETS_SAVED_MEAN], *factors = at[op->factors];
    for (int64_t r = from; r < to; r++) {
        const float *x = read_row(run, NETS_X, r, thread, ROW_X);
        float *y = out_row(run, NETS_Y, r, thread);
        const float mean = op->rms ? 0 : op->loops->sum(x, n) / (float)n;
        const float factor = 1.0f / sqrtf(op->loops->squares(x, mean, n) / (float)n + op->eps);
        op->loops->normalise(x, mean, factor, at[NETS_W], op->rms ? NULL : at[NETS_B], n, y);
        write_row(run, NETS_Y, NULL, r, y);
        if (means) means[r] = mean;
        if (factors) factors[r] = factor;
    }
    return MM_OK;
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    layer_norm_run run = {(const layer_norm_op *)base, args, args->at[NETS_WORKSPACE]};
    return mm_host_pool_run(run.op->pool, run.op->cut.pieces, normalise_part, &run);
}

static int64_t sums_bytes(const layer_norm_op *op) {
    const int64_t bytes = 2 * op->cut.pieces * op->channels * (int64_t)sizeof(float);
    return is_half(op) ? nets_aligned(bytes) : bytes; /* rows follow */
}

static float *part_sums(const layer_norm_run *run, int64_t part) {
    return (float *)run->args->at[NETS_WORKSPACE] + part * 2 * run->op->channels;
}

/* Writes dx of the part's rows, and the part's sums: the weight's gradient, behind it the bias's. dx may be dy. */
static mm_status give_part(void *ctx, int64_t part, int thread) {
    const layer_norm_run *run = ctx;
    const layer_norm_op *op = run->op;
    void *const *at = run->args->at;
    const int64_t n = op->channels, from = part * op->cut.each;
    const int64_t to = from + op->cut.each < op->rows ? from + op->cut.each : op->rows;
    const float *means = op->rms ? NULL : at[NETS_SAVED_MEAN], *factors = at[op->factors];
    float *dweight = part_sums(run, part), *dbias = dweight + n;
    memset(dweight, 0, (size_t)(2 * n) * sizeof *dweight);
    for (int64_t r = from; r < to; r++) {
        const float *x = read_row(run, NETS_X, r, thread, ROW_X), *dy = read_row(run, NETS_DY, r, thread, ROW_DY);
        const float mean = means ? means[r] : 0;
        float sums[2];
        op->loops->normalise_sums(x, mean, factors[r], at[NETS_W], dy, n, dweight, dbias, sums);
        sums[0] = op->rms ? 0 : sums[0] / (float)n;
        sums[1] /= (float)n;
        if (!at[NETS_DX]) continue;
        float *dx = out_row(run, NETS_DX, r, thread);
        op->loops->normalise_gradient(x, mean, factors[r], at[NETS_W], dy, sums, n, dx);
        write_row(run, NETS_DX, run->args->at[NETS_EARLIER], r, dx);
    }
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const layer_norm_op *op = (const layer_norm_op *)base;
    layer_norm_run run = {op, args,
                          (char *)args->at[NETS_WORKSPACE] + sums_bytes(op)}; /* the backward has a workspace */
    const size_t bytes = (size_t)op->channels * sizeof(float);
    MM_TRY(mm_host_pool_run(op->pool, op->cut.pieces, give_part, &run));
    for (int i = 0; i < (op->rms ? 1 : 2); i++) {
        float *sum = args->at[i == 0 ? NETS_DW : NETS_DB];
        memcpy(sum, part_sums(&run, 0) + i * op->channels, bytes);
        for (int p = 1; p < op->cut.pieces; p++)
            op->loops->add(part_sums(&run, p) + i * op->channels, op->channels, sum);
    }
    return MM_OK;
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const layer_norm_op *op = (const layer_norm_op *)base;
    const int64_t rows = is_half(op) ? mm_host_pool_threads(op->pool) * THREAD_ROWS * row_bytes(op) : 0;
    return rows + (phase == MM_FORWARD ? 0 : sums_bytes(op));
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    layer_norm_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    op->base.impl = backend->ops->impls[desc->kind];
    op->pool = nets_host_pool(backend);
    op->loops = nets_simd_row_best();
    op->lines = nets_simd_map_best(desc->maps);
    op->elem_bytes = mm_dtype_bytes(desc->maps);
    op->rows = nets_shape_rows(&desc->x[0]);
    op->channels = nets_shape_channels(&desc->x[0]);
    op->cut = nets_cut_of(op->rows, PARTS, 1, LEAST_ROWS);
    op->eps = desc->attrs.eps;
    op->rms = desc->kind == NETS_RMS_NORM;
    op->factors = op->rms ? NETS_SAVED : NETS_SAVED_VAR;
    *op_out = &op->base;
    return MM_OK;
}

#define NORM                                                                                                           \
    NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16), create, nets_host_free, workspace_bytes,          \
                   run_forward, run_backward)
const nets_host_impl nets_host_op_layer_norm = NORM, nets_host_op_rms_norm = NORM;

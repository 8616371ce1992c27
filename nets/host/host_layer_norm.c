/* SPDX-License-Identifier: MIT */
/* Layer norm, and RMS norm, which is a layer norm that takes each row's mean for 0 and has no bias. Each row is
 * computed by itself. The gradients of weight and bias are summed over the rows of each part, then over the parts in
 * order; the parts depend only on the shape. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_row.h"

enum { PARTS = 32, LEAST_ROWS = 64 }; /* the most parts, and the least rows of a part; chosen */

typedef struct layer_norm_op {
    nets_op base;
    mm_host_pool *pool;
    const nets_simd_row *loops;
    nets_cut cut; /* cuts the rows, for sums over them */
    int64_t rows, channels;
    float eps;
    bool rms;
    nets_role factors; /* of the saved factors */
} layer_norm_op;

typedef struct layer_norm_run {
    const layer_norm_op *op;
    const nets_op_args *args;
} layer_norm_run;

static void normalise(const void *ctx, int64_t from, int64_t to) {
    const layer_norm_run *run = ctx;
    const layer_norm_op *op = run->op;
    void *const *at = run->args->at;
    const int64_t n = op->channels;
    float *means = op->rms ? NULL : at[NETS_SAVED_MEAN], *factors = at[op->factors];
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)at[NETS_X] + r * n;
        const float mean = op->rms ? 0 : op->loops->sum(x, n) / (float)n;
        const float factor = 1.0f / sqrtf(op->loops->squares(x, mean, n) / (float)n + op->eps);
        op->loops->normalise(x, mean, factor, at[NETS_W], op->rms ? NULL : at[NETS_B], n, (float *)at[NETS_Y] + r * n);
        if (means) means[r] = mean;
        if (factors) factors[r] = factor;
    }
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    const layer_norm_run run = {(const layer_norm_op *)base, args};
    nets_ranges(run.op->pool, run.op->rows, 1, run.op->channels, normalise, &run);
    return MM_OK;
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
    (void)thread;
    memset(dweight, 0, (size_t)(2 * n) * sizeof *dweight);
    for (int64_t r = from; r < to; r++) {
        const float *x = (const float *)at[NETS_X] + r * n, *dy = (const float *)at[NETS_DY] + r * n;
        const float mean = means ? means[r] : 0;
        float sums[2];
        op->loops->normalise_sums(x, mean, factors[r], at[NETS_W], dy, n, dweight, dbias, sums);
        sums[0] = op->rms ? 0 : sums[0] / (float)n;
        sums[1] /= (float)n;
        if (at[NETS_DX])
            op->loops->normalise_gradient(x, mean, factors[r], at[NETS_W], dy, sums, n, (float *)at[NETS_DX] + r * n);
    }
    return MM_OK;
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    layer_norm_run run = {(const layer_norm_op *)base, args};
    const layer_norm_op *op = run.op;
    const size_t bytes = (size_t)op->channels * sizeof(float);
    MM_TRY(mm_host_pool_run(op->pool, op->cut.pieces, give_part, &run));
    for (int i = 0; i < (op->rms ? 1 : 2); i++) {
        float *sum = args->at[i == 0 ? NETS_DW : NETS_DB];
        memcpy(sum, part_sums(&run, 0) + i * op->channels, bytes);
        for (int p = 1; p < op->cut.pieces; p++)
            op->loops->add(part_sums(&run, p) + i * op->channels, op->channels, sum);
    }
    if (args->at[NETS_DX])
        nets_host_accumulate_on(op->pool, args->at[NETS_DX], args->at[NETS_EARLIER], op->rows * op->channels);
    return MM_OK;
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const layer_norm_op *op = (const layer_norm_op *)base;
    return phase == MM_FORWARD ? 0 : 2 * op->cut.pieces * op->channels * (int64_t)sizeof(float);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    layer_norm_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    op->base.impl = backend->ops->impls[desc->kind];
    op->pool = nets_host_pool(backend);
    op->loops = nets_simd_row_best();
    op->rows = nets_shape_rows(&desc->x[0]);
    op->channels = nets_shape_channels(&desc->x[0]);
    op->cut = nets_cut_of(op->rows, PARTS, 1, LEAST_ROWS);
    op->eps = desc->attrs.eps;
    op->rms = desc->kind == NETS_RMS_NORM;
    op->factors = op->rms ? NETS_SAVED : NETS_SAVED_VAR;
    *op_out = &op->base;
    return MM_OK;
}

#define NORM NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create, nets_host_free, workspace_bytes, run_forward, run_backward)
const nets_host_impl nets_host_op_layer_norm = NORM, nets_host_op_rms_norm = NORM;

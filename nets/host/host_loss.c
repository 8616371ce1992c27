/* SPDX-License-Identifier: MIT */
/* Softmax cross-entropy, mean over the labels: a label's scores are a pixel's channels. Rows have few scores, so plain
 * loops serve. Sums are in double and in order, over ranges of rows that depend only on the shape. */
#include <math.h>
#include <stdlib.h>

#include "nets/host/host_ops.h"
#include "nets/host/partition.h"

enum { PARTS = 64, LEAST_LABELS = 256 }; /* the most parts, and the least labels of a part; chosen */

typedef struct loss_op {
    nets_op base;
    mm_host_pool *pool;
    nets_cut cut; /* cuts the labels */
    int64_t labels, labels_per_image, classes;
    int64_t whole; /* labels of the whole batch */
    bool adds;
} loss_op;

static int64_t highest(const float *row, int64_t n) {
    int64_t best = 0;
    for (int64_t k = 1; k < n; k++)
        if (row[k] > row[best]) best = k;
    return best;
}

/* Returns minus the logarithm of the label's probability. Writes the row's probabilities unless NULL; the probabilities
 * may overwrite the scores. */
static double softmax_row(const float *scores, int64_t n, int64_t label, float *probabilities) {
    float top = scores[highest(scores, n)];
    double sum = 0, at_label = (double)scores[label] - top;
    for (int64_t k = 0; k < n; k++) sum += exp((double)scores[k] - top);
    if (probabilities)
        for (int64_t k = 0; k < n; k++) probabilities[k] = (float)(exp((double)scores[k] - top) / sum);
    return log(sum) - at_label;
}

typedef struct loss_run {
    const loss_op *op;
    const nets_op_args *args;
    double loss[PARTS];
    int32_t correct[PARTS];
} loss_run;

static int64_t first_image(const nets_op_args *args) {
    const uint32_t *rng = args->at[NETS_RNG];
    return rng ? rng[NETS_RNG_IMAGE] : 0;
}

static mm_status sum_part(void *ctx, int64_t part, int thread) {
    loss_run *run = ctx;
    const loss_op *op = run->op;
    const float *scores = run->args->at[NETS_X];
    const int32_t *labels = run->args->at[NETS_LABELS];
    float *probabilities = run->args->at[NETS_Y];
    int64_t from = part * op->cut.each, to = from + op->cut.each < op->labels ? from + op->cut.each : op->labels;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        const float *row = scores + i * op->classes;
        if (labels[i] < 0 || labels[i] >= op->classes)
            return mm_fail(MM_ERR_INVALID, "label %d of image %lld is not one of %lld classes", labels[i],
                           (long long)(first_image(run->args) + i / op->labels_per_image), (long long)op->classes);
        run->correct[part] += highest(row, op->classes) == labels[i];
        run->loss[part] +=
            softmax_row(row, op->classes, labels[i], probabilities ? probabilities + i * op->classes : NULL);
    }
    return MM_OK;
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    loss_run run = {.op = (const loss_op *)base, .args = args};
    double loss = 0;
    int32_t correct = 0;
    MM_TRY(mm_host_pool_run(run.op->pool, run.op->cut.pieces, sum_part, &run));
    for (int i = 0; i < run.op->cut.pieces; i++) {
        loss += run.loss[i];
        correct += run.correct[i];
    }
    float *value = args->at[NETS_LOSS_VALUE];
    int32_t *all_correct = args->at[NETS_CORRECT];
    if (value) *value = (float)(loss / (double)run.op->whole) + (run.op->adds ? *value : 0);
    if (all_correct) *all_correct = correct + (run.op->adds ? *all_correct : 0);
    return MM_OK;
}

static void give_gradients(const void *ctx, int64_t from, int64_t to) {
    const loss_op *op = ((const loss_run *)ctx)->op;
    const nets_op_args *args = ((const loss_run *)ctx)->args;
    const float *probabilities = args->at[NETS_Y];
    const int32_t *labels = args->at[NETS_LABELS];
    float *dx = args->at[NETS_DX];
    for (int64_t i = from; i < to; i++)
        for (int64_t k = 0; k < op->classes; k++) {
            int64_t e = i * op->classes + k;
            dx[e] = (probabilities[e] - (k == labels[i] ? 1.0f : 0.0f)) / (float)op->whole;
        }
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const loss_run run = {.op = (const loss_op *)base, .args = args};
    const loss_op *op = run.op;
    nets_ranges(op->pool, op->labels, 1, op->classes, give_gradients, &run);
    nets_host_accumulate_on(op->pool, args->at[NETS_DX], args->at[NETS_EARLIER], op->labels * op->classes);
    return MM_OK;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    loss_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a loss");
    op->base.impl = &nets_host_op_loss.base;
    op->classes = nets_shape_channels(&desc->x[0]);
    op->labels = nets_shape_rows(&desc->x[0]);
    op->labels_per_image = op->labels / desc->x[0].dims[0];
    op->whole = desc->pass.whole > 0 ? desc->pass.whole * op->labels_per_image : op->labels;
    op->adds = desc->pass.adds;
    op->pool = nets_host_pool(backend);
    op->cut = nets_cut_of(op->labels, PARTS, 1, LEAST_LABELS);
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_loss =
    NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create, nets_host_free, NULL, run_forward, run_backward);

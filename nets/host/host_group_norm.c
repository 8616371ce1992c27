/* SPDX-License-Identifier: MIT */
/* Group norm: image by image. Sums over an image are f32 over the rows of a chunk, then over the chunks, then over a
 * group's channels; the gradients of weight and bias are summed over the images in order. Each image has arrays of a
 * number for each channel in the workspace, so that images may be computed in any order:
 *
 *   | image 0: lanes [LANES][channels], products [2][channels] | image 1 | ... */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/host/host_ops.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"

/* The rows of a chunk; chosen. */
enum { CHUNK_ROWS = 256 };

/* Arrays by channel: of the group's mean; of two factors and a shift; and of a chunk's sums. */
enum { MEAN, FACTOR, SLOPE, SHIFT, SUM, SUM2, LANES, PRODUCTS = LANES, ARRAYS = PRODUCTS + 2 };

typedef struct group_norm_op {
    nets_op base;
    mm_host_pool *pool;
    const nets_simd_map *lines;
    int64_t images, pixels, channels, groups;
    float eps;
} group_norm_op;

typedef struct group_norm_run {
    const group_norm_op *op;
    void *const *at;
} group_norm_run;

static float *array_of(const group_norm_run *run, int64_t image, int array) {
    return (float *)run->at[NETS_WORKSPACE] + (image * ARRAYS + array) * run->op->channels;
}

static const float *map_of(const group_norm_run *run, nets_role role, int64_t image) {
    const float *map = run->at[role];
    return map ? map + image * run->op->pixels * run->op->channels : NULL;
}

/* The mean over a group of what is summed by channel; `weight` NULL: each channel counts once. */
static float mean_of_group(const group_norm_op *op, const float *sums, const float *weight, int64_t group) {
    const int64_t each = op->channels / op->groups;
    double sum = 0;
    for (int64_t c = group * each; c < (group + 1) * each; c++)
        sum += (double)sums[c] * (weight ? (double)weight[c] : 1);
    return (float)(sum / (double)(each * op->pixels));
}

/* Sets the array to a number for each channel of a group. */
static void spread(const group_norm_op *op, float value, int64_t group, float *lanes) {
    const int64_t each = op->channels / op->groups;
    for (int64_t c = group * each; c < (group + 1) * each; c++) lanes[c] = value;
}

/* ---------------------------------------------------------------- forward */

/* total = the image's sums by channel of x, or with `mean` of (x - mean)^2. */
static void sum_image(const group_norm_run *run, int64_t image, const float *mean, float *total) {
    const group_norm_op *op = run->op;
    float *sum = array_of(run, image, SUM2);
    memset(total, 0, (size_t)op->channels * sizeof *total);
    for (int64_t r = 0; r < op->pixels; r += CHUNK_ROWS) {
        const int64_t rows = op->pixels - r < CHUNK_ROWS ? op->pixels - r : CHUNK_ROWS;
        const float *x = map_of(run, NETS_X, image) + r * op->channels;
        if (mean)
            op->lines->squares(x, rows * op->channels, op->channels, mean, sum);
        else
            op->lines->sums(x, NULL, rows * op->channels, op->channels, sum);
        nets_host_accumulate(total, sum, op->channels);
    }
}

static void normalise_image(const group_norm_run *run, int64_t image) {
    const group_norm_op *op = run->op;
    const float *weight = run->at[NETS_W];
    float *means = run->at[NETS_SAVED_MEAN], *factors = run->at[NETS_SAVED_VAR];
    float *total = array_of(run, image, SUM), *mean = array_of(run, image, MEAN), *by = array_of(run, image, FACTOR);
    sum_image(run, image, NULL, total);
    for (int64_t g = 0; g < op->groups; g++) spread(op, mean_of_group(op, total, NULL, g), g, mean);
    sum_image(run, image, mean, total);
    for (int64_t g = 0; g < op->groups; g++) {
        const float factor = 1.0f / sqrtf(mean_of_group(op, total, NULL, g) + op->eps);
        spread(op, factor, g, by);
        if (means) means[image * op->groups + g] = mean[g * (op->channels / op->groups)];
        if (factors) factors[image * op->groups + g] = factor;
    }
    for (int64_t c = 0; c < op->channels; c++) by[c] *= weight[c];
    const nets_lanes_map with = {.mean = mean, .factor = by, .shift = run->at[NETS_B]};
    op->lines->map(map_of(run, NETS_X, image), NULL, op->pixels * op->channels, op->channels, with, false,
                   (float *)run->at[NETS_Y] + image * op->pixels * op->channels);
}

static void normalise(const void *ctx, int64_t from, int64_t to) {
    for (int64_t image = from; image < to; image++) normalise_image(ctx, image);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    const group_norm_run run = {(const group_norm_op *)base, args->at};
    nets_ranges(run.op->pool, run.op->images, 1, run.op->pixels * run.op->channels, normalise, &run);
    return MM_OK;
}

/* ---------------------------------------------------------------- backward */

/* The image's sums by channel of dy and of dy (x - mean). */
static void sum_products(const group_norm_run *run, int64_t image, float *sum_dy, float *sum_dyx) {
    const group_norm_op *op = run->op;
    float *sum = array_of(run, image, SUM), *sum2 = array_of(run, image, SUM2);
    memset(sum_dy, 0, (size_t)op->channels * sizeof *sum_dy);
    memset(sum_dyx, 0, (size_t)op->channels * sizeof *sum_dyx);
    for (int64_t r = 0; r < op->pixels; r += CHUNK_ROWS) {
        const int64_t rows = op->pixels - r < CHUNK_ROWS ? op->pixels - r : CHUNK_ROWS, at = r * op->channels;
        op->lines->products(NULL, map_of(run, NETS_DY, image) + at, map_of(run, NETS_X, image) + at,
                            rows * op->channels, op->channels, array_of(run, image, MEAN), NULL, sum, sum2);
        nets_host_accumulate(sum_dy, sum, op->channels);
        nets_host_accumulate(sum_dyx, sum2, op->channels);
    }
}

/* dx = dy factor + (x - mean) slope + shift (+ earlier); dx may be dy. */
static void give_dx(const group_norm_run *run, int64_t image) {
    const group_norm_op *op = run->op;
    const int64_t n = op->channels;
    const float *mean = array_of(run, image, MEAN), *factor = array_of(run, image, FACTOR),
                *slope = array_of(run, image, SLOPE), *shift = array_of(run, image, SHIFT);
    for (int64_t r = 0; r < op->pixels; r++) {
        const float *x = map_of(run, NETS_X, image) + r * n, *dy = map_of(run, NETS_DY, image) + r * n;
        float *dx = (float *)run->at[NETS_DX] + (image * op->pixels + r) * n;
#pragma omp simd
        for (int64_t c = 0; c < n; c++) dx[c] = dy[c] * factor[c] + (x[c] - mean[c]) * slope[c] + shift[c];
        if (run->at[NETS_EARLIER]) nets_host_accumulate(dx, map_of(run, NETS_EARLIER, image) + r * n, n);
    }
}

/* With g = dy weight and the normalised x, dx = factor (g - mean(g) - normalised mean(g normalised)). */
static void differentiate_image(const group_norm_run *run, int64_t image) {
    const group_norm_op *op = run->op;
    const float *weight = run->at[NETS_W];
    const float *means = (const float *)run->at[NETS_SAVED_MEAN] + image * op->groups;
    const float *factors = (const float *)run->at[NETS_SAVED_VAR] + image * op->groups;
    float *dweight = array_of(run, image, PRODUCTS), *dbias = array_of(run, image, PRODUCTS + 1);
    float *by = array_of(run, image, FACTOR);
    for (int64_t g = 0; g < op->groups; g++) spread(op, means[g], g, array_of(run, image, MEAN));
    sum_products(run, image, dbias, dweight);
    for (int64_t g = 0; g < op->groups; g++) {
        spread(op, factors[g], g, by);
        spread(op, -factors[g] * mean_of_group(op, dbias, weight, g), g, array_of(run, image, SHIFT));
        spread(op, -factors[g] * factors[g] * factors[g] * mean_of_group(op, dweight, weight, g), g,
               array_of(run, image, SLOPE));
    }
    for (int64_t c = 0; c < op->channels; c++) {
        dweight[c] *= by[c];
        by[c] *= weight[c];
    }
    if (run->at[NETS_DX]) give_dx(run, image);
}

static void differentiate(const void *ctx, int64_t from, int64_t to) {
    for (int64_t image = from; image < to; image++) differentiate_image(ctx, image);
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    const group_norm_run run = {(const group_norm_op *)base, args->at};
    const group_norm_op *op = run.op;
    const nets_role sums[] = {NETS_DW, NETS_DB};
    nets_ranges(op->pool, op->images, 1, op->pixels * op->channels, differentiate, &run);
    for (int i = 0; i < 2; i++) {
        memset(args->at[sums[i]], 0, (size_t)op->channels * sizeof(float));
        for (int64_t image = 0; image < op->images; image++)
            nets_host_accumulate(args->at[sums[i]], array_of(&run, image, PRODUCTS + i), op->channels);
    }
    return MM_OK;
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const group_norm_op *op = (const group_norm_op *)base;
    (void)phase;
    return op->images * ARRAYS * op->channels * (int64_t)sizeof(float);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    group_norm_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a group norm");
    *op = (group_norm_op){.base.impl = &nets_host_op_group_norm.base,
                          .pool = nets_host_pool(backend),
                          .lines = nets_simd_map_best(MM_F32),
                          .images = desc->x[0].dims[0],
                          .pixels = nets_shape_rows(&desc->x[0]) / desc->x[0].dims[0],
                          .channels = nets_shape_channels(&desc->x[0]),
                          .groups = desc->attrs.groups,
                          .eps = desc->attrs.eps};
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_group_norm =
    NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create, nets_host_free, workspace_bytes, run_forward, run_backward);

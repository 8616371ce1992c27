/* SPDX-License-Identifier: MIT */
/* Concatenation along the channels, and cropping: copies of rectangles, one way in the forward, the other in the
 * backward. An input's gradient may be in place of the earlier gradient that is added to it: each element is read
 * before it is written. */
#include <stdlib.h>
#include <string.h>

#include "nets/host/host_ops.h"
#include "nets/host/partition.h"

/* to[i] = from[i] + earlier[i]; without `from`, zeros; without `earlier`, nothing is added. `earlier` may be `to`. */
static void give(float *to, const float *from, const float *earlier, int64_t n) {
    if (from && earlier) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) to[i] = from[i] + earlier[i];
    } else if (from) {
        memcpy(to, from, (size_t)n * sizeof *to);
    } else if (!earlier) {
        memset(to, 0, (size_t)n * sizeof *to);
    } else if (to != earlier) {
        memcpy(to, earlier, (size_t)n * sizeof *to);
    }
}

/* ---------------------------------------------------------------- concat */

typedef struct concat_op {
    nets_op base;
    mm_host_pool *pool;
    int64_t pixels; /* of the batch */
    int n_inputs;
    int64_t channels[NETS_MAX_INPUTS], y_channels;
} concat_op;

typedef struct concat_run {
    const concat_op *op;
    const nets_op_args *args;
} concat_run;

static void concat_pixels(const void *ctx, int64_t from, int64_t to) {
    const concat_op *op = ((const concat_run *)ctx)->op;
    const nets_op_args *args = ((const concat_run *)ctx)->args;
    float *y = (float *)args->at[NETS_Y] + from * op->y_channels;
    for (int64_t p = from; p < to; p++)
        for (int i = 0; i < op->n_inputs; i++) {
            int64_t n = op->channels[i];
            memcpy(y, (const float *)args->at[NETS_X + i] + p * n, (size_t)n * sizeof *y);
            y += n;
        }
}

static void separate_pixels(const void *ctx, int64_t from, int64_t to) {
    const concat_op *op = ((const concat_run *)ctx)->op;
    const nets_op_args *args = ((const concat_run *)ctx)->args;
    const float *dy = args->at[NETS_DY];
    for (int i = 0; i < op->n_inputs; dy += op->channels[i++]) {
        float *dx = args->at[NETS_DX + i];
        const float *earlier = args->at[NETS_EARLIER + i];
        int64_t n = op->channels[i];
        if (!dx) continue;
        for (int64_t p = from; p < to; p++)
            give(dx + p * n, dy + p * op->y_channels, earlier ? earlier + p * n : NULL, n);
    }
}

static mm_status run_concat_forward(nets_op *base, const nets_op_args *args) {
    const concat_run run = {(const concat_op *)base, args};
    nets_ranges(run.op->pool, run.op->pixels, 1, run.op->y_channels, concat_pixels, &run);
    return MM_OK;
}

static mm_status run_concat_backward(nets_op *base, const nets_op_args *args) {
    const concat_run run = {(const concat_op *)base, args};
    nets_ranges(run.op->pool, run.op->pixels, 1, run.op->y_channels, separate_pixels, &run);
    return MM_OK;
}

static mm_status create_concat(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    concat_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a concat");
    op->base.impl = &nets_host_op_concat.base;
    op->pool = nets_host_pool(backend);
    op->pixels = nets_shape_rows(&desc->y);
    op->n_inputs = desc->n_inputs;
    for (int i = 0; i < desc->n_inputs; i++) op->channels[i] = nets_shape_channels(&desc->x[i]);
    op->y_channels = nets_shape_channels(&desc->y);
    *op_out = &op->base;
    return MM_OK;
}

/* ---------------------------------------------------------------- crop */

typedef struct crop_op {
    nets_op base;
    mm_host_pool *pool;
    int64_t x[4], y[4], offset[2];
} crop_op;

/* The index in x of the first element of the crop's row `row`. */
static int64_t place_in_x(const crop_op *op, int64_t image, int64_t row) {
    return ((image * op->x[1] + op->offset[0] + row) * op->x[2] + op->offset[1]) * op->x[3];
}

typedef struct crop_run {
    const crop_op *op;
    const nets_op_args *args;
} crop_run;

static void crop_images(const void *ctx, int64_t from, int64_t to) {
    const crop_op *op = ((const crop_run *)ctx)->op;
    const nets_op_args *args = ((const crop_run *)ctx)->args;
    int64_t n = op->y[2] * op->y[3];
    float *y = (float *)args->at[NETS_Y] + from * op->y[1] * n;
    for (int64_t image = from; image < to; image++)
        for (int64_t row = 0; row < op->y[1]; row++, y += n)
            memcpy(y, (const float *)args->at[NETS_X] + place_in_x(op, image, row), (size_t)n * sizeof *y);
}

/* Elements of x that are not in the crop, such as those between two rows of it, have a zero gradient. */
static void uncrop_images(const void *ctx, int64_t from, int64_t to) {
    const crop_op *op = ((const crop_run *)ctx)->op;
    const nets_op_args *args = ((const crop_run *)ctx)->args;
    int64_t n = op->y[2] * op->y[3], image_elems = op->x[1] * op->x[2] * op->x[3];
    int64_t at = from * image_elems, end = to * image_elems;
    const float *dy = (const float *)args->at[NETS_DY] + from * op->y[1] * n, *earlier = args->at[NETS_EARLIER];
    float *dx = args->at[NETS_DX];
    for (int64_t image = from; image < to; image++)
        for (int64_t row = 0; row < op->y[1]; row++, dy += n) {
            int64_t place = place_in_x(op, image, row);
            give(dx + at, NULL, earlier ? earlier + at : NULL, place - at);
            give(dx + place, dy, earlier ? earlier + place : NULL, n);
            at = place + n;
        }
    give(dx + at, NULL, earlier ? earlier + at : NULL, end - at);
}

static mm_status run_crop_forward(nets_op *base, const nets_op_args *args) {
    const crop_run run = {(const crop_op *)base, args};
    nets_ranges(run.op->pool, run.op->x[0], 1, nets_elems(run.op->y) / run.op->y[0], crop_images, &run);
    return MM_OK;
}

static mm_status run_crop_backward(nets_op *base, const nets_op_args *args) {
    const crop_run run = {(const crop_op *)base, args};
    nets_ranges(run.op->pool, run.op->x[0], 1, nets_elems(run.op->x) / run.op->x[0], uncrop_images, &run);
    return MM_OK;
}

static mm_status create_crop(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    crop_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a crop");
    op->base.impl = &nets_host_op_crop.base;
    op->pool = nets_host_pool(backend);
    memcpy(op->x, desc->x[0].dims, sizeof op->x);
    memcpy(op->y, desc->y.dims, sizeof op->y);
    memcpy(op->offset, desc->attrs.offset, sizeof op->offset);
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_concat = NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create_concat, nets_host_free, NULL,
                                                          run_concat_forward, run_concat_backward);
const nets_host_impl nets_host_op_crop =
    NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create_crop, nets_host_free, NULL, run_crop_forward, run_crop_backward);

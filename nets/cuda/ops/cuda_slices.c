/* SPDX-License-Identifier: MIT */
/* Concatenation along the channels, cropping, and a batch's fourth channel: glue to op_slices_kernels.cu. */
#include <stdlib.h>
#include <string.h>

#include "nets/cuda/cuda_ops.h"

/* ---------------------------------------------------------------- concat */

typedef struct concat_op {
    nets_op base;
    mm_dtype maps;
    int n_inputs;
    int64_t pixels, channels[NETS_MAX_INPUTS], y_channels;
} concat_op;

/* Bytes of a pixel in an input. */
static int64_t bytes_of(const concat_op *op, int input) {
    return op->channels[input] * (int64_t)mm_dtype_bytes(op->maps);
}

static mm_status concat_forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const concat_op *op = (const concat_op *)base;
    char *y = args->at[NETS_Y];
    for (int i = 0; i < op->n_inputs; y += bytes_of(op, i++)) {
        const nets_cuda_rows shape = {op->pixels, op->channels[i], op->channels[i], op->y_channels};
        nets_cuda_copy_rows(op->maps, shape, args->at[NETS_X + i], NULL, y, mm_cuda_stream(stream));
    }
    return nets_cuda_launched("concat");
}

static mm_status concat_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const concat_op *op = (const concat_op *)base;
    const char *dy = args->at[NETS_DY];
    for (int i = 0; i < op->n_inputs; dy += bytes_of(op, i++)) {
        const nets_cuda_rows shape = {op->pixels, op->channels[i], op->y_channels, op->channels[i]};
        if (args->at[NETS_DX + i])
            nets_cuda_copy_rows(op->maps, shape, dy, args->at[NETS_EARLIER + i], args->at[NETS_DX + i],
                                mm_cuda_stream(stream));
    }
    return nets_cuda_launched("concat's gradient");
}

static mm_status create_concat(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    MM_TRY(nets_cuda_check_dims(desc));
    concat_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a concat");
    op->base.impl = &nets_cuda_op_concat;
    op->maps = desc->maps;
    op->n_inputs = desc->n_inputs;
    op->pixels = nets_shape_rows(&desc->y);
    op->y_channels = nets_shape_channels(&desc->y);
    for (int i = 0; i < desc->n_inputs; i++) op->channels[i] = nets_shape_channels(&desc->x[i]);
    *op_out = &op->base;
    return MM_OK;
}

/* ---------------------------------------------------------------- crop */

typedef struct crop_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_crop shape;
} crop_op;

static mm_status crop_forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const crop_op *op = (const crop_op *)base;
    nets_cuda_crop_forward(op->maps, op->shape, args->at[NETS_X], args->at[NETS_Y], mm_cuda_stream(stream));
    return nets_cuda_launched("crop");
}

static mm_status crop_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const crop_op *op = (const crop_op *)base;
    nets_cuda_crop_backward(op->maps, op->shape, args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX],
                            mm_cuda_stream(stream));
    return nets_cuda_launched("crop's gradient");
}

static mm_status create_crop(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    MM_TRY(nets_cuda_check_dims(desc));
    crop_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a crop");
    op->base.impl = &nets_cuda_op_crop;
    op->maps = desc->maps;
    op->shape = (nets_cuda_crop){.images = (int)desc->x[0].dims[0], .channels = (int)nets_shape_channels(&desc->x[0])};
    for (int d = 0; d < 2; d++) {
        op->shape.x_size[d] = (int)desc->x[0].dims[1 + d];
        op->shape.y_size[d] = (int)desc->y.dims[1 + d];
        op->shape.offset[d] = (int)desc->attrs.offset[d];
    }
    *op_out = &op->base;
    return MM_OK;
}

mm_status nets_cuda_pad_step(nets_backend *backend, const float *from, float *to, int64_t pixels, mm_stream *stream) {
    bool entered;
    (void)backend;
    MM_TRY(mm_device_enter(stream->device, &entered));
    nets_cuda_pad_pixels(MM_F32, from, to, pixels, mm_cuda_stream(stream));
    mm_status status = nets_cuda_launched("a batch's fourth channel");
    mm_device_leave(stream->device, entered);
    return status;
}

const nets_op_impl nets_cuda_op_concat = {NETS_CUDA_MAPS, create_concat,  nets_cuda_free,
                                          NULL,           concat_forward, concat_backward};
const nets_op_impl nets_cuda_op_crop = {NETS_CUDA_MAPS, create_crop, nets_cuda_free, NULL, crop_forward, crop_backward};

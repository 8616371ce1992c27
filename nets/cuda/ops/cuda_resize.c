/* SPDX-License-Identifier: MIT */
/* Pooling and upsampling, which change an image's size and have no weights: glue to op_windows_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"

/* ---------------------------------------------------------------- pools */

typedef struct pool_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_windows windows;
    bool maximum;
} pool_op;

static mm_status pool_forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const pool_op *op = (const pool_op *)base;
    if (op->maximum)
        nets_cuda_max_pool(op->maps, op->windows, args->at[NETS_X], args->at[NETS_Y], args->at[NETS_INDEX],
                           mm_cuda_stream(stream));
    else
        nets_cuda_avg_pool(op->maps, op->windows, args->at[NETS_X], args->at[NETS_Y], mm_cuda_stream(stream));
    return nets_cuda_launched("a pool");
}

static mm_status pool_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const pool_op *op = (const pool_op *)base;
    if (op->maximum)
        nets_cuda_max_pool_backward(op->maps, op->windows, args->at[NETS_DY], args->at[NETS_INDEX],
                                    args->at[NETS_EARLIER], args->at[NETS_DX], mm_cuda_stream(stream));
    else
        nets_cuda_avg_pool_backward(op->maps, op->windows, args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX],
                                    mm_cuda_stream(stream));
    return nets_cuda_launched("a pool's gradient");
}

static mm_status create_pool(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const nets_attrs *a = &desc->attrs;
    MM_TRY(nets_cuda_check_dims(desc));
    pool_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a pool");
    op->base.impl = backend->ops->impls[desc->kind];
    op->maps = desc->maps;
    op->maximum = desc->kind == NETS_MAX_POOL;
    op->windows =
        (nets_cuda_windows){.images = (int)desc->x[0].dims[0], .channels = (int)nets_shape_channels(&desc->x[0])};
    for (int d = 0; d < 2; d++) {
        op->windows.x_size[d] = (int)desc->x[0].dims[1 + d];
        op->windows.y_size[d] = (int)desc->y.dims[1 + d];
        op->windows.kernel[d] = (int)a->kernel[d];
        op->windows.stride[d] = (int)a->stride[d];
        op->windows.pad[d] = (int)a->pad[d];
    }
    /* In ceil mode, a window may reach beyond image and padding; places beyond them do not count in the average. A
     * padding that counts is allowed only without ceil mode. */
    op->windows.halves_index = nets_halves_index(a, nets_shape_channels(&desc->y));
    op->windows.exclude_pad = a->exclude_pad || (a->ceil_mode && !a->pad[0] && !a->pad[1]);
    *op_out = &op->base;
    return MM_OK;
}

/* ---------------------------------------------------------------- upsampling */

typedef struct upsample_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_upsample shape;
} upsample_op;

static mm_status upsample_forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const upsample_op *op = (const upsample_op *)base;
    nets_cuda_upsample_forward(op->maps, op->shape, args->at[NETS_X], args->at[NETS_Y], mm_cuda_stream(stream));
    return nets_cuda_launched("an upsampling");
}

static mm_status upsample_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const upsample_op *op = (const upsample_op *)base;
    nets_cuda_upsample_backward(op->maps, op->shape, args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX],
                                mm_cuda_stream(stream));
    return nets_cuda_launched("an upsampling's gradient");
}

static mm_status create_upsample(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    MM_TRY(nets_cuda_check_dims(desc));
    upsample_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for an upsampling");
    op->base.impl = &nets_cuda_op_upsample;
    op->maps = desc->maps;
    op->shape = (nets_cuda_upsample){.images = (int)desc->x[0].dims[0],
                                     .channels = (int)nets_shape_channels(&desc->x[0]),
                                     .bilinear = desc->attrs.bilinear};
    for (int d = 0; d < 2; d++) {
        op->shape.x_size[d] = (int)desc->x[0].dims[1 + d];
        op->shape.scale[d] = (int)desc->attrs.scale[d];
    }
    *op_out = &op->base;
    return MM_OK;
}

#define POOL                                                                                                           \
    { NETS_CUDA_MAPS, create_pool, nets_cuda_free, NULL, pool_forward, pool_backward }

const nets_op_impl nets_cuda_op_max_pool = POOL;
const nets_op_impl nets_cuda_op_avg_pool = POOL;
const nets_op_impl nets_cuda_op_global_avg_pool = POOL;
const nets_op_impl nets_cuda_op_upsample = {NETS_CUDA_MAPS, create_upsample,  nets_cuda_free,
                                            NULL,           upsample_forward, upsample_backward};

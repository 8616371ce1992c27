/* SPDX-License-Identifier: MIT */
/* Rotary embeddings: glue to op_rotary_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"
#include "nets/cuda/kernels/cuda_token_kernels.h"

typedef struct rotary_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_rotary rotary;
} rotary_op;

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const rotary_op *op = (const rotary_op *)base;
    nets_cuda_rotate(op->maps, op->rotary, args->at[NETS_X], NULL, args->at[NETS_Y], mm_cuda_stream(stream));
    return nets_cuda_launched("a rotary embedding");
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const rotary_op *op = (const rotary_op *)base;
    nets_cuda_rotary back = op->rotary;
    back.back = true;
    nets_cuda_rotate(op->maps, back, args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX],
                     mm_cuda_stream(stream));
    return nets_cuda_launched("a rotary embedding's gradient");
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const int64_t heads = desc->attrs.heads, kv_heads = nets_kv_heads(&desc->attrs);
    (void)backend;
    MM_TRY(nets_cuda_check_dims(desc));
    rotary_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a rotary embedding");
    op->base.impl = &nets_cuda_op_rotary;
    op->maps = desc->maps;
    op->rotary = (nets_cuda_rotary){.rows = nets_shape_rows(&desc->y),
                                    .places = nets_shape_rows(&desc->y) / desc->y.dims[0],
                                    .width = nets_shape_channels(&desc->y),
                                    .turned = (int)(heads + kv_heads),
                                    .size = (int)(nets_shape_channels(&desc->y) / (heads + 2 * kv_heads)),
                                    .base = desc->attrs.base};
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_rotary = {NETS_CUDA_MAPS, create, nets_cuda_free, NULL, forward, backward};

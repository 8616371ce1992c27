/* SPDX-License-Identifier: MIT */
/* GELU: glue to op_token_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"
#include "nets/cuda/kernels/cuda_token_kernels.h"

typedef struct gelu_op {
    nets_op base;
    mm_dtype maps;
    int64_t elems;
    bool by_tanh;
} gelu_op;

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const gelu_op *op = (const gelu_op *)base;
    nets_cuda_gelu(op->maps, op->by_tanh, args->at[NETS_X], args->at[NETS_Y], op->elems, mm_cuda_stream(stream));
    return nets_cuda_launched("gelu");
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const gelu_op *op = (const gelu_op *)base;
    nets_cuda_gelu_backward(op->maps, op->by_tanh, args->at[NETS_X], args->at[NETS_DY], args->at[NETS_EARLIER],
                            args->at[NETS_DX], op->elems, mm_cuda_stream(stream));
    return nets_cuda_launched("gelu's gradient");
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    MM_TRY(nets_cuda_check_dims(desc));
    gelu_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a gelu");
    *op = (gelu_op){.base.impl = &nets_cuda_op_gelu,
                    .maps = desc->maps,
                    .elems = nets_shape_elems(&desc->y),
                    .by_tanh = desc->attrs.tanh};
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_gelu = {NETS_CUDA_MAPS, create, nets_cuda_free, NULL, forward, backward};

/* SPDX-License-Identifier: MIT */
/* Dropout: glue to op_elementwise_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"

typedef struct dropout_op {
    nets_op base;
    mm_dtype maps;
    int64_t elems;
    nets_cuda_dropout dropout; /* without the numbers of a call: `rng` and `layer` */
} dropout_op;

static mm_status drop(const nets_op *base, const nets_op_args *args, const void *in, const void *earlier, void *out,
                      mm_stream *stream) {
    const dropout_op *op = (const dropout_op *)base;
    nets_cuda_dropout how = op->dropout;
    how.rng = args->at[NETS_RNG];
    how.layer = args->layer;
    nets_cuda_drop(op->maps, how, in, earlier, out, op->elems, mm_cuda_stream(stream));
    return nets_cuda_launched("dropout");
}

static mm_status forward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return drop(op, args, args->at[NETS_X], NULL, args->at[NETS_Y], stream);
}

static mm_status backward(nets_op *op, const nets_op_args *args, mm_stream *stream) {
    return drop(op, args, args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX], stream);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    dropout_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a dropout");
    op->base.impl = &nets_cuda_op_dropout;
    op->maps = desc->maps;
    op->elems = nets_shape_elems(&desc->x[0]);
    op->dropout = (nets_cuda_dropout){.image_elems = op->elems / desc->x[0].dims[0],
                                      .threshold = (uint32_t)((double)desc->attrs.p * 4294967296.0),
                                      .scale = 1.0f / (1.0f - desc->attrs.p),
                                      .by_sample = desc->attrs.by_sample};
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_dropout = {NETS_CUDA_MAPS, create, nets_cuda_free, NULL, forward, backward};

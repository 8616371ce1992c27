/* SPDX-License-Identifier: MIT */
/* ReLU: glue to op_elementwise_kernels.cu, and with a bias that is added before it to op_channels_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"

typedef struct relu_op {
    nets_op base;
    mm_dtype maps;
    int64_t rows, channels;
    nets_cuda_reduction by_bias; /* sums the bias's gradient; all zero without a bias, and outside training */
} relu_op;

static int64_t elems_of(const relu_op *op) { return op->rows * op->channels; }

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const relu_op *op = (const relu_op *)base;
    nets_cuda_relu(op->maps, args->at[NETS_X], args->at[NETS_Y], elems_of(op), mm_cuda_stream(stream));
    return nets_cuda_launched("relu");
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const relu_op *op = (const relu_op *)base;
    nets_cuda_relu_backward(op->maps, args->at[NETS_DY], nets_cuda_gate_of(args), args->at[NETS_EARLIER],
                            args->at[NETS_DX], elems_of(op), mm_cuda_stream(stream));
    return nets_cuda_launched("relu's gradient");
}

static mm_status bias_forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const relu_op *op = (const relu_op *)base;
    nets_cuda_bias_relu(op->maps, args->at[NETS_X], args->at[NETS_B], args->at[NETS_Y], op->rows, op->channels,
                        mm_cuda_stream(stream));
    return nets_cuda_launched("relu with a bias");
}

static mm_status bias_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const relu_op *op = (const relu_op *)base;
    nets_cuda_bias_relu_backward(op->maps, args->at[NETS_DY], nets_cuda_gate_of(args), args->at[NETS_EARLIER],
                                 args->at[NETS_DX], &op->by_bias, args->at[NETS_WORKSPACE], args->at[NETS_DB],
                                 mm_cuda_stream(stream));
    return nets_cuda_launched("the gradient of relu with a bias");
}

static int64_t bias_workspace_bytes(const nets_op *base, mm_phase phase) {
    const relu_op *op = (const relu_op *)base;
    return phase == MM_BACKWARD && op->by_bias.strips.rows ? nets_strips_bytes(&op->by_bias.strips) : 0;
}

static const nets_op_impl bias_relu = {NETS_CUDA_MAPS,       NULL,         nets_cuda_free,
                                       bias_workspace_bytes, bias_forward, bias_backward};

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const bool bias = desc->attrs.bias;
    if (bias) MM_TRY(nets_cuda_check_dims(desc));
    relu_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a relu");
    op->base.impl = bias ? &bias_relu : &nets_cuda_op_relu;
    op->maps = desc->maps;
    op->rows = nets_shape_rows(&desc->x[0]);
    op->channels = nets_shape_channels(&desc->x[0]);
    mm_status status = MM_OK;
    if (bias && desc->training)
        status = nets_cuda_reduction_init(&op->by_bias, (nets_cuda_backend *)backend, &desc->x[0]);
    if (status == MM_OK)
        *op_out = &op->base;
    else
        free(op);
    return status;
}

const nets_op_impl nets_cuda_op_relu = {NETS_CUDA_MAPS, create, nets_cuda_free, NULL, forward, backward};

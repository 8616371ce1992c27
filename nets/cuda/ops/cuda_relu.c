/* SPDX-License-Identifier: MIT */
/* ReLU: glue to op_elementwise_kernels.cu, and with a bias that is added before it to op_bias_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"

typedef struct relu_op {
    nets_op base;
    mm_dtype maps;
    bool bias;
    int64_t rows, channels;
    nets_cuda_reduction by_bias; /* sums the bias's gradient; all zero without a bias, and outside training */
} relu_op;

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const relu_op *op = (const relu_op *)base;
    const void *x = args->at[NETS_X];
    void *y = args->at[NETS_Y];
    if (op->bias)
        nets_cuda_bias_relu(op->maps, x, args->at[NETS_B], y, op->rows, op->channels, mm_cuda_stream(stream));
    else
        nets_cuda_relu(op->maps, x, y, op->rows * op->channels, mm_cuda_stream(stream));
    return nets_cuda_launched(op->bias ? "relu with a bias" : "relu");
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const relu_op *op = (const relu_op *)base;
    const nets_cuda_gate gate = nets_cuda_gate_of(args);
    const void *dy = args->at[NETS_DY], *earlier = args->at[NETS_EARLIER];
    void *dx = args->at[NETS_DX];
    if (op->bias)
        nets_cuda_bias_relu_backward(op->maps, dy, gate, earlier, dx, &op->by_bias, args->at[NETS_WORKSPACE],
                                     args->at[NETS_DB], mm_cuda_stream(stream));
    else
        nets_cuda_relu_backward(op->maps, dy, gate, earlier, dx, op->rows * op->channels, mm_cuda_stream(stream));
    return nets_cuda_launched(op->bias ? "the gradient of relu with a bias" : "relu's gradient");
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const relu_op *op = (const relu_op *)base;
    return phase == MM_BACKWARD && op->by_bias.strips.rows ? nets_strips_bytes(&op->by_bias.strips) : 0;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    if (desc->attrs.bias) MM_TRY(nets_cuda_check_dims(desc));
    relu_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a relu");
    *op = (relu_op){.base.impl = &nets_cuda_op_relu,
                    .maps = desc->maps,
                    .bias = desc->attrs.bias,
                    .rows = nets_shape_rows(&desc->x[0]),
                    .channels = nets_shape_channels(&desc->x[0])};
    mm_status status = MM_OK;
    if (op->bias && desc->training)
        status = nets_cuda_reduction_init(&op->by_bias, (nets_cuda_backend *)backend, &desc->x[0]);
    if (status == MM_OK)
        *op_out = &op->base;
    else
        free(op);
    return status;
}

const nets_op_impl nets_cuda_op_relu = {NETS_CUDA_MAPS, create, nets_cuda_free, workspace_bytes, forward, backward};

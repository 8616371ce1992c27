/* SPDX-License-Identifier: MIT */
/* Layer norm: glue to op_layer_norm_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"
#include "nets/cuda/kernels/cuda_token_kernels.h"

typedef struct layer_norm_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_layer_norm norm;
} layer_norm_op;

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    void *const *at = args->at;
    const layer_norm_op *op = (const layer_norm_op *)base;
    nets_cuda_layer_norm_forward(op->maps, op->norm, at[NETS_X], at[NETS_W], at[NETS_B], at[NETS_Y],
                                 at[NETS_SAVED_MEAN], at[NETS_SAVED_VAR], mm_cuda_stream(stream));
    return nets_cuda_launched("layer norm");
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    void *const *at = args->at;
    const layer_norm_op *op = (const layer_norm_op *)base;
    nets_cuda_layer_norm_backward(op->maps, op->norm, at[NETS_X], at[NETS_W], at[NETS_SAVED_MEAN], at[NETS_SAVED_VAR],
                                  at[NETS_DY], at[NETS_EARLIER], at[NETS_WORKSPACE], at[NETS_DX], at[NETS_DW],
                                  at[NETS_DB], mm_cuda_stream(stream));
    return nets_cuda_launched("layer norm's gradient");
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    return phase == MM_BACKWARD ? nets_cuda_layer_norm_backward_bytes(((const layer_norm_op *)base)->norm) : 0;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    MM_TRY(nets_cuda_check_dims(desc));
    layer_norm_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a layer norm");
    op->base.impl = &nets_cuda_op_layer_norm;
    op->maps = desc->maps;
    op->norm = (nets_cuda_layer_norm){nets_shape_rows(&desc->y), (int)nets_shape_channels(&desc->y), desc->attrs.eps};
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_layer_norm = {NETS_CUDA_MAPS,  create,  nets_cuda_free,
                                              workspace_bytes, forward, backward};

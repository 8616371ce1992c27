/* SPDX-License-Identifier: MIT */
/* Layer norm and RMS norm: glue to op_layer_norm_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"
#include "nets/cuda/kernels/cuda_token_kernels.h"

typedef struct layer_norm_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_layer_norm norm;
} layer_norm_op;

/* What the forward saves; an RMS norm has only the factors. */
static float *means_of(const layer_norm_op *op, void *const *at) { return op->norm.rms ? NULL : at[NETS_SAVED_MEAN]; }
static float *factors_of(const layer_norm_op *op, void *const *at) {
    return at[op->norm.rms ? NETS_SAVED : NETS_SAVED_VAR];
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    void *const *at = args->at;
    const layer_norm_op *op = (const layer_norm_op *)base;
    nets_cuda_layer_norm_forward(op->maps, op->norm, at[NETS_X], at[NETS_W], op->norm.rms ? NULL : at[NETS_B],
                                 at[NETS_Y], means_of(op, at), factors_of(op, at), mm_cuda_stream(stream));
    return nets_cuda_launched("layer norm");
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    void *const *at = args->at;
    const layer_norm_op *op = (const layer_norm_op *)base;
    nets_cuda_layer_norm_backward(op->maps, op->norm, at[NETS_X], at[NETS_W], means_of(op, at), factors_of(op, at),
                                  at[NETS_DY], at[NETS_EARLIER], at[NETS_WORKSPACE], at[NETS_DX], at[NETS_DW],
                                  op->norm.rms ? NULL : at[NETS_DB], mm_cuda_stream(stream));
    return nets_cuda_launched("layer norm's gradient");
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    return phase == MM_BACKWARD ? nets_cuda_layer_norm_backward_bytes(((const layer_norm_op *)base)->norm) : 0;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    MM_TRY(nets_cuda_check_dims(desc));
    layer_norm_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    op->base.impl = backend->ops->impls[desc->kind];
    op->maps = desc->maps;
    op->norm = (nets_cuda_layer_norm){nets_shape_rows(&desc->y), (int)nets_shape_channels(&desc->y), desc->attrs.eps,
                                      desc->kind == NETS_RMS_NORM};
    *op_out = &op->base;
    return MM_OK;
}

#define NORM                                                                                                           \
    { NETS_CUDA_MAPS, create, nets_cuda_free, workspace_bytes, forward, backward }
const nets_op_impl nets_cuda_op_layer_norm = NORM, nets_cuda_op_rms_norm = NORM;

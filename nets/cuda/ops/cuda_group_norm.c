/* SPDX-License-Identifier: MIT */
/* Group norm: glue to op_images_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"

typedef struct group_norm_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_group_norm norm;
} group_norm_op;

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    void *const *at = args->at;
    const group_norm_op *op = (const group_norm_op *)base;
    nets_cuda_group_norm_forward(op->maps, op->norm, at[NETS_X], at[NETS_W], at[NETS_B], at[NETS_WORKSPACE], at[NETS_Y],
                                 at[NETS_SAVED_MEAN], at[NETS_SAVED_VAR], mm_cuda_stream(stream));
    return nets_cuda_launched("group norm");
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    void *const *at = args->at;
    const group_norm_op *op = (const group_norm_op *)base;
    nets_cuda_group_norm_backward(op->maps, op->norm, at[NETS_X], at[NETS_W], at[NETS_SAVED_MEAN], at[NETS_SAVED_VAR],
                                  at[NETS_DY], at[NETS_EARLIER], at[NETS_WORKSPACE], at[NETS_DX], at[NETS_DW],
                                  at[NETS_DB], mm_cuda_stream(stream));
    return nets_cuda_launched("group norm's gradient");
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    (void)phase;
    return nets_cuda_group_norm_bytes(((const group_norm_op *)base)->norm);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    MM_TRY(nets_cuda_check_dims(desc));
    const nets_shape *x = &desc->x[0];
    group_norm_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a group norm");
    op->base.impl = &nets_cuda_op_group_norm;
    op->maps = desc->maps;
    op->norm = (nets_cuda_group_norm){{x->dims[0], nets_shape_rows(x) / x->dims[0], (int)nets_shape_channels(x)},
                                      (int)desc->attrs.groups,
                                      desc->attrs.eps};
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_group_norm = {NETS_CUDA_MAPS,  create,  nets_cuda_free,
                                              workspace_bytes, forward, backward};

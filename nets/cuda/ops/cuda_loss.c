/* SPDX-License-Identifier: MIT */
/* The loss: glue to op_loss_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"

typedef struct loss_op {
    nets_op base;
    mm_dtype maps;           /* of scores; probabilities are f32 */
    nets_cuda_labels labels; /* without addresses, which every call sets */
} loss_op;

static nets_cuda_labels labels_of(const nets_op *op, const nets_op_args *args) {
    nets_cuda_labels labels = ((const loss_op *)op)->labels;
    labels.of = args->at[NETS_LABELS];
    labels.rng = args->at[NETS_RNG];
    return labels;
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    nets_cuda_loss(((const loss_op *)base)->maps, labels_of(base, args), args->at[NETS_X], args->at[NETS_WORKSPACE],
                   args->at[NETS_Y], args->at[NETS_LOSS_VALUE], args->at[NETS_CORRECT], mm_cuda_stream(stream));
    return nets_cuda_launched("the loss");
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    nets_cuda_loss_backward(((const loss_op *)base)->maps, labels_of(base, args), args->at[NETS_Y],
                            args->at[NETS_EARLIER], args->at[NETS_DX], mm_cuda_stream(stream));
    return nets_cuda_launched("the loss's gradient");
}

static int64_t workspace_bytes(const nets_op *op, mm_phase phase) {
    return phase == MM_FORWARD ? nets_cuda_loss_bytes(((const loss_op *)op)->labels.n) : 0;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    MM_TRY(nets_cuda_check_dims(desc));
    loss_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a loss");
    op->base.impl = &nets_cuda_op_loss;
    op->maps = desc->maps;
    const int64_t n = nets_shape_rows(&desc->x[0]), image = n / desc->x[0].dims[0];
    op->labels = (nets_cuda_labels){.n = n,
                                    .image = image,
                                    .whole = desc->pass.whole > 0 ? desc->pass.whole * image : n,
                                    .classes = (int)nets_shape_channels(&desc->x[0]),
                                    .adds = desc->pass.adds};
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_loss = {NETS_CUDA_MAPS, create, nets_cuda_free, workspace_bytes, forward, backward};

/* SPDX-License-Identifier: MIT */
/* Operations over each pixel's channels: local response normalisation and the loss; glue to op_lrn_kernels.cu and
 * op_loss_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"

/* ---------------------------------------------------------------- local response normalisation */

typedef struct lrn_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_lrn lrn;
} lrn_op;

static mm_status lrn_forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const lrn_op *op = (const lrn_op *)base;
    nets_cuda_lrn_forward(op->maps, op->lrn, args->at[NETS_X], args->at[NETS_Y], mm_cuda_stream(stream));
    return nets_cuda_launched("lrn");
}

static mm_status lrn_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const lrn_op *op = (const lrn_op *)base;
    nets_cuda_lrn_backward(op->maps, op->lrn, args->at[NETS_X], args->at[NETS_DY], args->at[NETS_EARLIER],
                           args->at[NETS_DX], mm_cuda_stream(stream));
    return nets_cuda_launched("lrn's gradient");
}

static mm_status create_lrn(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    MM_TRY(nets_cuda_check_dims(desc));
    int64_t half = desc->attrs.size / 2;
    if (half >= nets_shape_channels(&desc->x[0])) half = nets_shape_channels(&desc->x[0]) - 1; /* all channels */
    const nets_cuda_lrn lrn = {.pixels = nets_shape_rows(&desc->x[0]),
                               .channels = (int)nets_shape_channels(&desc->x[0]),
                               .half = (int)half,
                               .alpha = desc->attrs.alpha / (float)desc->attrs.size,
                               .beta = desc->attrs.beta,
                               .k = desc->attrs.k};
    if (!nets_cuda_lrn_fits(lrn))
        return mm_fail(MM_ERR_UNSUPPORTED, "an lrn of %d channels and windows of %d: too many for shared memory",
                       lrn.channels, 2 * lrn.half + 1);
    lrn_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for an lrn");
    op->base.impl = &nets_cuda_op_lrn;
    op->maps = desc->maps;
    op->lrn = lrn;
    *op_out = &op->base;
    return MM_OK;
}

/* ---------------------------------------------------------------- loss */

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

static mm_status loss_forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    nets_cuda_loss(((const loss_op *)base)->maps, labels_of(base, args), args->at[NETS_X], args->at[NETS_WORKSPACE],
                   args->at[NETS_Y], args->at[NETS_LOSS_VALUE], args->at[NETS_CORRECT], mm_cuda_stream(stream));
    return nets_cuda_launched("the loss");
}

static mm_status loss_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    nets_cuda_loss_backward(((const loss_op *)base)->maps, labels_of(base, args), args->at[NETS_Y],
                            args->at[NETS_EARLIER], args->at[NETS_DX], mm_cuda_stream(stream));
    return nets_cuda_launched("the loss's gradient");
}

static int64_t loss_workspace_bytes(const nets_op *op, mm_phase phase) {
    return phase == MM_FORWARD ? nets_cuda_loss_bytes(((const loss_op *)op)->labels.n) : 0;
}

static mm_status create_loss(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
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

static void destroy(nets_op *op) { free(op); }

const nets_op_impl nets_cuda_op_lrn = {NETS_CUDA_MAPS, create_lrn, destroy, NULL, lrn_forward, lrn_backward};
const nets_op_impl nets_cuda_op_loss = {NETS_CUDA_MAPS,       create_loss,  destroy,
                                        loss_workspace_bytes, loss_forward, loss_backward};

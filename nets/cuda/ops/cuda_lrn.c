/* SPDX-License-Identifier: MIT */
/* Local response normalisation: glue to op_lrn_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"

typedef struct lrn_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_lrn lrn;
} lrn_op;

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const lrn_op *op = (const lrn_op *)base;
    nets_cuda_lrn_forward(op->maps, op->lrn, args->at[NETS_X], args->at[NETS_Y], mm_cuda_stream(stream));
    return nets_cuda_launched("lrn");
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const lrn_op *op = (const lrn_op *)base;
    nets_cuda_lrn_backward(op->maps, op->lrn, args->at[NETS_X], args->at[NETS_DY], args->at[NETS_EARLIER],
                           args->at[NETS_DX], mm_cuda_stream(stream));
    return nets_cuda_launched("lrn's gradient");
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
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
    *op = (lrn_op){.base.impl = &nets_cuda_op_lrn, .maps = desc->maps, .lrn = lrn};
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_lrn = {NETS_CUDA_MAPS, create, nets_cuda_free, NULL, forward, backward};

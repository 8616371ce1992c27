/* SPDX-License-Identifier: MIT */
/* Batch norm, with the sum and the ReLU that follow it if they belong to the same layer: glue to
 * op_batch_norm_*kernels.cu. It normalises with the biased variance of the batch and saves the unbiased one in the
 * running statistics, as torch does. The workspace is the scratch of the reductions. If there is a ReLU but no sum, the
 * scratch also has the ReLU's sign mask. */
#include <stdlib.h>

#include "nets/contract/op_batch_norm.h"
#include "nets/cuda/cuda_ops.h"

typedef struct batch_norm_op {
    nets_op base;
    nets_cuda_batch_norm bn;
    bool training, wants_dx;
    bool alone; /* the layer has one input: nothing is added before the ReLU */
    mm_dtype maps;
} batch_norm_op;

static nets_cuda_code code_of(const nets_op_args *args, int which) {
    const mm_coded *coded = &args->coded[which];
    if (!coded->strips) return (nets_cuda_code){.blocks = MM_BLOCKS_NONE};
    return (nets_cuda_code){(mm_code_blocks)coded->strips->blocks, coded->code, coded->counters};
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const batch_norm_op *op = (const batch_norm_op *)base;
    cudaStream_t s = mm_cuda_stream(stream);
    float *mean = args->at[op->training ? NETS_SAVED_MEAN : NETS_MEAN];
    float *var = args->at[op->training ? NETS_SAVED_VAR : NETS_VAR];
    if (op->training && !(args->given_roles & NETS_STATISTICS_BITS))
        nets_cuda_batch_norm_statistics(op->maps, op->bn, args->at[NETS_X], args->at[NETS_WORKSPACE], mean, var,
                                        args->at[NETS_MEAN], args->at[NETS_VAR], s);
    const nets_cuda_code x = code_of(args, NETS_CODED_X), y = code_of(args, NETS_CODED_Y);
    if (x.code || y.code)
        nets_cuda_batch_norm_apply_and_encode(op->bn, args->at[NETS_X], args->at[NETS_X2], mean, var, args->at[NETS_W],
                                              args->at[NETS_B], args->at[NETS_Y], x, y.code, s);
    else
        nets_cuda_batch_norm_apply(op->maps, op->bn, args->at[NETS_X], args->at[NETS_X2], mean, var, args->at[NETS_W],
                                   args->at[NETS_B], args->at[NETS_Y], s);
    return nets_cuda_launched("a batch norm");
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const batch_norm_op *op = (const batch_norm_op *)base;
    const nets_cuda_gate open = {.y = NULL};
    const bool by_x = op->bn.relu && op->alone && args->at[NETS_X] && nets_knows_normalised(args);
    const nets_cuda_batch_norm_gradients g = {.gate = op->bn.relu && !by_x ? nets_cuda_gate_of(args) : open,
                                              .gate_by_x = by_x,
                                              .shift = args->at[NETS_B],
                                              .x = args->at[NETS_X],
                                              .mean = args->at[NETS_SAVED_MEAN],
                                              .var = args->at[NETS_SAVED_VAR],
                                              .scale = args->at[NETS_W],
                                              .dy = args->at[NETS_DY],
                                              .earlier = args->at[NETS_EARLIER],
                                              .earlier2 = args->at[NETS_EARLIER2],
                                              .dx = op->wants_dx ? args->at[NETS_DX] : NULL,
                                              .dx2 = args->at[NETS_DX2],
                                              .dscale = args->at[NETS_DW],
                                              .dshift = args->at[NETS_DB],
                                              .x_code = code_of(args, NETS_CODED_X)};
    if (g.x_code.code)
        nets_cuda_batch_norm_backward_of_code(op->bn, g, args->at[NETS_WORKSPACE], mm_cuda_stream(stream));
    else
        nets_cuda_batch_norm_backward(op->maps, op->bn, g, args->at[NETS_WORKSPACE], mm_cuda_stream(stream));
    return nets_cuda_launched("a batch norm's gradient");
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const batch_norm_op *op = (const batch_norm_op *)base;
    if (!op->training) return 0;
    return phase == MM_FORWARD ? nets_strips_bytes(&op->bn.over.strips) : nets_cuda_batch_norm_backward_bytes(op->bn);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    MM_TRY(nets_cuda_check_dims(desc));
    batch_norm_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a batch norm");
    *op = (batch_norm_op){.base.impl = &nets_cuda_op_batch_norm,
                          .bn = {.eps = desc->attrs.eps,
                                 .momentum = desc->attrs.momentum,
                                 .relu = desc->relu,
                                 .keep_mask = desc->relu && desc->wants_dx && desc->n_inputs == 1},
                          .training = desc->training,
                          .wants_dx = desc->wants_dx,
                          .alone = desc->n_inputs == 1,
                          .maps = desc->maps};
    /* Kernels encode and decode in registers, so codes need no workspace; kernels can do so only for f32 images. */
    if (desc->x[0].rank == 4 && desc->maps == MM_F32) op->base.code_needs.passes = op->wants_dx ? 2 : 1;
    mm_status status = nets_cuda_reduction_init(&op->bn.over, (nets_cuda_backend *)backend, &desc->x[0]);
    if (status != MM_OK) {
        free(op);
        return status;
    }
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_batch_norm = {NETS_CUDA_MAPS,  create,  nets_cuda_free,
                                              workspace_bytes, forward, backward};

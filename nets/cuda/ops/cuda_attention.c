/* SPDX-License-Identifier: MIT */
/* Attention: glue to op_attention_kernels.cu, and for causal attention to cuDNN's engines where these were chosen. */
#include <math.h>
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"
#include "nets/cuda/kernels/cuda_token_kernels.h"
#include "nets/cuda/libraries/cudnn_attention.h"

typedef struct attention_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_attention attention;
    nets_cudnn_attention dnn;
} attention_op;

static mm_status by_dnn(const attention_op *op, mm_phase phase, const nets_op_args *args, mm_stream *stream) {
    const nets_attention_tensors tensors = {.x = args->at[NETS_X],
                                            .y = args->at[NETS_Y],
                                            .log_sums = args->at[NETS_SAVED],
                                            .dy = args->at[NETS_DY],
                                            .dx = args->at[NETS_DX],
                                            .workspace = args->at[NETS_WORKSPACE]};
    cudnnHandle_t dnn;
    MM_TRY(nets_cuda_dnn_on(op->dnn.cuda, stream, &dnn));
    return nets_cudnn_attention_enqueue(&op->dnn.steps[phase], &op->attention, phase, &tensors);
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const attention_op *op = (const attention_op *)base;
    if (op->dnn.chosen) return by_dnn(op, MM_FORWARD, args, stream);
    nets_cuda_attention_forward(op->maps, op->attention, args->at[NETS_X], args->at[NETS_Y], args->at[NETS_SAVED],
                                mm_cuda_stream(stream));
    return nets_cuda_launched("an attention");
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const attention_op *op = (const attention_op *)base;
    if (op->dnn.chosen) return by_dnn(op, MM_BACKWARD, args, stream);
    nets_cuda_attention_backward(op->maps, op->attention, args->at[NETS_X], args->at[NETS_Y], args->at[NETS_DY],
                                 args->at[NETS_SAVED], args->at[NETS_EARLIER], args->at[NETS_WORKSPACE],
                                 args->at[NETS_DX], mm_cuda_stream(stream));
    return nets_cuda_launched("an attention's gradient");
}

static int64_t workspace_bytes(const nets_op *op, mm_phase phase) {
    return ((const attention_op *)op)->dnn.workspace_bytes[phase];
}

static void destroy(nets_op *base) {
    nets_cudnn_attention_fini(&((attention_op *)base)->dnn);
    free(base);
}

/* Whether cuDNN may compute this attention. Its graph here is of causal attention. cuDNN always saves what the backward
 * reads, cannot add to an earlier gradient, and wants heads that begin at multiples of 16 bytes. */
static bool may_be_dnn(const nets_op_desc *desc, int64_t size) {
    return desc->maps == MM_BF16 && !desc->attrs.full && size % 8 == 0 && desc->training && desc->wants_dx &&
           !desc->adds_earlier;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const int64_t size = nets_shape_channels(&desc->y) / desc->attrs.heads, samples = desc->y.dims[0];
    MM_TRY(nets_cuda_check_dims(desc));
    if (size > NETS_CUDA_HEAD_MOST || samples * desc->attrs.heads > NETS_CUDA_HEADS_MOST)
        return mm_fail(
            MM_ERR_UNSUPPORTED,
            "attention on device cuda takes heads of at most %d channels, and at most %d heads in all samples; "
            "this one has %lld heads of %lld channels",
            (int)NETS_CUDA_HEAD_MOST, (int)NETS_CUDA_HEADS_MOST, (long long)(samples * desc->attrs.heads),
            (long long)size);
    attention_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for an attention");
    op->base.impl = &nets_cuda_op_attention;
    op->maps = desc->maps;
    op->attention = (nets_cuda_attention){.samples = samples,
                                          .tokens = nets_shape_rows(&desc->y) / samples,
                                          .heads = (int)desc->attrs.heads,
                                          .kv_heads = (int)nets_kv_heads(&desc->attrs),
                                          .size = (int)size,
                                          .scale = 1.0f / sqrtf((float)size),
                                          .full = desc->attrs.full};
    mm_status status =
        nets_cudnn_attention_init(&op->dnn, (nets_cuda_backend *)backend, &op->attention, may_be_dnn(desc, size));
    if (status != MM_OK) {
        free(op);
        return status;
    }
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_attention = {NETS_CUDA_MAPS, create, destroy, workspace_bytes, forward, backward};

/* SPDX-License-Identifier: MIT */
/* Embeddings, positions and class tokens: glue to op_token_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"
#include "nets/cuda/kernels/cuda_token_kernels.h"

typedef struct embedding_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_tokens tokens;
} embedding_op;

/* ---------------------------------------------------------------- embedding */

static mm_status embed(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const embedding_op *op = (const embedding_op *)base;
    const void *halves = args->at[NETS_W16], *weight = halves ? halves : args->at[NETS_W];
    nets_cuda_embed(op->maps, op->tokens, args->at[NETS_X], halves ? MM_BF16 : MM_F32, weight, args->at[NETS_Y],
                    mm_cuda_stream(stream));
    return nets_cuda_launched("an embedding");
}

static mm_status embed_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const embedding_op *op = (const embedding_op *)base;
    nets_cuda_embed_backward(op->maps, op->tokens, args->at[NETS_X], args->at[NETS_DY], base->adds, args->at[NETS_DW],
                             mm_cuda_stream(stream));
    return nets_cuda_launched("an embedding's gradient");
}

/* ---------------------------------------------------------------- position */

static mm_status place(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const embedding_op *op = (const embedding_op *)base;
    nets_cuda_place(op->maps, op->tokens, args->at[NETS_X], args->at[NETS_W], args->at[NETS_Y], mm_cuda_stream(stream));
    return nets_cuda_launched("positions");
}

static mm_status place_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const embedding_op *op = (const embedding_op *)base;
    nets_cuda_place_backward(op->maps, op->tokens, args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX],
                             args->at[NETS_DW], mm_cuda_stream(stream));
    return nets_cuda_launched("positions' gradient");
}

/* ---------------------------------------------------------------- class token */

static mm_status put_token(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const embedding_op *op = (const embedding_op *)base;
    nets_cuda_class_token(op->maps, op->tokens, args->at[NETS_X], args->at[NETS_W], args->at[NETS_B], args->at[NETS_Y],
                          mm_cuda_stream(stream));
    return nets_cuda_launched("a class token");
}

static mm_status put_token_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const embedding_op *op = (const embedding_op *)base;
    nets_cuda_class_token_backward(op->maps, op->tokens, args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX],
                                   args->at[NETS_DW], args->at[NETS_DB], mm_cuda_stream(stream));
    return nets_cuda_launched("a class token's gradient");
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    MM_TRY(nets_cuda_check_dims(desc));
    embedding_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    const bool embeds = desc->kind == NETS_EMBEDDING;
    const int64_t rows = nets_shape_rows(&desc->y);
    op->base.impl = backend->ops->impls[desc->kind];
    op->base.adds = embeds && desc->training && (desc->pass.adds || desc->shared);
    op->maps = desc->maps;
    op->tokens = (nets_cuda_tokens){.rows = rows,
                                    .places = rows / desc->y.dims[0],
                                    .channels = nets_shape_channels(&desc->y),
                                    .vocabulary = desc->attrs.vocabulary};
    *op_out = &op->base;
    return MM_OK;
}

/* An embedding's tokens are the batch, f32. */
const nets_op_impl nets_cuda_op_embedding = {
    NETS_CUDA_MAPS | NETS_MIXED, create, nets_cuda_free, NULL, embed, embed_backward};
const nets_op_impl nets_cuda_op_position = {NETS_CUDA_MAPS, create, nets_cuda_free, NULL, place, place_backward};
const nets_op_impl nets_cuda_op_class_token = {NETS_CUDA_MAPS, create,    nets_cuda_free,
                                               NULL,           put_token, put_token_backward};

/* SPDX-License-Identifier: MIT */
/* Operations of transformers: glue to op_token_kernels.cu and op_layer_norm_kernels.cu. */
#include <stdlib.h>

#include "nets/cuda/cuda_ops.h"
#include "nets/cuda/kernels/cuda_token_kernels.h"

typedef struct tokens_op {
    nets_op base;
    mm_dtype maps;
    nets_cuda_tokens tokens;
    nets_cuda_layer_norm norm;
    int64_t elems;
    bool by_tanh;
} tokens_op;

static mm_status create(const nets_op_impl *impl, const nets_op_desc *desc, nets_op **op_out) {
    MM_TRY(nets_cuda_check_dims(desc));
    tokens_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    const int64_t rows = nets_shape_rows(&desc->y);
    op->base.impl = impl;
    op->maps = desc->maps;
    op->tokens = (nets_cuda_tokens){.rows = rows,
                                    .places = rows / desc->y.dims[0],
                                    .channels = nets_shape_channels(&desc->y),
                                    .vocabulary = desc->attrs.vocabulary};
    op->norm = (nets_cuda_layer_norm){rows, (int)nets_shape_channels(&desc->y), desc->attrs.eps};
    op->elems = nets_shape_elems(&desc->y);
    op->by_tanh = desc->attrs.tanh;
    *op_out = &op->base;
    return MM_OK;
}

static void destroy(nets_op *op) { free(op); }

/* ---------------------------------------------------------------- embedding */

static mm_status embed(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const tokens_op *op = (const tokens_op *)base;
    nets_cuda_embed(op->maps, op->tokens, args->at[NETS_X], args->at[NETS_W], args->at[NETS_Y], mm_cuda_stream(stream));
    return nets_cuda_launched("an embedding");
}

static mm_status embed_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const tokens_op *op = (const tokens_op *)base;
    nets_cuda_embed_backward(op->maps, op->tokens, args->at[NETS_X], args->at[NETS_DY], base->adds, args->at[NETS_DW],
                             mm_cuda_stream(stream));
    return nets_cuda_launched("an embedding's gradient");
}

static mm_status create_embedding(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    MM_TRY(create(&nets_cuda_op_embedding, desc, op_out));
    (*op_out)->adds = desc->training && (desc->pass.adds || desc->shared);
    return MM_OK;
}

/* ---------------------------------------------------------------- position */

static mm_status place(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const tokens_op *op = (const tokens_op *)base;
    nets_cuda_place(op->maps, op->tokens, args->at[NETS_X], args->at[NETS_W], args->at[NETS_Y], mm_cuda_stream(stream));
    return nets_cuda_launched("positions");
}

static mm_status place_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const tokens_op *op = (const tokens_op *)base;
    nets_cuda_place_backward(op->maps, op->tokens, args->at[NETS_DY], args->at[NETS_EARLIER], args->at[NETS_DX],
                             args->at[NETS_DW], mm_cuda_stream(stream));
    return nets_cuda_launched("positions' gradient");
}

static mm_status create_position(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    return create(&nets_cuda_op_position, desc, op_out);
}

/* ---------------------------------------------------------------- layer norm */

static mm_status norm(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    void *const *at = args->at;
    const tokens_op *op = (const tokens_op *)base;
    nets_cuda_layer_norm_forward(op->maps, op->norm, at[NETS_X], at[NETS_W], at[NETS_B], at[NETS_Y],
                                 at[NETS_SAVED_MEAN], at[NETS_SAVED_VAR], mm_cuda_stream(stream));
    return nets_cuda_launched("layer norm");
}

static mm_status norm_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    void *const *at = args->at;
    const tokens_op *op = (const tokens_op *)base;
    nets_cuda_layer_norm_backward(op->maps, op->norm, at[NETS_X], at[NETS_W], at[NETS_SAVED_MEAN], at[NETS_SAVED_VAR],
                                  at[NETS_DY], at[NETS_EARLIER], at[NETS_WORKSPACE], at[NETS_DX], at[NETS_DW],
                                  at[NETS_DB], mm_cuda_stream(stream));
    return nets_cuda_launched("layer norm's gradient");
}

static int64_t norm_workspace_bytes(const nets_op *base, mm_phase phase) {
    return phase == MM_BACKWARD ? nets_cuda_layer_norm_backward_bytes(((const tokens_op *)base)->norm) : 0;
}

static mm_status create_norm(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    return create(&nets_cuda_op_layer_norm, desc, op_out);
}

/* ---------------------------------------------------------------- GELU */

static mm_status gelu(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const tokens_op *op = (const tokens_op *)base;
    nets_cuda_gelu(op->maps, op->by_tanh, args->at[NETS_X], args->at[NETS_Y], op->elems, mm_cuda_stream(stream));
    return nets_cuda_launched("gelu");
}

static mm_status gelu_backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const tokens_op *op = (const tokens_op *)base;
    nets_cuda_gelu_backward(op->maps, op->by_tanh, args->at[NETS_X], args->at[NETS_DY], args->at[NETS_EARLIER],
                            args->at[NETS_DX], op->elems, mm_cuda_stream(stream));
    return nets_cuda_launched("gelu's gradient");
}

static mm_status create_gelu(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    (void)backend;
    return create(&nets_cuda_op_gelu, desc, op_out);
}

/* An embedding's tokens are the batch, f32. */
const nets_op_impl nets_cuda_op_embedding = {
    NETS_CUDA_MAPS | NETS_MIXED, create_embedding, destroy, NULL, embed, embed_backward};
const nets_op_impl nets_cuda_op_position = {NETS_CUDA_MAPS, create_position, destroy, NULL, place, place_backward};
const nets_op_impl nets_cuda_op_layer_norm = {NETS_CUDA_MAPS,       create_norm, destroy,
                                              norm_workspace_bytes, norm,        norm_backward};
const nets_op_impl nets_cuda_op_gelu = {NETS_CUDA_MAPS, create_gelu, destroy, NULL, gelu, gelu_backward};

/* SPDX-License-Identifier: MIT */
/* Convolution and transposed convolution. The transposed one is the gradient of a convolution that leads from its
 * output to its input, and has that one's weights: its three parts are the same, with forward and gradient by the input
 * exchanged. Our own kernels add biases and sum their gradients. Weights and their gradients are OHWI (op_order.h), as
 * cuDNN wants them.
 *
 * A phase's parts use the workspace one after the other. It may have several sizes; each part runs by its fastest
 * algorithm that fits. bf16 copies lie in front of the library's workspace:
 *
 *   0           rounded_bytes          + dw16_bytes
 *   | the batch | weights' gradients   | the library's own |   gradients: in the backward; converted to f32 afterwards
 */
#include <stdlib.h>

#include "nets/cuda/libraries/cudnn_conv.h"

typedef struct conv_op {
    nets_op base;
    nets_cudnn_conv y, dx, dw; /* compute Y, DX and DW; dx and dw are not created if they are not wanted */
    bool transposed, training, wants_dx, adds_earlier, bias, bf16, frozen;
    int64_t rounded_bytes; /* of the bf16 copy of a batch in f32; 0: none */
    int64_t dw16_bytes;    /* of the weights' gradients in bf16, in the backward; 0: DW is computed in f32 */
    int64_t x_elems, w_elems, y_rows, y_channels;
    nets_cuda_reduction by_bias; /* sums the bias's gradient; all zero if there is no bias */
} conv_op;

static mm_status enqueue(const conv_op *op, const nets_cudnn_conv *part, void *x, void *y, void *weights,
                         const nets_op_args *args, mm_phase phase, mm_stream *stream) {
    const int64_t bytes = nets_op_workspace_within(&op->base, phase, args->workspace_bytes);
    const int64_t before = op->rounded_bytes + (phase == MM_BACKWARD ? op->dw16_bytes : 0);
    const nets_conv_tensors at = {.x = x,
                                  .y = y,
                                  .weights = weights,
                                  .workspace = (char *)args->at[NETS_WORKSPACE] + before,
                                  .workspace_bytes = bytes - before};
    return nets_cudnn_conv_enqueue(part, &at, stream);
}

/* The input as the library reads it. */
static void *input_of(const conv_op *op, const nets_op_args *args, mm_stream *stream) {
    if (!op->rounded_bytes) return args->at[NETS_X];
    nets_cuda_convert(MM_F32, args->at[NETS_X], MM_BF16, args->at[NETS_WORKSPACE], op->x_elems, mm_cuda_stream(stream));
    return args->at[NETS_WORKSPACE];
}

/* Enqueues a part that applies the weights, and computes Y or DX. */
static mm_status apply(const conv_op *op, const nets_cudnn_conv *part, const nets_op_args *args, void *in,
                       nets_role out, mm_stream *stream) {
    bool forward = part->shape.direction == NETS_CONV_FORWARD;
    return enqueue(op, part, forward ? in : args->at[out], forward ? args->at[out] : in,
                   args->at[op->bf16 ? NETS_W16 : NETS_W], args, out == NETS_Y ? MM_FORWARD : MM_BACKWARD, stream);
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const conv_op *op = (const conv_op *)base;
    MM_TRY(apply(op, &op->y, args, input_of(op, args, stream), NETS_Y, stream));
    if (args->at[NETS_B])
        nets_cuda_add_bias(MM_F32, args->at[NETS_Y], args->at[NETS_B], op->y_rows, op->y_channels,
                           mm_cuda_stream(stream));
    return nets_cuda_launched("a convolution");
}

static mm_status backward_weights(const conv_op *op, const nets_op_args *args, mm_stream *stream) {
    void *x = input_of(op, args, stream), *dy = args->at[NETS_DY];
    void *dw = op->dw16_bytes ? (char *)args->at[NETS_WORKSPACE] + op->rounded_bytes : args->at[NETS_DW];
    MM_TRY(enqueue(op, &op->dw, op->transposed ? dy : x, op->transposed ? x : dy, dw, args, MM_BACKWARD, stream));
    if (op->dw16_bytes) nets_cuda_convert(MM_BF16, dw, MM_F32, args->at[NETS_DW], op->w_elems, mm_cuda_stream(stream));
    if (args->at[NETS_DB])
        nets_cuda_sum_rows(MM_F32, args->at[NETS_DY], &op->by_bias, args->at[NETS_WORKSPACE], args->at[NETS_DB],
                           mm_cuda_stream(stream));
    return MM_OK;
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const conv_op *op = (const conv_op *)base;
    MM_TRY(nets_cuda_check_earlier(args, op->adds_earlier));
    if (!op->frozen) MM_TRY(backward_weights(op, args, stream));
    if (op->wants_dx) {
        MM_TRY(nets_cuda_put_earlier(args, op->bf16 ? MM_BF16 : MM_F32, op->x_elems, stream));
        MM_TRY(apply(op, &op->dx, args, args->at[NETS_DY], NETS_DX, stream));
    }
    return nets_cuda_launched("a convolution's gradients");
}

static void destroy(nets_op *base) {
    conv_op *op = (conv_op *)base;
    nets_cudnn_conv_fini(&op->y);
    nets_cudnn_conv_fini(&op->dx);
    nets_cudnn_conv_fini(&op->dw);
    free(op);
}

/* ---------------------------------------------------------------- creation */

/* The shape of the convolution that has the weights. For a transposed one, it leads from its output to its input. */
static nets_conv_shape shape_of(const nets_op_desc *desc, bool transposed) {
    nets_conv_shape s = {.groups = (int)desc->attrs.groups, .bf16 = desc->maps == MM_BF16 ? NETS_CONV_BF16 : 0};
    for (int d = 0; d < 4; d++) {
        s.x[d] = (int)(transposed ? &desc->y : &desc->x[0])->dims[d];
        s.y[d] = (int)(transposed ? &desc->x[0] : &desc->y)->dims[d];
    }
    for (int d = 0; d < 2; d++) {
        s.kernel[d] = (int)desc->attrs.kernel[d];
        s.stride[d] = (int)desc->attrs.stride[d];
        s.pad[d] = (int)desc->attrs.pad[d];
        s.dilation[d] = (int)desc->attrs.dilation[d];
    }
    return s;
}

/* Algorithms for bf16 gradients are chosen by the terms that hold for outputs, too: algorithms that are not
 * deterministic add to the result in memory, so they would round each partial sum. */
static mm_status make_part(nets_cudnn_conv *part, nets_cuda_backend *cuda, nets_conv_shape shape,
                           nets_direction direction, bool adds, bool is_output) {
    const nets_conv_terms of_outputs = nets_cudnn_output_terms(&cuda->terms);
    shape.direction = direction;
    shape.adds = adds;
    return nets_cudnn_conv_init(part, cuda, &shape,
                                is_output || nets_conv_gives_bf16(&shape) ? &of_outputs : &cuda->terms);
}

static mm_status make_parts(conv_op *op, nets_backend *backend, const nets_conv_shape *s) {
    nets_direction there = NETS_CONV_FORWARD, back = NETS_CONV_BY_INPUT;
    nets_cuda_backend *cuda = (nets_cuda_backend *)backend;
    MM_TRY(make_part(&op->y, cuda, *s, op->transposed ? back : there, false, true));
    if (!op->training) return MM_OK;
    nets_conv_shape dw = *s;
    dw.direction = NETS_CONV_BY_WEIGHTS;
    if (nets_conv_gives_bf16(&dw) && !op->frozen)
        op->dw16_bytes = nets_aligned(op->w_elems * (int64_t)sizeof(uint16_t));
    if (!op->frozen) MM_TRY(make_part(&op->dw, cuda, dw, dw.direction, false, false));
    if (!op->wants_dx) return MM_OK;
    return make_part(&op->dx, cuda, *s, op->transposed ? there : back, op->adds_earlier, false);
}

static void set_workspaces(conv_op *op) {
    const nets_cudnn_conv *const forward[] = {&op->y}, *const backward[] = {&op->dw, &op->dx};
    nets_conv_room room = {.before = op->rounded_bytes};
    nets_cudnn_conv_set_workspaces(&op->base, MM_FORWARD, forward, 1, room);
    room.before += op->dw16_bytes;
    if (op->bias) room.least = nets_strips_bytes(&op->by_bias.strips);
    if (op->training) nets_cudnn_conv_set_workspaces(&op->base, MM_BACKWARD, backward, 2, room);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, const nets_op_impl *impl, nets_op **op_out) {
    bool transposed = desc->kind == NETS_CONV_TRANSPOSE;
    const bool bf16 = desc->maps == MM_BF16;
    MM_TRY(nets_cuda_check_dims(desc));
    if (bf16 && desc->attrs.bias) /* Y would be rounded twice: before and after the bias is added */
        return mm_fail(MM_ERR_UNSUPPORTED, "a %s of bf16 maps with a bias is not supported", nets_op_name(desc->kind));
    if (bf16 && desc->f32_inputs && desc->wants_dx)
        return mm_fail(MM_ERR_UNSUPPORTED, "a %s of bf16 maps has no gradient for the batch", nets_op_name(desc->kind));
    conv_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a %s", nets_op_name(desc->kind));
    const nets_conv_shape s = shape_of(desc, transposed);
    op->base.impl = impl;
    op->transposed = transposed;
    op->training = desc->training;
    op->wants_dx = desc->wants_dx;
    op->adds_earlier = desc->adds_earlier;
    op->bias = desc->attrs.bias;
    op->bf16 = bf16;
    op->frozen = desc->frozen;
    op->x_elems = nets_shape_elems(&desc->x[0]);
    if (bf16 && desc->f32_inputs) op->rounded_bytes = nets_aligned(op->x_elems * (int64_t)sizeof(uint16_t));
    op->w_elems = (int64_t)s.y[3] * s.kernel[0] * s.kernel[1] * (s.x[3] / s.groups);
    op->y_rows = nets_shape_rows(&desc->y);
    op->y_channels = nets_shape_channels(&desc->y);
    mm_status status = make_parts(op, backend, &s);
    if (status == MM_OK && op->training && op->bias)
        status = nets_cuda_reduction_init(&op->by_bias, (nets_cuda_backend *)backend, &desc->y);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    set_workspaces(op);
    *op_out = &op->base;
    return MM_OK;
}

static mm_status create_conv(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    return create(backend, desc, &nets_cuda_op_conv, op_out);
}

static mm_status create_conv_transpose(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    return create(backend, desc, &nets_cuda_op_conv_transpose, op_out);
}

enum { MAPS = NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16) };

const nets_op_impl nets_cuda_op_conv = {MAPS | NETS_MIXED, create_conv, destroy, NULL, forward, backward};
const nets_op_impl nets_cuda_op_conv_transpose = {MAPS | NETS_MIXED, create_conv_transpose, destroy, NULL, forward,
                                                  backward};

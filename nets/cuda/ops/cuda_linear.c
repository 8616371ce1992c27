/* SPDX-License-Identifier: MIT */
/* The fully connected layer: a convolution of images of one pixel, with all features as channels.
 *
 * Features are counted in torch's order, channel by channel. An image of more than one pixel is stored pixel by pixel,
 * so the batch is transposed in the workspace, and its gradient is transposed back:
 *
 *   0                  planes_bytes
 *   | images as planes | the library's own |
 *   | the reduction of the bias's gradient |   after the products
 *
 * The library's own workspace may have several sizes; a product runs by its fastest algorithm that fits. If the maps
 * are bf16, a batch in f32 is rounded to bf16 at the planes' end before it is transposed, and outputs that get a bias
 * lie in f32 behind the planes, so that the sum is rounded once. The library then gives the bias's gradient where that
 * is faster (bias_gradient.h).
 *
 * A pass that adds to the gradients of earlier ones (nets_pass) computes the weights' gradients in blocks of the
 * output's features. At the workspace's end, behind the library's own, lie a packed copy of the block's columns of dy
 * and the block's gradients, and after the products the bias's gradient.
 */
#include <stdlib.h>

#include "mm/core/graph/dtype.h"
#include "nets/cuda/libraries/bias_gradient.h"

/* The largest workspace that cuBLAS's documentation recommends, 32 MiB on Hopper; also the limit for tensor cores. */
#define LIMIT_BYTES (INT64_C(32) << 20)

/* Bytes of a block of weights' gradients that are added to earlier ones; a block has at least four rows, however large
 * they are. Chosen: launches are few, and a block takes less memory than the first layers' maps. */
enum { BLOCK_BYTES = 8 << 20 };

typedef struct linear_op {
    nets_op base;
    nets_cudnn_conv y, dx, dw; /* compute Y, DX and DW; dx and dw are not created if they are not wanted */
    nets_cudnn_conv dw_rest;   /* dw of the last block, if that is smaller */
    int block;                 /* features of the output whose weights' gradients are computed at a time */
    int64_t added_bytes;       /* with adds: of a block's columns of dy and, behind them, its gradients; else 0 */
    int batch, in, out;
    int64_t pixels, channels; /* of an image */
    int64_t planes_bytes;     /* of the planes, rounded_bytes included */
    int64_t rounded_bytes;    /* of the bf16 copy of a batch in f32; 0: none */
    int64_t sums_bytes;       /* behind the planes in the forward: f32 outputs without their bias; 0: none */
    mm_dtype maps;
    bool training, wants_dx, bias, frozen;
    bool sums_bias;              /* dw gives the bias's gradient, too */
    bool dx_adds;                /* the library adds DX to an earlier contribution, so that the sum is rounded once */
    nets_cuda_reduction by_bias; /* sums the bias's gradient; all zero if there is no bias */
} linear_op;

static int64_t elem_bytes(const linear_op *op) { return mm_dtype_table[op->maps].bytes; }

static void *weight(const linear_op *op, const nets_op_args *args) {
    return args->at[op->maps == MM_BF16 ? NETS_W16 : NETS_W];
}

static void *planes(const nets_op_args *args) { return args->at[NETS_WORKSPACE]; }

/* Bytes of a phase's workspace without added_bytes. */
static int64_t products_bytes(const linear_op *op, mm_phase phase, const nets_op_args *args) {
    const int64_t bytes = nets_op_workspace_within(&op->base, phase, args->workspace_bytes);
    return phase == MM_FORWARD ? bytes : bytes - op->added_bytes;
}

static mm_status multiply(const linear_op *op, const nets_cudnn_conv *part, const nets_op_args *args, void *x, void *y,
                          void *weights, mm_stream *stream) {
    const mm_phase phase = part == &op->y ? MM_FORWARD : MM_BACKWARD;
    const int64_t before = op->planes_bytes + (phase == MM_FORWARD ? op->sums_bytes : 0);
    const nets_conv_tensors at = {.x = x,
                                  .y = y,
                                  .weights = weights,
                                  .extra = part == &op->dw && op->sums_bias ? args->at[NETS_DB] : NULL,
                                  .workspace = (char *)args->at[NETS_WORKSPACE] + before,
                                  .workspace_bytes = products_bytes(op, phase, args) - before};
    return nets_cudnn_conv_enqueue(part, &at, stream);
}

/* The batch with its features in torch's order. */
static void *get_features(const linear_op *op, const nets_op_args *args, mm_stream *stream) {
    void *x = args->at[NETS_X];
    if (op->rounded_bytes) {
        void *rounded = (char *)planes(args) + op->planes_bytes - op->rounded_bytes;
        nets_cuda_convert(MM_F32, x, MM_BF16, rounded, (int64_t)op->batch * op->in, mm_cuda_stream(stream));
        x = rounded;
    }
    if (op->pixels == 1) return x;
    nets_cuda_transpose(op->maps, x, planes(args), op->batch, op->pixels, op->channels, mm_cuda_stream(stream));
    return planes(args);
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const linear_op *op = (const linear_op *)base;
    void *y = args->at[NETS_Y];
    void *product = op->sums_bytes ? (char *)args->at[NETS_WORKSPACE] + op->planes_bytes : y;
    MM_TRY(multiply(op, &op->y, args, get_features(op, args, stream), product, weight(op, args), stream));
    if (op->sums_bytes)
        nets_cuda_add_bias_bf16(product, args->at[NETS_B], y, op->batch, op->out, mm_cuda_stream(stream));
    else if (op->bias)
        nets_cuda_add_bias(op->maps, y, args->at[NETS_B], op->batch, op->out, mm_cuda_stream(stream));
    return nets_cuda_launched("a linear layer");
}

static mm_status backward_data(const linear_op *op, const nets_op_args *args, mm_stream *stream) {
    void *dx = args->at[NETS_DX];
    void *features = op->pixels == 1 ? dx : planes(args);
    if (op->dx_adds) MM_TRY(nets_cuda_put_earlier(args, op->maps, (int64_t)op->batch * op->in, stream));
    MM_TRY(multiply(op, &op->dx, args, features, args->at[NETS_DY], weight(op, args), stream));
    if (op->pixels > 1)
        nets_cuda_transpose(op->maps, features, dx, op->batch, op->channels, op->pixels, mm_cuda_stream(stream));
    if (args->at[NETS_EARLIER] && !op->dx_adds)
        nets_cuda_sum(MM_F32, dx, args->at[NETS_EARLIER], dx, (int64_t)op->batch * op->in, mm_cuda_stream(stream));
    return MM_OK;
}

static int64_t columns_bytes(const linear_op *op) {
    return nets_aligned((int64_t)op->batch * op->block * elem_bytes(op));
}

static char *added(const linear_op *op, const nets_op_args *args) {
    return (char *)args->at[NETS_WORKSPACE] + products_bytes(op, MM_BACKWARD, args);
}

static mm_status add_weights_gradient(const linear_op *op, const nets_op_args *args, void *features,
                                      mm_stream *stream) {
    char *columns = added(op, args);
    float *gradient = (float *)(columns + columns_bytes(op));
    for (int first = 0; first < op->out; first += op->block) {
        const int n = op->out - first < op->block ? op->out - first : op->block;
        const nets_cuda_rows rows = {.rows = op->batch, .width = n, .from_pitch = op->out, .to_pitch = n};
        nets_cuda_copy_rows(op->maps, rows, (const char *)args->at[NETS_DY] + first * elem_bytes(op), NULL, columns,
                            mm_cuda_stream(stream));
        MM_TRY(multiply(op, n < op->block ? &op->dw_rest : &op->dw, args, features, columns, gradient, stream));
        float *sum = (float *)args->at[NETS_DW] + (int64_t)first * op->in;
        nets_cuda_sum(MM_F32, sum, gradient, sum, (int64_t)n * op->in, mm_cuda_stream(stream));
    }
    return MM_OK;
}

static void give_bias_gradient(const linear_op *op, const nets_op_args *args, mm_stream *stream) {
    float *sum = args->at[NETS_DB], *gradient = op->base.adds ? (float *)added(op, args) : sum;
    nets_cuda_sum_rows(op->maps, args->at[NETS_DY], &op->by_bias, args->at[NETS_WORKSPACE], gradient,
                       mm_cuda_stream(stream));
    if (op->base.adds) nets_cuda_sum(MM_F32, sum, gradient, sum, op->out, mm_cuda_stream(stream));
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const linear_op *op = (const linear_op *)base;
    if (op->dx_adds) MM_TRY(nets_cuda_check_earlier(args, true));
    void *features = op->frozen ? NULL : get_features(op, args, stream);
    if (!op->frozen)
        MM_TRY(op->base.adds ? add_weights_gradient(op, args, features, stream)
                             : multiply(op, &op->dw, args, features, args->at[NETS_DY], args->at[NETS_DW], stream));
    if (op->wants_dx) MM_TRY(backward_data(op, args, stream));
    if (args->at[NETS_DB] && !op->sums_bias) give_bias_gradient(op, args, stream);
    return nets_cuda_launched("a linear layer's gradients");
}

static int64_t added_bytes(const linear_op *op) {
    const int64_t bias = op->bias ? op->out * (int64_t)sizeof(float) : 0;
    return nets_larger(columns_bytes(op) + (int64_t)op->block * op->in * (int64_t)sizeof(float), bias);
}

static void set_workspaces(linear_op *op) {
    const nets_cudnn_conv *const forward[] = {&op->y}, *const backward[] = {&op->dw, &op->dw_rest, &op->dx};
    nets_conv_room room = {.before = op->planes_bytes + op->sums_bytes};
    nets_cudnn_conv_set_workspaces(&op->base, MM_FORWARD, forward, 1, room);
    room.before = op->planes_bytes;
    if (op->bias && !op->sums_bias) room.least = nets_strips_bytes(&op->by_bias.strips);
    room.behind = op->added_bytes = op->base.adds ? added_bytes(op) : 0;
    if (op->training) nets_cudnn_conv_set_workspaces(&op->base, MM_BACKWARD, backward, 3, room);
}

static void destroy(nets_op *base) {
    linear_op *op = (linear_op *)base;
    nets_cudnn_conv_fini(&op->y);
    nets_cudnn_conv_fini(&op->dx);
    nets_cudnn_conv_fini(&op->dw);
    nets_cudnn_conv_fini(&op->dw_rest);
    free(op);
}

/* ---------------------------------------------------------------- creation */

/* Creates a product for `out` of the output's features. */
static mm_status make_part(linear_op *op, nets_cuda_backend *cuda, nets_direction direction, int out,
                           const nets_conv_terms *terms, nets_cudnn_conv *part) {
    const bool to_f32 = direction == NETS_CONV_FORWARD && op->sums_bytes;
    const int bf16 = op->maps != MM_BF16 ? 0 : to_f32 ? NETS_CONV_BF16_TO_F32 : NETS_CONV_BF16;
    nets_conv_shape shape = nets_product_shape(direction, op->batch, op->in, out, bf16);
    shape.adds = direction == NETS_CONV_BY_INPUT && op->dx_adds;
    if (part != &op->dw || !bf16 || !op->bias || op->base.adds) return nets_cudnn_conv_init(part, cuda, &shape, terms);
    return nets_bias_gradient_init(part, cuda, &shape, terms, NETS_CONV_BF16_SUMS_Y, &op->by_bias, &op->sums_bias);
}

/* y: the output's shape. */
static mm_status make_parts(linear_op *op, nets_backend *backend, const nets_shape *y) {
    nets_cuda_backend *cuda = (nets_cuda_backend *)backend;
    const int64_t limit = cuda->terms.limit_bytes < LIMIT_BYTES ? cuda->terms.limit_bytes : LIMIT_BYTES;
    const nets_conv_terms of_gradients = {cuda->terms.deterministic, limit, limit};
    const nets_conv_terms of_y = nets_cudnn_output_terms(&of_gradients);
    MM_TRY(make_part(op, cuda, NETS_CONV_FORWARD, op->out, &of_y, &op->y));
    if (op->training && op->bias) MM_TRY(nets_cuda_reduction_init(&op->by_bias, cuda, y));
    if (op->training && !op->frozen)
        MM_TRY(make_part(op, cuda, NETS_CONV_BY_WEIGHTS, op->block, &of_gradients, &op->dw));
    if (op->out % op->block)
        MM_TRY(make_part(op, cuda, NETS_CONV_BY_WEIGHTS, op->out % op->block, &of_gradients, &op->dw_rest));
    if (op->wants_dx) MM_TRY(make_part(op, cuda, NETS_CONV_BY_INPUT, op->out, &of_gradients, &op->dx));
    return MM_OK;
}

/* A multiple of four, because kernels take four at a time. */
static int features_of_block(int in, int out) {
    const int64_t n = BLOCK_BYTES / ((int64_t)in * (int64_t)sizeof(float)) / 4 * 4, block = n > 4 ? n : 4;
    return block < out ? (int)block : out;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    int64_t pixels = nets_shape_rows(&desc->x[0]) / desc->x[0].dims[0];
    int64_t in = pixels * nets_shape_channels(&desc->x[0]);
    MM_TRY(nets_cuda_check_dims(desc));
    if (in > INT32_MAX)
        return mm_fail(MM_ERR_UNSUPPORTED, "a linear layer has %lld input features, at most %d", (long long)in,
                       INT32_MAX);
    if (desc->maps == MM_BF16 && desc->adds_earlier && pixels > 1) /* DX would be rounded before and after the sum */
        return mm_fail(MM_ERR_UNSUPPORTED, "a linear layer of bf16 images cannot add to an earlier gradient");
    if (desc->maps == MM_BF16 && desc->f32_inputs && desc->wants_dx)
        return mm_fail(
            MM_ERR_UNSUPPORTED,
            "a linear layer of bf16 maps cannot compute the gradient with respect to the batch, which is f32");
    linear_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a linear layer");
    op->base.impl = &nets_cuda_op_linear;
    op->maps = desc->maps;
    op->batch = (int)desc->x[0].dims[0];
    op->in = (int)in;
    op->out = (int)nets_shape_channels(&desc->y);
    op->pixels = pixels;
    op->channels = nets_shape_channels(&desc->x[0]);
    op->training = desc->training;
    op->wants_dx = desc->wants_dx;
    op->dx_adds = desc->maps == MM_BF16 && desc->adds_earlier;
    op->bias = desc->attrs.bias;
    op->frozen = desc->frozen;
    op->base.adds = desc->training && desc->pass.adds && !desc->frozen;
    op->block = op->base.adds ? features_of_block(op->in, op->out) : op->out;
    const int64_t features_bytes = nets_aligned(nets_shape_elems(&desc->x[0]) * elem_bytes(op));
    if (op->maps == MM_BF16 && desc->f32_inputs) op->rounded_bytes = features_bytes;
    op->planes_bytes = (pixels > 1 ? features_bytes : 0) + op->rounded_bytes;
    if (op->bias && op->maps == MM_BF16)
        op->sums_bytes = nets_aligned((int64_t)op->batch * op->out * (int64_t)sizeof(float));
    mm_status status = make_parts(op, backend, &desc->y);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    set_workspaces(op);
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_linear = {NETS_CUDA_MAPS | NETS_MIXED, create, destroy, NULL, forward, backward};

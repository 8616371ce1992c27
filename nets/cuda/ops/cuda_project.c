/* SPDX-License-Identifier: MIT */
/* The linear layer of tokens, whose weights are [in][out]. It is described as a convolution C of single pixels in the
 * other direction, from Y's channels to X's.
 *
 *   Y = X W          C's gradient by its input, for X
 *   DX = DY W^T      C, for DY
 *   DW = X^T DY      C's gradient by its weights
 *
 * The library itself adds to an earlier contribution, so that with bf16 maps the sum is rounded once. With bf16 maps it
 * also adds the bias to its f32 sums, and gives the bias's gradient where that is faster (bias_gradient.h). cuBLASLt
 * wants a bf16 bias with a bf16 result, so the bias is rounded; it lies in front of the library's workspace. If
 * cuBLASLt has no such product, the library writes Y in f32 to the workspace, in front of the library's own, one chunk
 * of rows at a time; the kernel that adds the bias rounds the sums to Y. If the maps are bf16, a batch in f32 is
 * rounded to bf16 at the workspace's beginning. */
#include <stdlib.h>

#include "mm/core/graph/dtype.h"
#include "mm/core/log.h"
#include "nets/contract/op_project.h"
#include "nets/cuda/libraries/bias_gradient.h"

/* Bytes of a chunk's sums. Chosen: they stay in a GPU's L2 cache until the bias is added (A100 40 MB, H100 50 MB). */
enum { CHUNK_BYTES = 16 << 20, ROWS_UNIT = 16 };

typedef struct project_op {
    nets_op base;
    nets_cudnn_conv y[2];   /* compute Y: of a whole chunk, and of the last one */
    nets_cudnn_conv dx, dw; /* compute DX and DW; not created if they are not wanted */
    int64_t each;           /* rows of a chunk */
    bool adds_bias;         /* the products add the bias */
    bool sums_bias;         /* dw gives the bias's gradient, too */
    int64_t rounded_bytes;  /* of the bf16 copy of a batch in f32, in front; 0: none */
    int64_t bias_bytes;     /* of the bf16 copy of the bias behind it, in the forward; 0: none */
    int64_t sums_bytes;     /* of a chunk's f32 sums; 0: none, products write Y */
    mm_dtype maps;
    nets_role weight;
    int64_t rows, in, out;
    bool bias, adds_earlier, frozen;
    nets_cuda_reduction by_bias; /* sums the bias's gradient; all zero if there is no bias */
} project_op;

/* Enqueues a product. x: the tensor with Y's channels; y: the tensor with X's. before: bytes in front of the library's
 * workspace. */
static mm_status multiply(const project_op *op, const nets_cudnn_conv *part, mm_phase phase, const nets_op_args *args,
                          int64_t before, nets_conv_tensors at, mm_stream *stream) {
    at.workspace = (char *)args->at[NETS_WORKSPACE] + before;
    at.workspace_bytes = nets_op_workspace_within(&op->base, phase, args->workspace_bytes) - before;
    return nets_cudnn_conv_enqueue(part, &at, stream);
}

/* X, as the products read it. */
static void *get_input(const project_op *op, const nets_op_args *args, mm_stream *stream) {
    if (!op->rounded_bytes) return args->at[NETS_X];
    nets_cuda_convert(MM_F32, args->at[NETS_X], MM_BF16, args->at[NETS_WORKSPACE], op->rows * op->in,
                      mm_cuda_stream(stream));
    return args->at[NETS_WORKSPACE];
}

/* Bytes in front of the library's workspace in the forward. */
static int64_t forward_front(const project_op *op) { return op->rounded_bytes + op->bias_bytes + op->sums_bytes; }

static void *row(const project_op *op, void *map, int64_t row, int64_t width) {
    return (char *)map + row * width * mm_dtype_table[op->maps].bytes;
}

static mm_status run_chunk(const project_op *op, int64_t first, void *x, const nets_op_args *args, mm_stream *stream) {
    char *workspace = (char *)args->at[NETS_WORKSPACE] + op->rounded_bytes;
    const int64_t left = op->rows - first, n = left < op->each ? left : op->each;
    void *y = row(op, args->at[NETS_Y], first, op->out), *sums = op->sums_bytes ? workspace : y;
    const nets_conv_tensors at = {.x = sums,
                                  .y = row(op, x, first, op->in),
                                  .weights = args->at[op->weight],
                                  .extra = op->adds_bias ? workspace : NULL};
    MM_TRY(multiply(op, &op->y[left <= op->each], MM_FORWARD, args, forward_front(op), at, stream));
    if (op->sums_bytes)
        nets_cuda_add_bias_bf16(sums, args->at[NETS_B], y, n, op->out, mm_cuda_stream(stream));
    else if (op->bias && !op->adds_bias)
        nets_cuda_add_bias(op->maps, y, args->at[NETS_B], n, op->out, mm_cuda_stream(stream));
    return MM_OK;
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const project_op *op = (const project_op *)base;
    void *x = get_input(op, args, stream);
    if (op->adds_bias)
        nets_cuda_convert(MM_F32, args->at[NETS_B], MM_BF16, (char *)args->at[NETS_WORKSPACE] + op->rounded_bytes,
                          op->out, mm_cuda_stream(stream));
    for (int64_t first = 0; first < op->rows; first += op->each) MM_TRY(run_chunk(op, first, x, args, stream));
    return nets_cuda_launched("a projection");
}

static mm_status backward_data(const project_op *op, const nets_op_args *args, mm_stream *stream) {
    if (op->dx.n == 0) return MM_OK;
    const nets_conv_tensors at = {.x = args->at[NETS_DY], .y = args->at[NETS_DX], .weights = args->at[op->weight]};
    MM_TRY(nets_cuda_put_earlier(args, op->maps, op->rows * op->in, stream));
    return multiply(op, &op->dx, MM_BACKWARD, args, op->rounded_bytes, at, stream);
}

static mm_status backward_weight(const project_op *op, const nets_op_args *args, mm_stream *stream) {
    const nets_conv_tensors at = {.x = args->at[NETS_DY],
                                  .y = get_input(op, args, stream),
                                  .weights = args->at[NETS_DW],
                                  .extra = op->sums_bias ? args->at[NETS_DB] : NULL};
    return multiply(op, &op->dw, MM_BACKWARD, args, op->rounded_bytes, at, stream);
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const project_op *op = (const project_op *)base;
    MM_TRY(nets_cuda_check_earlier(args, op->adds_earlier));
    if (!op->frozen) MM_TRY(backward_weight(op, args, stream));
    MM_TRY(backward_data(op, args, stream));
    if (op->bias && !op->frozen && !op->sums_bias)
        nets_cuda_sum_rows(op->maps, args->at[NETS_DY], &op->by_bias, args->at[NETS_WORKSPACE], args->at[NETS_DB],
                           mm_cuda_stream(stream));
    return nets_cuda_launched("a projection's gradients");
}

static void destroy(nets_op *base) {
    project_op *op = (project_op *)base;
    nets_cudnn_conv_fini(&op->y[0]);
    nets_cudnn_conv_fini(&op->y[1]);
    nets_cudnn_conv_fini(&op->dx);
    nets_cudnn_conv_fini(&op->dw);
    free(op);
}

static mm_status make_y(project_op *op, nets_cuda_backend *cuda, int64_t rows, nets_cudnn_conv *y) {
    const nets_conv_terms terms = nets_cudnn_output_terms(&cuda->terms);
    const int bf16 = op->maps != MM_BF16  ? 0
                     : op->adds_bias      ? NETS_CONV_BF16_BIAS
                     : op->sums_bytes > 0 ? NETS_CONV_BF16_TO_F32
                                          : NETS_CONV_BF16;
    const nets_conv_shape shape = nets_product_shape(NETS_CONV_BY_INPUT, rows, op->out, op->in, bf16);
    return nets_cudnn_conv_init(y, cuda, &shape, &terms);
}

/* Divides the rows into chunks whose f32 sums stay in cache. */
static mm_status make_chunks(project_op *op, nets_cuda_backend *cuda) {
    const int64_t row_bytes = op->out * (int64_t)sizeof(float), fit = CHUNK_BYTES / row_bytes / ROWS_UNIT * ROWS_UNIT;
    if (op->each > fit) op->each = nets_larger(fit, ROWS_UNIT);
    op->sums_bytes = nets_aligned(op->each * row_bytes);
    if (op->rows > op->each) MM_TRY(make_y(op, cuda, op->each, &op->y[0]));
    return make_y(op, cuda, (op->rows - 1) % op->each + 1, &op->y[1]);
}

static mm_status make_outputs(project_op *op, nets_cuda_backend *cuda) {
    op->each = op->rows;
    op->adds_bias = op->bias && op->maps == MM_BF16;
    const mm_status status = make_y(op, cuda, op->rows, &op->y[1]);
    if (op->adds_bias) op->bias_bytes = nets_aligned(op->out * (int64_t)sizeof(uint16_t));
    if (!op->adds_bias || status != MM_ERR_UNSUPPORTED) return status;
    op->bias_bytes = 0;
    mm_log_send(&cuda->config.log, MM_LOG_DEBUG, "a kernel of its own adds a projection's bias, not the library: %s",
                mm_last_error());
    op->adds_bias = false;
    return make_chunks(op, cuda);
}

static mm_status make_weight_gradient(project_op *op, nets_cuda_backend *cuda) {
    const bool bf16 = op->maps == MM_BF16;
    const nets_conv_shape dw = nets_product_shape(NETS_CONV_BY_WEIGHTS, op->rows, op->out, op->in, bf16);
    if (!bf16 || !op->bias) return nets_cudnn_conv_init(&op->dw, cuda, &dw, &cuda->terms);
    return nets_bias_gradient_init(&op->dw, cuda, &dw, &cuda->terms, NETS_CONV_BF16_SUMS_X, &op->by_bias,
                                   &op->sums_bias);
}

static mm_status make_parts(project_op *op, nets_cuda_backend *cuda, const nets_op_desc *desc) {
    nets_conv_shape dx = nets_product_shape(NETS_CONV_FORWARD, op->rows, op->out, op->in, desc->maps == MM_BF16);
    dx.adds = op->adds_earlier;
    MM_TRY(make_outputs(op, cuda));
    if (desc->training && op->bias) MM_TRY(nets_cuda_reduction_init(&op->by_bias, cuda, &desc->y));
    if (desc->training && !op->frozen) MM_TRY(make_weight_gradient(op, cuda));
    return desc->training && desc->wants_dx ? nets_cudnn_conv_init(&op->dx, cuda, &dx, &cuda->terms) : MM_OK;
}

static void set_workspaces(project_op *op, bool training) {
    const nets_cudnn_conv *const forward[] = {&op->y[0], &op->y[1]}, *const backward[] = {&op->dw, &op->dx};
    nets_conv_room room = {.before = forward_front(op)};
    nets_cudnn_conv_set_workspaces(&op->base, MM_FORWARD, forward, 2, room);
    room.before = op->rounded_bytes;
    if (op->bias && !op->sums_bias) room.least = nets_strips_bytes(&op->by_bias.strips);
    if (training) nets_cudnn_conv_set_workspaces(&op->base, MM_BACKWARD, backward, 2, room);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    if (desc->attrs.by_output) return nets_project_as_linear(backend, desc, op_out);
    MM_TRY(nets_cuda_check_dims(desc));
    const bool rounds = desc->maps == MM_BF16 && desc->f32_inputs;
    if (rounds && desc->wants_dx)
        return mm_fail(MM_ERR_UNSUPPORTED, "a projection of bf16 maps has no gradient for the batch");
    project_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a projection");
    op->base.impl = &nets_cuda_op_project;
    op->maps = desc->maps;
    op->weight = desc->maps == MM_BF16 ? NETS_W16 : NETS_W;
    op->rows = nets_shape_rows(&desc->x[0]);
    op->in = nets_shape_channels(&desc->x[0]);
    op->out = nets_shape_channels(&desc->y);
    op->bias = desc->attrs.bias;
    if (rounds) op->rounded_bytes = nets_aligned(op->rows * op->in * (int64_t)sizeof(uint16_t));
    op->adds_earlier = desc->adds_earlier;
    op->frozen = desc->frozen;
    mm_status status = make_parts(op, (nets_cuda_backend *)backend, desc);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    set_workspaces(op, desc->training);
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_project = {NETS_CUDA_MAPS | NETS_MIXED, create, destroy, NULL, forward, backward};

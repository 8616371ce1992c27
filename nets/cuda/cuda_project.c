/* The linear layer of tokens, whose weights are [in][out]: as a convolution of single pixels the other way round, from Y's
 * channels to X's.
 *
 *   Y = X W          that convolution's gradient by its input, of X
 *   DX = DY W^T      that convolution, of DY
 *   DW = X^T DY      its gradient by its weights
 *
 * The library adds to an earlier contribution, so that of bf16 maps the sum is rounded once. A bias it cannot add so: with one,
 * bf16 maps go through the f32 form. */
#include <stdlib.h>

#include "nets/cuda/cudnn_conv.h"

typedef struct project_op {
    nets_op base;
    nets_cudnn_conv y, dx, dw; /* what gives these; dx and dw are not made where they are not wanted */
    mm_dtype maps;
    nets_role weight;
    int64_t rows, in, out;
    bool bias, adds_earlier;
    nets_cuda_reduction by_bias; /* its gradient; zeros where there is none */
} project_op;

/* x: what has Y's channels; y: what has X's. */
static mm_status multiply(const project_op *op, const nets_cudnn_conv *part, const nets_op_args *args, nets_role x,
                          nets_role y, nets_role weight, mm_stream *stream) {
    const mm_phase phase = part == &op->y ? MM_FORWARD : MM_BACKWARD;
    return nets_cudnn_conv_enqueue(part, args->at[x], args->at[y], args->at[weight], args->at[NETS_WORKSPACE],
                                   nets_op_workspace_within(&op->base, phase, args->workspace_bytes), stream);
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const project_op *op = (const project_op *)base;
    MM_TRY(multiply(op, &op->y, args, NETS_Y, NETS_X, op->weight, stream));
    if (op->bias)
        nets_cuda_add_bias(MM_F32, args->at[NETS_Y], args->at[NETS_B], op->rows, op->out, mm_cuda_stream(stream));
    return nets_cuda_launched("a projection");
}

static mm_status backward_data(const project_op *op, const nets_op_args *args, mm_stream *stream) {
    if (op->dx.n == 0) return MM_OK;
    MM_TRY(nets_cuda_put_earlier(args, op->maps, op->rows * op->in, stream));
    return multiply(op, &op->dx, args, NETS_DY, NETS_DX, op->weight, stream);
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const project_op *op = (const project_op *)base;
    MM_TRY(nets_cuda_check_earlier(args, op->adds_earlier));
    MM_TRY(multiply(op, &op->dw, args, NETS_DY, NETS_X, NETS_DW, stream));
    MM_TRY(backward_data(op, args, stream));
    if (op->bias)
        nets_cuda_sum_rows(MM_F32, args->at[NETS_DY], &op->by_bias, args->at[NETS_WORKSPACE], args->at[NETS_DB],
                           mm_cuda_stream(stream));
    return nets_cuda_launched("a projection's gradients");
}

static void destroy(nets_op *base) {
    project_op *op = (project_op *)base;
    nets_cudnn_conv_fini(&op->y);
    nets_cudnn_conv_fini(&op->dx);
    nets_cudnn_conv_fini(&op->dw);
    free(op);
}

static mm_status make_parts(project_op *op, nets_cuda_backend *cuda, const nets_op_desc *desc) {
    const bool bf16 = desc->maps == MM_BF16;
    const nets_conv_terms of_y = nets_cudnn_output_terms(&cuda->terms);
    const nets_conv_shape y = nets_product_shape(NETS_CONV_BY_INPUT, op->rows, op->out, op->in, bf16);
    nets_conv_shape dx = nets_product_shape(NETS_CONV_FORWARD, op->rows, op->out, op->in, bf16);
    const nets_conv_shape dw = nets_product_shape(NETS_CONV_BY_WEIGHTS, op->rows, op->out, op->in, bf16);
    dx.adds = op->adds_earlier;
    MM_TRY(nets_cudnn_conv_init(&op->y, cuda, &y, &of_y));
    if (desc->training) MM_TRY(nets_cudnn_conv_init(&op->dw, cuda, &dw, &cuda->terms));
    if (desc->training && desc->wants_dx) MM_TRY(nets_cudnn_conv_init(&op->dx, cuda, &dx, &cuda->terms));
    return desc->training && op->bias ? nets_cuda_reduction_init(&op->by_bias, cuda, &desc->y) : MM_OK;
}

static void set_workspaces(project_op *op, bool training) {
    const nets_cudnn_conv *const forward[] = {&op->y}, *const backward[] = {&op->dw, &op->dx};
    nets_conv_room room = {0};
    nets_cudnn_conv_set_workspaces(&op->base, MM_FORWARD, forward, 1, room);
    if (op->bias) room.least = nets_strips_bytes(&op->by_bias.strips);
    if (training) nets_cudnn_conv_set_workspaces(&op->base, MM_BACKWARD, backward, 2, room);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    MM_TRY(nets_cuda_check_dims(desc));
    if (desc->maps == MM_BF16 && desc->attrs.bias)
        return mm_fail(MM_ERR_UNSUPPORTED, "a projection of bf16 maps with a bias");
    project_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a projection");
    op->base.impl = &nets_cuda_op_project;
    op->maps = desc->maps;
    op->weight = desc->maps == MM_BF16 ? NETS_W16 : NETS_W;
    op->rows = nets_shape_rows(&desc->x[0]);
    op->in = nets_shape_channels(&desc->x[0]);
    op->out = nets_shape_channels(&desc->y);
    op->bias = desc->attrs.bias;
    op->adds_earlier = desc->adds_earlier;
    mm_status status = make_parts(op, (nets_cuda_backend *)backend, desc);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    set_workspaces(op, desc->training);
    *op_out = &op->base;
    return MM_OK;
}

const nets_op_impl nets_cuda_op_project = {NETS_CUDA_MAPS, create, destroy, NULL, forward, backward};

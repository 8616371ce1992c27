/* The fully connected layer, on cuBLAS. Its matrices are column by column, so it sees ours transposed: activations
 * [features, batch], weights [in, out].
 *
 * Features are counted in torch's order, channel by channel. An image of more than one pixel is pixel by pixel, so the
 * whole batch changes its order in the workspace, and its gradient changes back:
 *
 *   0                library_bytes
 *   | cuBLAS's own    | images as planes |
 *   | the reduction of the bias's gradient |   after the products
 */
#include <stdlib.h>

#include "nets/cuda/ops.h"

typedef struct linear_op {
    nets_op base;
    nets_cuda_backend *cuda;
    int batch, in, out;
    int64_t pixels, channels; /* of an image */
    int64_t library_bytes, workspace_bytes;
    bool training, wants_dx;
} linear_op;

/* One matrix of a product, with as many rows stored one after the other as its leading dimension says. */
typedef struct matrix {
    const void *data;
    int leading;
    cublasOperation_t op;
} matrix;

static cublasComputeType_t compute_type(const nets_cuda_backend *cuda) {
    switch (cuda->config.precision) {
    case NETS_FP32:
        return CUBLAS_COMPUTE_32F;
    case NETS_TF32:
        return CUBLAS_COMPUTE_32F_FAST_TF32;
    }
    return CUBLAS_COMPUTE_32F;
}

/* c[m, n] := a[m, k] b[k, n] */
static mm_status multiply(const linear_op *op, const nets_op_args *args, int m, int n, int k, matrix a, matrix b,
                          void *c, mm_stream *stream) {
    const float one = 1, zero = 0;
    cublasHandle_t blas;
    MM_TRY(nets_cuda_blas_on(op->cuda, stream, args->at[NETS_WORKSPACE], op->library_bytes, &blas));
    return nets_cuda_blas_check(cublasGemmEx(blas, a.op, b.op, m, n, k, &one, a.data, CUDA_R_32F, a.leading, b.data,
                                             CUDA_R_32F, b.leading, &zero, c, CUDA_R_32F, m, compute_type(op->cuda),
                                             CUBLAS_GEMM_DEFAULT),
                                "a product");
}

static void *planes(const linear_op *op, const nets_op_args *args) {
    return (char *)args->at[NETS_WORKSPACE] + op->library_bytes;
}

/* The batch with its features in torch's order. */
static const void *get_features(const linear_op *op, const nets_op_args *args, mm_stream *stream) {
    if (op->pixels == 1) return args->at[NETS_X];
    nets_cuda_transpose(args->at[NETS_X], planes(op, args), op->batch, op->pixels, op->channels,
                        mm_cuda_stream(stream));
    return planes(op, args);
}

static mm_status forward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const linear_op *op = (const linear_op *)base;
    const matrix weights = {args->at[NETS_W], op->in, CUBLAS_OP_T};
    const matrix x = {get_features(op, args, stream), op->in, CUBLAS_OP_N};
    MM_TRY(multiply(op, args, op->out, op->batch, op->in, weights, x, args->at[NETS_Y], stream));
    if (args->at[NETS_B])
        nets_cuda_add_bias(args->at[NETS_Y], args->at[NETS_B], op->batch, op->out, mm_cuda_stream(stream));
    return nets_cuda_launched("a linear layer");
}

static mm_status backward_data(const linear_op *op, const nets_op_args *args, mm_stream *stream) {
    const matrix weights = {args->at[NETS_W], op->in, CUBLAS_OP_N}, dy = {args->at[NETS_DY], op->out, CUBLAS_OP_N};
    float *dx = args->at[NETS_DX];
    void *features = op->pixels == 1 ? dx : planes(op, args);
    MM_TRY(multiply(op, args, op->in, op->batch, op->out, weights, dy, features, stream));
    if (op->pixels > 1) nets_cuda_transpose(features, dx, op->batch, op->channels, op->pixels, mm_cuda_stream(stream));
    if (args->at[NETS_EARLIER])
        nets_cuda_sum(dx, args->at[NETS_EARLIER], dx, (int64_t)op->batch * op->in, mm_cuda_stream(stream));
    return MM_OK;
}

static mm_status backward(nets_op *base, const nets_op_args *args, mm_stream *stream) {
    const linear_op *op = (const linear_op *)base;
    const matrix dy = {args->at[NETS_DY], op->out, CUBLAS_OP_T};
    const matrix x = {get_features(op, args, stream), op->in, CUBLAS_OP_N};
    MM_TRY(multiply(op, args, op->in, op->out, op->batch, x, dy, args->at[NETS_DW], stream));
    if (op->wants_dx) MM_TRY(backward_data(op, args, stream));
    if (args->at[NETS_DB])
        nets_cuda_sum_rows(args->at[NETS_DY], op->batch, op->out, args->at[NETS_WORKSPACE], args->at[NETS_DB],
                           mm_cuda_stream(stream));
    return nets_cuda_launched("a linear layer's gradients");
}

static int64_t workspace_bytes(const nets_op *op, mm_phase phase) {
    (void)phase;
    return ((const linear_op *)op)->workspace_bytes;
}

/* cuBLAS splits a product's inner dimension where its result is small: some results' worth is enough. It works from 16 KiB
 * on (its documentation), and recommends 32 MiB at most. */
static int64_t library_bytes(const linear_op *op) {
    int64_t largest = (int64_t)op->batch * op->out, most = op->cuda->config.workspace_limit_bytes;
    if (op->training) largest = nets_larger(largest, (int64_t)op->in * op->out);
    if (op->wants_dx) largest = nets_larger(largest, (int64_t)op->batch * op->in);
    int64_t bytes = nets_larger(8 * largest * (int64_t)sizeof(float), INT64_C(64) << 10);
    if (most > INT64_C(32) << 20) most = INT64_C(32) << 20;
    return nets_aligned(bytes < most ? bytes : most);
}

static void measure_workspace(linear_op *op, const nets_op_desc *desc) {
    op->library_bytes = library_bytes(op);
    op->workspace_bytes = op->library_bytes;
    if (op->pixels > 1) op->workspace_bytes += nets_aligned(nets_elems(desc->x) * (int64_t)sizeof(float));
    if (op->training && desc->attrs.bias)
        op->workspace_bytes = nets_larger(op->workspace_bytes, nets_cuda_reduction_bytes(op->batch, op->out));
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    int64_t pixels = desc->x[1] * desc->x[2], in = pixels * desc->x[3];
    MM_TRY(nets_cuda_check_dims(desc));
    if (in > INT32_MAX)
        return mm_fail(MM_ERR_UNSUPPORTED, "a linear layer of %lld features, at most %d", (long long)in, INT32_MAX);
    linear_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a linear layer");
    *op = (linear_op){.base.impl = &nets_cuda_linear,
                      .cuda = (nets_cuda_backend *)backend,
                      .batch = (int)desc->x[0],
                      .in = (int)in,
                      .out = (int)desc->y[3],
                      .pixels = pixels,
                      .channels = desc->x[3],
                      .training = desc->training,
                      .wants_dx = desc->wants_dx};
    measure_workspace(op, desc);
    *op_out = &op->base;
    return MM_OK;
}

static void destroy(nets_op *op) { free(op); }

const nets_op_impl nets_cuda_linear = {create, destroy, workspace_bytes, forward, backward};

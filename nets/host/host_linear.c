/* SPDX-License-Identifier: MIT */
/* The fully connected layer, by oneDNN's matrix products. They read the plain weights, so no workspace of the weights'
 * size is needed; bf16 maps are computed as in host_project.c. (oneDNN's inner product allocates on every call.)
 * Products are cut by columns, the weights' gradient by rows: so each piece has its own part of the weights, however
 * small the batch.
 *
 * Features are in torch's order, channel by channel. Images of more than one pixel are stored pixel by pixel, so the
 * batch is reordered in the workspace, and its gradient is reordered back:
 *
 *   0                         scratch_bytes        scratch_bytes + planes
 *   | scratchpads of threads | images as planes   |
 *   | the bias's scratch          |     after the products
 *
 * A pass that adds to the gradients of earlier ones (nets_pass) computes them in smaller pieces, each into its thread's
 * block behind the planes, and adds the block. After the products, the bias's gradient lies there.
 */
#include <stdlib.h>

#include "nets/host/channels.h"
#include "nets/host/host_ops.h"
#include "nets/host/partition.h"

typedef struct linear_op {
    nets_op base;
    const nets_dnn *dnn;
    /* The products of these; arguments: SRC, WEIGHTS, DST. dw: not made if the weight is frozen. */
    nets_piecewise y, dx, dw;
    nets_cut dw_cut;                        /* cuts the output's channels */
    nets_piecewise to_planes, from_planes;  /* arguments: FROM, TO; not made if an image is one pixel */
    int64_t x_elems, batch, map_bytes;      /* map_bytes: bytes of an element */
    nets_role weight;                       /* NETS_W; with bf16 maps NETS_W16 */
    nets_channels channels;                 /* the output's */
    int64_t scratch_bytes, workspace_bytes; /* either phase's */
    int64_t blocks_at, block_bytes;         /* with adds: where the threads' blocks lie, and the size of one */
    bool bias, wants_dx, maps, frozen;
} linear_op;

static void *planes(const linear_op *op, const nets_op_args *args) {
    return (char *)args->at[NETS_WORKSPACE] + op->scratch_bytes;
}

static mm_status run(const linear_op *op, nets_piecewise *p, const nets_op_args *args, void *a, void *b, void *c) {
    void *const at[NETS_PIECE_ARGS] = {a, b, c, args->at[NETS_B]};
    return nets_piecewise_run(op->dnn, p, at, args->at[NETS_WORKSPACE]);
}

/* Gives the batch with its features in torch's order. */
static mm_status get_features(linear_op *op, const nets_op_args *args, void **features_out) {
    *features_out = op->maps ? planes(op, args) : args->at[NETS_X];
    return op->maps ? run(op, &op->to_planes, args, args->at[NETS_X], *features_out, NULL) : MM_OK;
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    linear_op *op = (linear_op *)base;
    void *features;
    MM_TRY(get_features(op, args, &features));
    return run(op, &op->y, args, features, args->at[op->weight], args->at[NETS_Y]);
}

static mm_status run_backward_data(linear_op *op, const nets_op_args *args) {
    void *dx = args->at[NETS_DX], *features = op->maps ? planes(op, args) : dx;
    MM_TRY(run(op, &op->dx, args, args->at[NETS_DY], args->at[op->weight], features));
    if (op->maps) MM_TRY(run(op, &op->from_planes, args, features, dx, NULL));
    nets_host_accumulate_on(op->dnn->pool, dx, args->at[NETS_EARLIER], op->x_elems);
    return MM_OK;
}

/* ---------------------------------------------------------------- gradients that are added */

static float *blocks(const linear_op *op, const nets_op_args *args) {
    return (float *)((char *)args->at[NETS_WORKSPACE] + op->blocks_at);
}

typedef struct adding {
    linear_op *op;
    const nets_op_args *args;
    void *features;
} adding;

static mm_status add_piece(void *ctx, int64_t piece, int thread) {
    const adding *a = ctx;
    linear_op *op = a->op;
    const int64_t place = nets_piecewise_place(op->dnn, &op->dw, piece, thread);
    float *block = blocks(op, a->args) + place * op->block_bytes / (int64_t)sizeof(float);
    void *const at[NETS_PIECE_ARGS] = {a->args->at[NETS_DY], a->features, block};
    char *scratch = (char *)a->args->at[NETS_WORKSPACE] + place * op->dw.scratch_bytes;
    MM_TRY(nets_piecewise_run_one(op->dnn, &op->dw, piece, thread, at, scratch));
    const int64_t in = op->x_elems / op->batch, first = piece * op->dw_cut.each, rest = op->dw_cut.items - first;
    nets_host_accumulate((float *)a->args->at[NETS_DW] + first * in, block,
                         (rest < op->dw_cut.each ? rest : op->dw_cut.each) * in);
    return MM_OK;
}

static mm_status give_weights_gradient(linear_op *op, const nets_op_args *args, void *features) {
    adding a = {op, args, features};
    if (op->base.adds) return mm_host_pool_run(op->dnn->pool, op->dw.n_pieces, add_piece, &a);
    return run(op, &op->dw, args, args->at[NETS_DY], features, args->at[NETS_DW]);
}

static void give_bias_gradient(const linear_op *op, const nets_op_args *args) {
    float *sum = args->at[NETS_DB];
    const nets_channels_bias bias = {.dy = args->at[NETS_DY], .dbias = op->base.adds ? blocks(op, args) : sum};
    nets_channels_bias_backward(&op->channels, &bias, args->at[NETS_WORKSPACE]);
    if (op->base.adds) nets_host_accumulate(sum, bias.dbias, op->dw_cut.items);
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    linear_op *op = (linear_op *)base;
    void *features;
    if (!op->frozen) {
        MM_TRY(get_features(op, args, &features));
        MM_TRY(give_weights_gradient(op, args, features));
    }
    if (op->wants_dx) MM_TRY(run_backward_data(op, args));
    if (op->bias && !op->frozen) give_bias_gradient(op, args);
    return MM_OK;
}

static int64_t workspace_bytes(const nets_op *op, mm_phase phase) {
    const linear_op *linear = (const linear_op *)op;
    return linear->base.adds && phase == MM_FORWARD ? linear->blocks_at : linear->workspace_bytes;
}

static void destroy(nets_op *base) {
    linear_op *op = (linear_op *)base;
    nets_piecewise *const all[] = {&op->y, &op->dx, &op->dw, &op->to_planes, &op->from_planes};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) nets_piecewise_fini(all[i]);
    free(op);
}

/* Columns, or rows, of a piece: a multiple of a cache line's floats, and enough for oneDNN's kernels to be fast.
 * Chosen. */
enum { CUT_UNIT = 16, CUT_LEAST = 64 };

/* Bytes of a thread's block, unless a row is larger. Chosen: two threads' blocks are no more than what a first layer's
 * maps of one image take. */
enum { BLOCK_BYTES = 2 << 20 };

static nets_cut cut_for_adding(int64_t rows, int64_t row_bytes) {
    const int64_t each = nets_larger(BLOCK_BYTES / row_bytes, 1);
    return (nets_cut){.items = rows, .each = each < rows ? each : rows, .pieces = (int)((rows + each - 1) / each)};
}

/* Makes the reorder of samples, from pixels to planes or back. */
static mm_status make_planes(const nets_dnn *dnn, const nets_shape *shape, bool half, bool to_planes,
                             nets_piecewise *run) {
    const int64_t x[4] = {shape->dims[0], 1, nets_shape_rows(shape) / shape->dims[0], nets_shape_channels(shape)};
    const nets_cut cut = nets_cut_of(x[0], nets_pieces(dnn->pool), 1, 1);
    const int64_t images[] = {cut.each, nets_cut_rest(&cut)};
    const int64_t bytes = nets_elems(x) / x[0] * (int64_t)(half ? sizeof(uint16_t) : sizeof(float));
    for (int k = 0; k < (images[1] == images[0] ? 1 : 2); k++) {
        const int64_t part[4] = {images[k], x[1], x[2], x[3]};
        MM_TRY(nets_dnn_planes_reorder(dnn, part, half, to_planes, &run->kernel[k]));
    }
    nets_piecewise_measure(run);
    const nets_piece_arg args[NETS_PIECE_ARGS] = {{DNNL_ARG_FROM, bytes, 0}, {DNNL_ARG_TO, bytes, 0}};
    return nets_piecewise_init_cut(run, &cut, args);
}

static mm_status make_kernels(linear_op *op, const nets_op_desc *desc) {
    const nets_dnn *dnn = op->dnn;
    int64_t batch = op->batch, in = op->x_elems / batch, out = nets_shape_channels(&desc->y);
    const bool half = desc->maps == MM_BF16;
    const nets_dnn_product_desc y = {.rows = batch,
                                     .inner = in,
                                     .columns = out,
                                     .b_transposed = true,
                                     .half = half,
                                     .half_y = half,
                                     .bias = op->bias};
    const nets_dnn_product_desc dx = {.rows = batch, .inner = out, .columns = in, .half = half, .half_y = half};
    const nets_dnn_product_desc dw = {.rows = out, .inner = batch, .columns = in, .a_transposed = true, .half = half};
    const int pieces = nets_pieces(dnn->pool);
    const nets_cut by_out = nets_cut_of(out, pieces, CUT_UNIT, CUT_LEAST);
    const nets_grid y_grid = nets_grid_of_columns(batch, by_out);
    MM_TRY(nets_piecewise_product(dnn, &y, &y_grid, false, &op->y));
    if (op->maps) MM_TRY(make_planes(dnn, &desc->x[0], half, true, &op->to_planes));
    if (!desc->training) return MM_OK;
    op->dw_cut = op->base.adds ? cut_for_adding(out, in * (int64_t)sizeof(float)) : by_out;
    const nets_grid dw_grid = nets_grid_of_rows(op->dw_cut, in);
    if (!op->frozen) MM_TRY(nets_piecewise_product(dnn, &dw, &dw_grid, op->base.adds, &op->dw));
    if (!desc->wants_dx) return MM_OK;
    const nets_grid dx_grid = nets_grid_of_columns(batch, nets_cut_of(in, pieces, CUT_UNIT, CUT_LEAST));
    MM_TRY(nets_piecewise_product(dnn, &dx, &dx_grid, false, &op->dx));
    return op->maps ? make_planes(dnn, &desc->x[0], half, false, &op->from_planes) : MM_OK;
}

static void measure_workspace(linear_op *op) {
    const nets_piecewise *const all[] = {&op->y, &op->dx, &op->dw, &op->to_planes, &op->from_planes};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        op->scratch_bytes =
            nets_larger(op->scratch_bytes, nets_piecewise_places(op->dnn, all[i]) * all[i]->scratch_bytes);
    op->workspace_bytes = op->scratch_bytes;
    if (op->maps) op->workspace_bytes += nets_aligned(op->x_elems * op->map_bytes);
    if (op->bias) op->workspace_bytes = nets_larger(op->workspace_bytes, op->channels.scratch_bytes);
    if (!op->base.adds) return;
    const int64_t row = op->x_elems / op->batch, each = op->dw_cut.each;
    op->blocks_at = nets_aligned(op->workspace_bytes);
    op->block_bytes = nets_aligned(each * row * (int64_t)sizeof(float));
    const int64_t blocks_bytes = nets_piecewise_places(op->dnn, &op->dw) * op->block_bytes;
    op->workspace_bytes =
        op->blocks_at + nets_larger(blocks_bytes, op->bias ? op->dw_cut.items * (int64_t)sizeof(float) : 0);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    const bool half = desc->maps == MM_BF16;
    if (half && !nets_dnn_has_bf16()) return mm_fail(MM_ERR_UNSUPPORTED, "this CPU has no units for bf16");
    if (half && desc->adds_earlier) /* the earlier gradient would be added to a rounded one */
        return mm_fail(MM_ERR_UNSUPPORTED, "a linear layer of bf16 maps cannot add its gradient to an earlier one");
    linear_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a linear layer");
    op->weight = half ? NETS_W16 : NETS_W;
    op->map_bytes = half ? sizeof(uint16_t) : sizeof(float);
    op->base.impl = &nets_host_op_linear.base;
    op->dnn = &((nets_host_backend *)backend)->dnn;
    op->x_elems = nets_shape_elems(&desc->x[0]);
    op->batch = desc->x[0].dims[0];
    op->maps = nets_shape_rows(&desc->x[0]) > op->batch;
    op->channels = nets_channels_of(desc->x[0].dims[0], nets_shape_channels(&desc->y), desc->maps, op->dnn->pool);
    op->bias = desc->attrs.bias;
    op->wants_dx = desc->wants_dx;
    op->frozen = desc->frozen;
    op->base.adds = desc->training && desc->pass.adds && !desc->frozen;
    mm_status status = make_kernels(op, desc);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    measure_workspace(op);
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_linear = NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16), create,
                                                          destroy, workspace_bytes, run_forward, run_backward);

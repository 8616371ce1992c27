/* SPDX-License-Identifier: MIT */
/* The linear layer of tokens: oneDNN's matrix products over the plain weights, of f32, or of bf16 where the CPU has
 * units for it: then sums and the weights' gradients are f32, and maps are rounded once. Products are cut by rows and
 * columns; no sum is cut. */
#include <stdlib.h>

#include "nets/contract/op_project.h"
#include "nets/host/channels.h"
#include "nets/host/host_ops.h"
#include "nets/host/partition.h"

typedef struct project_op {
    nets_op base;
    const nets_dnn *dnn;
    nets_piecewise y, dx, dw; /* dw: not made if the weight is frozen */
    nets_role weight;         /* NETS_W; with bf16 maps NETS_W16 */
    nets_channels channels;   /* the output's */
    int64_t x_elems, workspace_bytes;
    int64_t part_elems; /* of a part of the weight's gradient */
    bool bias, wants_dx, frozen, parts_only;
} project_op;

static mm_status run(const project_op *op, nets_piecewise *p, const nets_op_args *args, nets_role a, nets_role b,
                     nets_role c) {
    void *const at[NETS_PIECE_ARGS] = {args->at[a], args->at[b], args->at[c], args->at[NETS_B]};
    return nets_piecewise_run(op->dnn, p, at, args->at[NETS_WORKSPACE]);
}

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    project_op *op = (project_op *)base;
    return run(op, &op->y, args, NETS_X, op->weight, NETS_Y);
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    project_op *op = (project_op *)base;
    const nets_channels_bias bias = {.dy = args->at[NETS_DY], .dbias = args->at[NETS_DB]};
    if (!op->frozen && !op->parts_only) MM_TRY(run(op, &op->dw, args, NETS_X, NETS_DY, NETS_DW));
    if (op->wants_dx) {
        MM_TRY(run(op, &op->dx, args, NETS_DY, op->weight, NETS_DX));
        nets_host_accumulate_on(op->dnn->pool, args->at[NETS_DX], args->at[NETS_EARLIER], op->x_elems);
    }
    if (op->bias && !op->frozen) nets_channels_bias_backward(&op->channels, &bias, args->at[NETS_WORKSPACE]);
    return MM_OK;
}

static mm_status run_parts(nets_op *base, const nets_part_args *args) {
    project_op *op = (project_op *)base;
    return nets_piecewise_run_some(op->dnn, &op->dw, args, args->x, args->dy,
                                   op->part_elems * (int64_t)sizeof *args->dw);
}

mm_status nets_host_project_parts(nets_op *op, const nets_part_args *args, mm_stream *stream) {
    return nets_host_parts(op, run_parts, args, stream);
}

static int64_t workspace_bytes(const nets_op *op, mm_phase phase) {
    (void)phase;
    return ((const project_op *)op)->workspace_bytes;
}

static void destroy(nets_op *base) {
    project_op *op = (project_op *)base;
    nets_piecewise_fini(&op->y);
    nets_piecewise_fini(&op->dx);
    nets_piecewise_fini(&op->dw);
    free(op);
}

static mm_status make_products(project_op *op, const nets_op_desc *desc) {
    const int64_t rows = nets_shape_rows(&desc->x[0]), in = nets_shape_channels(&desc->x[0]);
    const int64_t out = nets_shape_channels(&desc->y);
    const mm_host_pool *pool = op->dnn->pool;
    const bool half = desc->maps == MM_BF16;
    const nets_dnn_product_desc y = {
        .rows = rows, .inner = in, .columns = out, .half = half, .half_y = half, .bias = op->bias};
    const nets_dnn_product_desc dx = {
        .rows = rows, .inner = out, .columns = in, .b_transposed = true, .half = half, .half_y = half};
    const nets_dnn_product_desc dw = {.rows = in, .inner = rows, .columns = out, .a_transposed = true, .half = half};
    const nets_grid y_grid = nets_grid_of(pool, rows, out), dx_grid = nets_grid_of(pool, rows, in);
    const nets_grid dw_grid = desc->part_rows > 0 ? nets_grid_of_rows(nets_cut_in_parts(in, desc->part_rows), out)
                                                  : nets_grid_of(pool, in, out);
    MM_TRY(nets_piecewise_product(op->dnn, &y, &y_grid, false, &op->y));
    if (!desc->training) return MM_OK;
    if (!op->frozen) MM_TRY(nets_piecewise_product(op->dnn, &dw, &dw_grid, false, &op->dw));
    return desc->wants_dx ? nets_piecewise_product(op->dnn, &dx, &dx_grid, false, &op->dx) : MM_OK;
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    if (desc->attrs.by_output) return nets_project_as_linear(backend, desc, op_out);
    const bool half = desc->maps == MM_BF16;
    if (half && !nets_dnn_has_bf16()) return mm_fail(MM_ERR_UNSUPPORTED, "this CPU has no units for bf16");
    if (half && desc->adds_earlier) /* the earlier gradient would be added to a rounded one */
        return mm_fail(MM_ERR_UNSUPPORTED, "a projection of bf16 maps cannot add its gradient to an earlier one");
    project_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a projection");
    op->weight = half ? NETS_W16 : NETS_W;
    op->base.impl = &nets_host_op_project.base;
    op->dnn = &((nets_host_backend *)backend)->dnn;
    op->x_elems = nets_shape_elems(&desc->x[0]);
    op->channels =
        nets_channels_of(nets_shape_rows(&desc->y), nets_shape_channels(&desc->y), desc->maps, op->dnn->pool);
    op->bias = desc->attrs.bias;
    op->wants_dx = desc->wants_dx;
    op->frozen = desc->frozen;
    mm_status status = make_products(op, desc);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    const nets_piecewise *const all[] = {&op->y, &op->dx, &op->dw};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        op->workspace_bytes =
            nets_larger(op->workspace_bytes, nets_piecewise_places(op->dnn, all[i]) * all[i]->scratch_bytes);
    op->parts_only = desc->parts_only;
    op->part_elems = desc->part_rows * nets_shape_channels(&desc->y);
    op->base.part_bytes = op->workspace_bytes;
    if (op->bias) op->workspace_bytes = nets_larger(op->workspace_bytes, op->channels.scratch_bytes);
    *op_out = &op->base;
    return MM_OK;
}

const nets_host_impl nets_host_op_project = NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16), create,
                                                           destroy, workspace_bytes, run_forward, run_backward);

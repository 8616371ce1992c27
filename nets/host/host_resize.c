/* SPDX-License-Identifier: MIT */
/* Operations that change an image's size and have no weights, but max pools: pools of averages, global ones too, and
 * upsampling by a whole factor; by oneDNN. */
#include <stdlib.h>
#include <string.h>

#include "nets/host/host_ops.h"
#include "nets/host/partition.h"

typedef struct resize_op {
    nets_op base;
    const nets_dnn *dnn;
    nets_piecewise forward, backward; /* arguments: input, output */
    int64_t x_elems;
} resize_op;

static mm_status run_forward(nets_op *base, const nets_op_args *args) {
    resize_op *op = (resize_op *)base;
    void *const at[NETS_PIECE_ARGS] = {args->at[NETS_X], args->at[NETS_Y]};
    return nets_piecewise_run(op->dnn, &op->forward, at, args->at[NETS_WORKSPACE]);
}

static mm_status run_backward(nets_op *base, const nets_op_args *args) {
    resize_op *op = (resize_op *)base;
    void *const at[NETS_PIECE_ARGS] = {args->at[NETS_DX], args->at[NETS_DY]};
    MM_TRY(nets_piecewise_run(op->dnn, &op->backward, at, args->at[NETS_WORKSPACE]));
    nets_host_accumulate_on(op->dnn->pool, args->at[NETS_DX], args->at[NETS_EARLIER], op->x_elems);
    return MM_OK;
}

static int64_t workspace_bytes(const nets_op *base, mm_phase phase) {
    const resize_op *op = (const resize_op *)base;
    const nets_piecewise *run = phase == MM_FORWARD ? &op->forward : &op->backward;
    return nets_piecewise_places(op->dnn, run) * run->scratch_bytes;
}

static void destroy(nets_op *base) {
    resize_op *op = (resize_op *)base;
    nets_piecewise_fini(&op->forward);
    nets_piecewise_fini(&op->backward);
    free(op);
}

/* Whether padding does not count. */
static bool excludes_pad(const nets_op_desc *desc) {
    /* torch never counts what a window in ceil mode has beyond the padding. So without padding it is excluded; with
     * padding, such windows are refused (describe_windows.c). */
    return desc->attrs.exclude_pad || (desc->attrs.ceil_mode && !desc->attrs.pad[0] && !desc->attrs.pad[1]);
}

nets_dnn_windows nets_host_windows(const nets_op_desc *desc) {
    nets_dnn_windows w = {.groups = desc->attrs.groups};
    memcpy(w.x, desc->x[0].dims, sizeof w.x);
    memcpy(w.y, desc->y.dims, sizeof w.y);
    for (int d = 0; d < 2; d++) {
        w.kernel[d] = desc->attrs.kernel[d];
        w.stride[d] = desc->attrs.stride[d];
        w.pad[d] = w.pad_end_least[d] = desc->attrs.pad[d];
        w.dilation[d] = nets_larger(desc->attrs.dilation[d], 1); /* pools have no dilation: theirs is 0 */
    }
    return w;
}

static mm_status make_kernel(const nets_dnn *dnn, const nets_op_desc *desc, int64_t images, bool backward,
                             nets_dnn_kernel *kernel_out) {
    nets_dnn_windows w = nets_host_windows(desc);
    w.x[0] = w.y[0] = images;
    if (desc->kind == NETS_UPSAMPLE)
        return backward ? nets_dnn_upsample_backward(dnn, w.x, w.y, desc->attrs.bilinear, kernel_out)
                        : nets_dnn_upsample_forward(dnn, w.x, w.y, desc->attrs.bilinear, kernel_out);
    return backward ? nets_dnn_pool_backward(dnn, &w, excludes_pad(desc), kernel_out)
                    : nets_dnn_pool_forward(dnn, &w, excludes_pad(desc), kernel_out);
}

static mm_status make(const nets_dnn *dnn, const nets_op_desc *desc, bool backward, nets_piecewise *run) {
    const nets_cut cut = nets_cut_of(desc->x[0].dims[0], nets_pieces(dnn->pool), 1, 1);
    int64_t x = nets_shape_elems(&desc->x[0]) / desc->x[0].dims[0], y = nets_shape_elems(&desc->y) / desc->y.dims[0];
    const int64_t images[] = {cut.each, nets_cut_rest(&cut)};
    const nets_piece_arg args[NETS_PIECE_ARGS] = {
        {backward ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, x * (int64_t)sizeof(float), 0},
        {backward ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, y * (int64_t)sizeof(float), 0},
    };
    for (int k = 0; k < (images[1] == images[0] ? 1 : 2); k++)
        MM_TRY(make_kernel(dnn, desc, images[k], backward, &run->kernel[k]));
    nets_piecewise_measure(run);
    return nets_piecewise_init_cut(run, &cut, args);
}

static mm_status create(nets_backend *backend, const nets_op_desc *desc, nets_op **op_out) {
    resize_op *op = calloc(1, sizeof *op);
    if (!op) return mm_fail(MM_ERR_NOMEM, "no memory for a pool or an upsampling");
    op->base.impl = backend->ops->impls[desc->kind];
    op->dnn = &((nets_host_backend *)backend)->dnn;
    op->x_elems = nets_shape_elems(&desc->x[0]);
    mm_status status = make(op->dnn, desc, false, &op->forward);
    if (status == MM_OK && desc->training) status = make(op->dnn, desc, true, &op->backward);
    if (status != MM_OK) {
        destroy(&op->base);
        return status;
    }
    *op_out = &op->base;
    return MM_OK;
}

#define RESIZE NETS_HOST_IMPL(NETS_DTYPE_BIT(MM_F32), create, destroy, workspace_bytes, run_forward, run_backward)

const nets_host_impl nets_host_op_avg_pool = RESIZE;
const nets_host_impl nets_host_op_global_avg_pool = RESIZE;
const nets_host_impl nets_host_op_upsample = RESIZE;

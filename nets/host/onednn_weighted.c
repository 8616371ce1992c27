/* SPDX-License-Identifier: MIT */
/* Descriptions of the kernels that have weights: convolutions and matrix products. */
#include "nets/host/onednn_internal.h"

static nets_dnn_layout weights_layout(const nets_dnn_windows *w) {
    if (w->groups == 1)
        return (nets_dnn_layout){.rank = 4, .dims = {w->y[3], w->x[3], w->kernel[0], w->kernel[1]}, .tag = dnnl_oihw};
    return (nets_dnn_layout){
        .rank = 5,
        .dims = {w->groups, w->y[3] / w->groups, w->x[3] / w->groups, w->kernel[0], w->kernel[1]},
        .tag = dnnl_goihw,
    };
}

mm_status nets_dnn_conv(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_conv_kind kind,
                        const nets_dnn_kernel *like, nets_dnn_kernel *kernel_out) {
    static const struct {
        const char *what;
        dnnl_prop_kind_t direction;
        int weights;
    } KINDS[] = {
        [NETS_DNN_CONV_FORWARD] = {"a convolution", dnnl_forward_training, DNNL_ARG_WEIGHTS},
        [NETS_DNN_CONV_BY_DATA] = {"a convolution's gradient by its input", dnnl_backward_data, DNNL_ARG_WEIGHTS},
        [NETS_DNN_CONV_BY_WEIGHTS] = {"a convolution's gradient by its weights", dnnl_backward_weights,
                                      DNNL_ARG_DIFF_WEIGHTS},
    };
    nets_dnn_op op = {
        .what = KINDS[kind].what,
        .kind = dnnl_convolution,
        .direction = KINDS[kind].direction,
        .algorithm = dnnl_convolution_direct,
        .x = nets_dnn_nhwc(w->x),
        .weights = weights_layout(w),
        .y = nets_dnn_nhwc(w->y),
        .windows = nets_dnn_window_dims_of(w),
    };
    op.half = w->half;
    op.x.half = w->half && !(kind == NETS_DNN_CONV_BY_DATA && w->wide_dx);
    op.y.half = w->half;
    op.weights.tag = dnnl_format_tag_any;
    op.forward_weights = op.weights;
    op.forward_weights.half = true;
    op.weights.half = w->half && kind != NETS_DNN_CONV_BY_WEIGHTS;
    if (like) op.weights = (nets_dnn_layout){.md = nets_dnn_arg_md(like, KINDS[kind].weights)};
    return nets_dnn_build(dnn, &op, kernel_out);
}

mm_status nets_dnn_weight_items_of(const nets_dnn_windows *w, const nets_dnn_kernel *kernel, int arg,
                                   nets_dnn_weight_items *items_out) {
    const int64_t elem_bytes = w->half && arg == DNNL_ARG_WEIGHTS ? sizeof(uint16_t) : sizeof(float);
    const nets_dnn_layout plain = weights_layout(w);
    const nets_dnn_md md = nets_dnn_arg_md(kernel, arg);
    nets_dnn_weight_items items = {.n = plain.dims[0], .elems = 1};
    int64_t stride;
    if (!md) return mm_fail(MM_ERR_DEVICE, "oneDNN: a convolution has no weights");
    DNN_TRY(nets_dnn_md_block(md, &items.block, &stride), "a layout of weights");
    for (int d = 1; d < plain.rank; d++) items.elems *= plain.dims[d];
    items.bytes = items.elems * elem_bytes;
    items.block_bytes = stride * elem_bytes;
    *items_out = items;
    return MM_OK;
}

mm_status nets_dnn_weights_reorder(const nets_dnn *dnn, const nets_dnn_windows *w, const nets_dnn_kernel *kernel,
                                   int arg, const nets_dnn_reorder *how, nets_dnn_kernel *reorder_out) {
    const nets_dnn_md whole = nets_dnn_arg_md(kernel, arg);
    const bool to_plain = arg == DNNL_ARG_DIFF_WEIGHTS;
    nets_dnn_layout plain = weights_layout(w);
    dnnl_memory_desc_t part;
    if (!whole) return mm_fail(MM_ERR_DEVICE, "oneDNN: a convolution has no weights");
    DNN_TRY(nets_dnn_md_part(whole, how->first, how->n, &part), "a layout of some weights");
    plain.half = w->half && !to_plain;
    plain.dims[0] = how->n;
    const nets_dnn_layout wanted = {.md = nets_dnn_md_of(&part)};
    const nets_dnn_op op = {
        .what = "a reorder",
        .kind = dnnl_reorder,
        .x = to_plain ? wanted : plain,
        .y = to_plain ? plain : wanted,
        .adds = how->adds,
    };
    const mm_status status = nets_dnn_build(dnn, &op, reorder_out);
    nets_dnn_md_destroy(&part);
    if (status != MM_OK) return status;
    if (dnnl_memory_desc_equal(nets_dnn_arg_md(reorder_out, DNNL_ARG_FROM), nets_dnn_arg_md(reorder_out, DNNL_ARG_TO)))
        nets_dnn_kernel_fini(reorder_out);
    return MM_OK;
}

/* The layout of a matrix that is stored row by row or, if `transposed`, whose transpose is stored row by row. */
static nets_dnn_layout matrix(int64_t rows, int64_t columns, bool transposed, int64_t stride) {
    nets_dnn_layout layout = {.rank = 2, .dims = {rows, columns}, .tag = transposed ? dnnl_ba : dnnl_ab};
    if (stride == 0 || stride == (transposed ? rows : columns)) return layout;
    layout.strides[0] = transposed ? 1 : stride;
    layout.strides[1] = transposed ? stride : 1;
    return layout;
}

mm_status nets_dnn_product(const nets_dnn *dnn, const nets_dnn_product_desc *p, nets_dnn_kernel *kernel_out) {
    nets_dnn_op op = {
        .what = "a matrix product",
        .kind = dnnl_matmul,
        .x = matrix(p->rows, p->inner, p->a_transposed, p->a_stride),
        .weights = matrix(p->inner, p->columns, p->b_transposed, p->b_stride),
        .y = matrix(p->rows, p->columns, false, p->y_stride),
        .adds = p->adds,
        .half = p->half,
    };
    op.x.half = op.weights.half = p->half;
    op.y.half = p->half_y;
    if (p->bias) op.bias = matrix(1, p->columns, false, 0);
    return nets_dnn_build(dnn, &op, kernel_out);
}

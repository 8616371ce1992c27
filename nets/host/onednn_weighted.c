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

static nets_dnn_op conv_op(const nets_dnn_windows *w) {
    nets_dnn_op op = {
        .kind = dnnl_convolution,
        .algorithm = dnnl_convolution_direct,
        .x = nets_dnn_nhwc(w->x),
        .weights = weights_layout(w),
        .y = nets_dnn_nhwc(w->y),
        .windows = nets_dnn_window_dims_of(w),
    };
    op.weights.tag = dnnl_format_tag_any;
    return op;
}

mm_status nets_dnn_conv_forward(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_kernel *kernel_out) {
    nets_dnn_op op = conv_op(w);
    op.what = "a convolution";
    op.direction = dnnl_forward_training;
    return nets_dnn_build(dnn, &op, kernel_out);
}

mm_status nets_dnn_conv_backward_data(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_kernel *kernel_out) {
    nets_dnn_op op = conv_op(w);
    op.what = "a convolution's gradient by its input";
    op.direction = dnnl_backward_data;
    return nets_dnn_build(dnn, &op, kernel_out);
}

mm_status nets_dnn_conv_backward_weights(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_kernel *kernel_out) {
    nets_dnn_op op = conv_op(w);
    op.what = "a convolution's gradient by its weights";
    op.direction = dnnl_backward_weights;
    return nets_dnn_build(dnn, &op, kernel_out);
}

mm_status nets_dnn_weights_reorder(const nets_dnn *dnn, const nets_dnn_windows *w, const nets_dnn_kernel *kernel,
                                   int arg, bool to_plain, nets_dnn_kernel *reorder_out) {
    const nets_dnn_layout plain = weights_layout(w), wanted = {.md = nets_dnn_arg_md(kernel, arg)};
    if (!wanted.md) return mm_fail(MM_ERR_DEVICE, "oneDNN: a convolution without weights");
    const nets_dnn_op op = {
        .what = "a reorder",
        .kind = dnnl_reorder,
        .x = to_plain ? wanted : plain,
        .y = to_plain ? plain : wanted,
    };
    MM_TRY(nets_dnn_build(dnn, &op, reorder_out));
    if (dnnl_memory_desc_equal(nets_dnn_arg_md(reorder_out, DNNL_ARG_FROM), nets_dnn_arg_md(reorder_out, DNNL_ARG_TO)))
        nets_dnn_kernel_fini(reorder_out);
    return MM_OK;
}

static nets_dnn_layout matrix(int64_t rows, int64_t columns, bool transposed) {
    return (nets_dnn_layout){.rank = 2, .dims = {rows, columns}, .tag = transposed ? dnnl_ba : dnnl_ab};
}

mm_status nets_dnn_product(const nets_dnn *dnn, const nets_dnn_product_desc *p, nets_dnn_kernel *kernel_out) {
    const nets_dnn_op op = {
        .what = "a matrix product",
        .kind = dnnl_matmul,
        .x = matrix(p->rows, p->inner, p->a_transposed),
        .weights = matrix(p->inner, p->columns, p->b_transposed),
        .y = matrix(p->rows, p->columns, false),
    };
    return nets_dnn_build(dnn, &op, kernel_out);
}

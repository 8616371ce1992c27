/* Descriptions of the kernels that have weights: convolutions and matrix products. */
#include "nets/host/onednn_internal.h"

typedef struct conv_mds {
    dnnl_memory_desc_t x, y, weights;
    nets_dnn_window_dims dims;
} conv_mds;

static mm_status describe_conv(const nets_dnn_windows *w, conv_mds *mds) {
    const dnnl_dims_t weights = {w->y[3], w->x[3], w->kernel[0], w->kernel[1]},
                      grouped = {w->groups, w->y[3] / w->groups, w->x[3] / w->groups, w->kernel[0], w->kernel[1]};
    bool plain = w->groups == 1;
    MM_TRY(nets_dnn_nhwc(w->x, &mds->x));
    MM_TRY(nets_dnn_nhwc(w->y, &mds->y));
    DNN_TRY(dnnl_memory_desc_init_by_tag(&mds->weights, plain ? 4 : 5, plain ? weights : grouped, dnnl_f32,
                                         dnnl_format_tag_any),
            "weights");
    mds->dims = nets_dnn_window_dims_of(w);
    return MM_OK;
}

static mm_status describe_conv_forward(const nets_dnn_windows *w, dnnl_convolution_desc_t *desc) {
    conv_mds mds;
    MM_TRY(describe_conv(w, &mds));
    DNN_TRY(dnnl_dilated_convolution_forward_desc_init(desc, dnnl_forward_training, dnnl_convolution_direct, &mds.x,
                                                       &mds.weights, NULL, &mds.y, mds.dims.stride, mds.dims.dilation,
                                                       mds.dims.pad, mds.dims.pad_end),
            "a convolution");
    return MM_OK;
}

mm_status nets_dnn_conv_forward(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_kernel *kernel_out) {
    dnnl_convolution_desc_t forward;
    MM_TRY(describe_conv_forward(w, &forward));
    return nets_dnn_build(dnn, &forward, NULL, "a convolution", kernel_out);
}

mm_status nets_dnn_conv_backward_data(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_kernel *kernel_out) {
    dnnl_convolution_desc_t forward, backward;
    conv_mds mds;
    MM_TRY(describe_conv_forward(w, &forward));
    MM_TRY(describe_conv(w, &mds));
    DNN_TRY(dnnl_dilated_convolution_backward_data_desc_init(&backward, dnnl_convolution_direct, &mds.x, &mds.weights,
                                                             &mds.y, mds.dims.stride, mds.dims.dilation, mds.dims.pad,
                                                             mds.dims.pad_end),
            "a convolution's gradient by its input");
    return nets_dnn_build(dnn, &backward, &forward, "a convolution's gradient by its input", kernel_out);
}

mm_status nets_dnn_conv_backward_weights(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_kernel *kernel_out) {
    dnnl_convolution_desc_t forward, backward;
    conv_mds mds;
    MM_TRY(describe_conv_forward(w, &forward));
    MM_TRY(describe_conv(w, &mds));
    DNN_TRY(dnnl_dilated_convolution_backward_weights_desc_init(&backward, dnnl_convolution_direct, &mds.x,
                                                                &mds.weights, NULL, &mds.y, mds.dims.stride,
                                                                mds.dims.dilation, mds.dims.pad, mds.dims.pad_end),
            "a convolution's gradient by its weights");
    return nets_dnn_build(dnn, &backward, &forward, "a convolution's gradient by its weights", kernel_out);
}

mm_status nets_dnn_weights_reorder(const nets_dnn *dnn, const nets_dnn_kernel *kernel, int arg, bool to_plain,
                                   nets_dnn_kernel *reorder_out) {
    const dnnl_memory_desc_t *wanted = nets_dnn_md(kernel, arg);
    dnnl_memory_desc_t plain;
    if (!wanted) return mm_fail(MM_ERR_DEVICE, "oneDNN: a convolution without weights");
    DNN_TRY(dnnl_memory_desc_init_by_tag(&plain, wanted->ndims, wanted->dims, dnnl_f32,
                                         wanted->ndims == 5 ? dnnl_goihw : dnnl_oihw),
            "weights");
    *reorder_out = (nets_dnn_kernel){0};
    if (dnnl_memory_desc_equal(wanted, &plain)) return MM_OK;
    return to_plain ? nets_dnn_build_reorder(dnn, wanted, &plain, reorder_out)
                    : nets_dnn_build_reorder(dnn, &plain, wanted, reorder_out);
}

static mm_status describe_matrix(int64_t rows, int64_t columns, bool transposed, dnnl_memory_desc_t *md_out) {
    const dnnl_dims_t dims = {rows, columns}, strides = {transposed ? 1 : columns, transposed ? rows : 1};
    DNN_TRY(dnnl_memory_desc_init_by_strides(md_out, 2, dims, dnnl_f32, strides), "describing a matrix");
    return MM_OK;
}

mm_status nets_dnn_product(const nets_dnn *dnn, const nets_dnn_product_desc *p, nets_dnn_kernel *kernel_out) {
    dnnl_memory_desc_t a, b, y;
    dnnl_matmul_desc_t desc;
    MM_TRY(describe_matrix(p->rows, p->inner, p->a_transposed, &a));
    MM_TRY(describe_matrix(p->inner, p->columns, p->b_transposed, &b));
    MM_TRY(describe_matrix(p->rows, p->columns, false, &y));
    DNN_TRY(dnnl_matmul_desc_init(&desc, &a, &b, NULL, &y), "a matrix product");
    return nets_dnn_build(dnn, &desc, NULL, "a matrix product", kernel_out);
}

/* SPDX-License-Identifier: MIT */
/* Descriptions of the kernels that map images to images without weights of their own: pools, upsampling, and
 * the change of layout. */
#include "nets/host/onednn_internal.h"

static nets_dnn_op pool_op(const nets_dnn_windows *w, bool exclude_pad) {
    return (nets_dnn_op){
        .kind = dnnl_pooling,
        .algorithm = exclude_pad ? dnnl_pooling_avg_exclude_padding : dnnl_pooling_avg_include_padding,
        .x = nets_dnn_nhwc(w->x),
        .y = nets_dnn_nhwc(w->y),
        .windows = nets_dnn_window_dims_of(w),
    };
}

mm_status nets_dnn_pool_forward(const nets_dnn *dnn, const nets_dnn_windows *w, bool exclude_pad,
                                nets_dnn_kernel *kernel_out) {
    nets_dnn_op op = pool_op(w, exclude_pad);
    op.what = "a pool";
    op.direction = dnnl_forward_inference;
    return nets_dnn_build(dnn, &op, kernel_out);
}

mm_status nets_dnn_pool_backward(const nets_dnn *dnn, const nets_dnn_windows *w, bool exclude_pad,
                                 nets_dnn_kernel *kernel_out) {
    nets_dnn_op op = pool_op(w, exclude_pad);
    op.what = "a pool's gradient";
    op.direction = dnnl_backward_data;
    return nets_dnn_build(dnn, &op, kernel_out);
}

static nets_dnn_op upsample_op(const int64_t x[4], const int64_t y[4], bool bilinear) {
    return (nets_dnn_op){
        .kind = dnnl_resampling,
        .algorithm = bilinear ? dnnl_resampling_linear : dnnl_resampling_nearest,
        .x = nets_dnn_nhwc(x),
        .y = nets_dnn_nhwc(y),
    };
}

mm_status nets_dnn_upsample_forward(const nets_dnn *dnn, const int64_t x[4], const int64_t y[4], bool bilinear,
                                    nets_dnn_kernel *kernel_out) {
    nets_dnn_op op = upsample_op(x, y, bilinear);
    op.what = "an upsampling";
    op.direction = dnnl_forward_training;
    return nets_dnn_build(dnn, &op, kernel_out);
}

mm_status nets_dnn_upsample_backward(const nets_dnn *dnn, const int64_t x[4], const int64_t y[4], bool bilinear,
                                     nets_dnn_kernel *kernel_out) {
    nets_dnn_op op = upsample_op(x, y, bilinear);
    op.what = "an upsampling's gradient";
    op.direction = dnnl_backward_data;
    return nets_dnn_build(dnn, &op, kernel_out);
}

mm_status nets_dnn_planes_reorder(const nets_dnn *dnn, const int64_t x[4], bool half, bool to_planes,
                                  nets_dnn_kernel *reorder_out) {
    nets_dnn_layout pixels = nets_dnn_nhwc(x);
    pixels.half = half;
    nets_dnn_layout planes = pixels;
    planes.tag = dnnl_nchw;
    const nets_dnn_op op = {
        .what = "a reorder",
        .kind = dnnl_reorder,
        .x = to_planes ? pixels : planes,
        .y = to_planes ? planes : pixels,
    };
    return nets_dnn_build(dnn, &op, reorder_out);
}

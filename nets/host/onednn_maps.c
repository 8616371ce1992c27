/* Descriptions of the kernels that map images to images without weights of their own: pools, upsampling, and
 * the change of layout. */
#include "nets/host/onednn_internal.h"

static mm_status describe_pool(const nets_dnn_windows *w, nets_dnn_pool kind, bool training,
                               dnnl_pooling_desc_t *forward, dnnl_pooling_desc_t *backward) {
    static const dnnl_alg_kind_t ALGORITHMS[] = {dnnl_pooling_max, dnnl_pooling_avg_include_padding,
                                                 dnnl_pooling_avg_exclude_padding};
    dnnl_memory_desc_t x, y;
    const nets_dnn_window_dims d = nets_dnn_window_dims_of(w);
    MM_TRY(nets_dnn_nhwc(w->x, &x));
    MM_TRY(nets_dnn_nhwc(w->y, &y));
    DNN_TRY(dnnl_pooling_forward_desc_init(forward, training ? dnnl_forward_training : dnnl_forward_inference,
                                           ALGORITHMS[kind], &x, &y, d.stride, d.kernel, d.pad, d.pad_end),
            "a pool");
    if (backward)
        DNN_TRY(
            dnnl_pooling_backward_desc_init(backward, ALGORITHMS[kind], &x, &y, d.stride, d.kernel, d.pad, d.pad_end),
            "a pool's gradient");
    return MM_OK;
}

mm_status nets_dnn_pool_forward(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_pool kind, bool training,
                                nets_dnn_kernel *kernel_out) {
    dnnl_pooling_desc_t forward;
    MM_TRY(describe_pool(w, kind, training, &forward, NULL));
    return nets_dnn_build(dnn, &forward, NULL, "a pool", kernel_out);
}

mm_status nets_dnn_pool_backward(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_pool kind,
                                 nets_dnn_kernel *kernel_out) {
    dnnl_pooling_desc_t forward, backward;
    MM_TRY(describe_pool(w, kind, true, &forward, &backward));
    return nets_dnn_build(dnn, &backward, &forward, "a pool's gradient", kernel_out);
}

static mm_status describe_upsample(const int64_t x[4], const int64_t y[4], bool bilinear,
                                   dnnl_resampling_desc_t *forward, dnnl_resampling_desc_t *backward) {
    dnnl_memory_desc_t from, to;
    dnnl_alg_kind_t algorithm = bilinear ? dnnl_resampling_linear : dnnl_resampling_nearest;
    MM_TRY(nets_dnn_nhwc(x, &from));
    MM_TRY(nets_dnn_nhwc(y, &to));
    DNN_TRY(dnnl_resampling_forward_desc_init(forward, dnnl_forward_training, algorithm, NULL, &from, &to),
            "an upsampling");
    if (backward)
        DNN_TRY(dnnl_resampling_backward_desc_init(backward, algorithm, NULL, &from, &to), "an upsampling's gradient");
    return MM_OK;
}

mm_status nets_dnn_upsample_forward(const nets_dnn *dnn, const int64_t x[4], const int64_t y[4], bool bilinear,
                                    nets_dnn_kernel *kernel_out) {
    dnnl_resampling_desc_t forward;
    MM_TRY(describe_upsample(x, y, bilinear, &forward, NULL));
    return nets_dnn_build(dnn, &forward, NULL, "an upsampling", kernel_out);
}

mm_status nets_dnn_upsample_backward(const nets_dnn *dnn, const int64_t x[4], const int64_t y[4], bool bilinear,
                                     nets_dnn_kernel *kernel_out) {
    dnnl_resampling_desc_t forward, backward;
    MM_TRY(describe_upsample(x, y, bilinear, &forward, &backward));
    return nets_dnn_build(dnn, &backward, &forward, "an upsampling's gradient", kernel_out);
}

mm_status nets_dnn_planes_reorder(const nets_dnn *dnn, const int64_t x[4], bool to_planes,
                                  nets_dnn_kernel *reorder_out) {
    const dnnl_dims_t logical = {x[0], x[3], x[1], x[2]};
    dnnl_memory_desc_t pixels, planes;
    MM_TRY(nets_dnn_nhwc(x, &pixels));
    DNN_TRY(dnnl_memory_desc_init_by_tag(&planes, 4, logical, dnnl_f32, dnnl_nchw), "describing an image");
    return to_planes ? nets_dnn_build_reorder(dnn, &pixels, &planes, reorder_out)
                     : nets_dnn_build_reorder(dnn, &planes, &pixels, reorder_out);
}

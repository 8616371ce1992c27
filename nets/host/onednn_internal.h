/* What the descriptions of kernels (onednn_*.c) are made into kernels with. Internal to onednn. */
#ifndef NETS_HOST_ONEDNN_INTERNAL_H
#define NETS_HOST_ONEDNN_INTERNAL_H

#include "nets/host/onednn.h"

mm_status nets_dnn_fail(dnnl_status_t status, const char *what);

#define DNN_TRY(expression, what)                                                                                      \
    do {                                                                                                               \
        dnnl_status_t dnn_status_ = (expression);                                                                      \
        if (dnn_status_ != dnnl_success) return nets_dnn_fail(dnn_status_, what);                                      \
    } while (0)

/* A kernel from an operation descriptor; `forward` not NULL: the forward operation that a backward one refers to. */
MM_CHECKED mm_status nets_dnn_build(const nets_dnn *dnn, const_dnnl_op_desc_t op, const_dnnl_op_desc_t forward,
                                    const char *what, nets_dnn_kernel *kernel_out);
MM_CHECKED mm_status nets_dnn_build_reorder(const nets_dnn *dnn, const dnnl_memory_desc_t *from,
                                            const dnnl_memory_desc_t *to, nets_dnn_kernel *reorder_out);

/* The layout of a kernel's argument; NULL if it has none of that name. */
const dnnl_memory_desc_t *nets_dnn_md(const nets_dnn_kernel *kernel, int arg);

/* NHWC dims as oneDNN's logical NCHW, laid out channels last. */
MM_CHECKED mm_status nets_dnn_nhwc(const int64_t dims[4], dnnl_memory_desc_t *md_out);

/* Pairs as the arrays of full length that oneDNN declares. `pad_end` is what the last window needs behind the image,
 * if that is more than before it (pools in ceil mode). Dilation as oneDNN counts it: elements skipped. */
typedef struct nets_dnn_window_dims {
    dnnl_dims_t kernel, stride, pad, pad_end, dilation;
} nets_dnn_window_dims;

nets_dnn_window_dims nets_dnn_window_dims_of(const nets_dnn_windows *w);

#endif

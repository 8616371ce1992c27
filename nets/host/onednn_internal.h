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

#if DNNL_VERSION_MAJOR < 3
typedef const dnnl_memory_desc_t *nets_dnn_md;
#else
typedef const_dnnl_memory_desc_t nets_dnn_md;
#endif

/* Dims in oneDNN's logical order (NCHW, OIHW), and the order they are stored in; or oneDNN's own description of
 * both. */
typedef struct nets_dnn_layout {
    int rank; /* 0: no such argument, or by md */
    dnnl_dims_t dims;
    dnnl_format_tag_t tag; /* dnnl_format_tag_any: as the primitive likes it */
    dnnl_dims_t strides;   /* strides[0] not 0: in place of the tag */
    nets_dnn_md md;        /* borrowed */
} nets_dnn_layout;

/* Pairs as the arrays of full length that oneDNN declares. `pad_end` is what the last window needs behind the image,
 * if that is more than before it (pools in ceil mode). Dilation as oneDNN counts it: elements skipped. */
typedef struct nets_dnn_window_dims {
    dnnl_dims_t kernel, stride, pad, pad_end, dilation;
} nets_dnn_window_dims;

/* What one primitive does; of a backward one, x, weights and y are their gradients where it has those. */
typedef struct nets_dnn_op {
    const char *what;           /* for messages */
    dnnl_primitive_kind_t kind; /* dnnl_convolution, _pooling, _resampling, _matmul, _reorder (x to y) */
    dnnl_prop_kind_t direction; /* backward: which is described together with the forward one it belongs to */
    dnnl_alg_kind_t algorithm;
    nets_dnn_layout x, weights, y;
    nets_dnn_window_dims windows;
} nets_dnn_op;

/* NHWC dims, laid out channels last. */
nets_dnn_layout nets_dnn_nhwc(const int64_t dims[4]);

nets_dnn_window_dims nets_dnn_window_dims_of(const nets_dnn_windows *w);

/* MM_ERR_UNSUPPORTED: not implemented, or an image larger than oneDNN can count. */
MM_CHECKED mm_status nets_dnn_build(const nets_dnn *dnn, const nets_dnn_op *op, nets_dnn_kernel *kernel_out);

/* The layout of a kernel's argument; NULL if it has none of that name. */
nets_dnn_md nets_dnn_arg_md(const nets_dnn_kernel *kernel, int arg);

/* A description of the operation, by whichever calls the version of oneDNN has for it. `hint`: of a backward one, the
 * forward one's. */
dnnl_status_t nets_dnn_describe(dnnl_engine_t engine, const nets_dnn_op *op, const_dnnl_primitive_desc_t hint,
                                const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *description_out);

#endif

/* SPDX-License-Identifier: MIT */
/* Making kernels from descriptions of one operation, for onednn_*.c. Internal to onednn. */
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

/* An argument's layout: dims in oneDNN's logical order (NCHW, OIHW) with a tag or strides, or oneDNN's own description
 * (md). */
typedef struct nets_dnn_layout {
    int rank; /* 0: there is no such argument, or md has its layout */
    dnnl_dims_t dims;
    dnnl_format_tag_t tag; /* dnnl_format_tag_any: the primitive chooses */
    dnnl_dims_t strides;   /* replace the tag if strides[0] is not 0 */
    bool half;             /* bf16, not f32 */
    nets_dnn_md md;        /* borrowed */
} nets_dnn_layout;

/* Windows in the arrays that oneDNN takes. pad_end: the padding below and on the right, of which pools in ceil mode may
 * need more than of `pad`. Dilation counts as oneDNN's does: the elements skipped. */
typedef struct nets_dnn_window_dims {
    dnnl_dims_t kernel, stride, pad, pad_end, dilation;
} nets_dnn_window_dims;

/* A primitive's operation. In a backward one, x, weights and y stand for their gradients where it takes those. */
typedef struct nets_dnn_op {
    const char *what;           /* for messages */
    dnnl_primitive_kind_t kind; /* dnnl_convolution, _pooling, _resampling, _matmul, _reorder (x to y) */
    dnnl_prop_kind_t direction; /* for a backward one oneDNN also needs the forward one's description */
    dnnl_alg_kind_t algorithm;
    nets_dnn_layout x, weights, y;
    nets_dnn_layout bias; /* of a product */
    /* For a gradient of weights with `half`, which is f32: the forward operation's weights */
    nets_dnn_layout forward_weights;
    nets_dnn_window_dims windows;
    bool adds; /* a reorder or product adds to y */
    bool half; /* the operation must compute with the CPU's units for bf16, else it is refused */
} nets_dnn_op;

/* The layout of NHWC dims, stored with channels last. */
nets_dnn_layout nets_dnn_nhwc(const int64_t dims[4]);

nets_dnn_window_dims nets_dnn_window_dims_of(const nets_dnn_windows *w);

/* Makes the kernel. MM_ERR_UNSUPPORTED: oneDNN does not implement it, or an image is larger than oneDNN can count. */
MM_CHECKED mm_status nets_dnn_build(const nets_dnn *dnn, const nets_dnn_op *op, nets_dnn_kernel *kernel_out);

/* The layout of a kernel's argument; NULL if it has none of that name. */
nets_dnn_md nets_dnn_arg_md(const nets_dnn_kernel *kernel, int arg);

/* How many items of its first dimension a layout keeps together, and the elements from one such block to the next. */
dnnl_status_t nets_dnn_md_block(nets_dnn_md md, int64_t *items_out, int64_t *stride_out);
/* The layout of `n` items of a tensor, along its first dimension, from the item `first` on, in memory that begins with
 * them; behind them others lie as before. They are whole blocks, or the last items. The caller destroys it. */
dnnl_status_t nets_dnn_md_part(nets_dnn_md whole, int64_t first, int64_t n, dnnl_memory_desc_t *md_out);
void nets_dnn_md_destroy(dnnl_memory_desc_t *md);
nets_dnn_md nets_dnn_md_of(const dnnl_memory_desc_t *md);

/* Makes a primitive with these post-operations add to its output. */
dnnl_status_t nets_dnn_append_sum(dnnl_post_ops_t ops);

/* Makes oneDNN's description of the operation, with the calls of the version compiled for. `hint`: the forward one's
 * description, for a backward one. */
dnnl_status_t nets_dnn_describe(dnnl_engine_t engine, const nets_dnn_op *op, const_dnnl_primitive_desc_t hint,
                                const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *description_out);

#endif

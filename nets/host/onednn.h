/* SPDX-License-Identifier: MIT */
/* An interface to oneDNN, versions 2 from 2.6 on and 3; onednn_version.c hides the difference. A kernel is one
 * primitive with its memory objects. It is made once, then bound to pointers and run any number of times; running it
 * allocates nothing of ours. Activations are NHWC; plain weights are OIHW, grouped ones GOIHW. A kernel runs on the
 * calling thread alone. Several threads of a pool may run one kernel at the same time, each with arguments of its own
 * (partition.h). */
#ifndef NETS_HOST_ONEDNN_H
#define NETS_HOST_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "mm/device/host/host_pool.h"

typedef struct nets_dnn {
    dnnl_engine_t engine;
    mm_host_pool *pool;     /* borrowed; NULL: only the caller's thread computes */
    dnnl_stream_t *streams; /* one for each of the pool's threads */
    bool plans_only;        /* kernels tell what they need, and cannot run: making a primitive takes longer */
} nets_dnn;

typedef struct nets_dnn_kernel {
    dnnl_primitive_t primitive; /* NULL: there is no kernel, or it is for planning alone */
    dnnl_exec_arg_t *args;      /* n_args of thread 0, n_args of thread 1, ... */
    int n_args, threads;
    int64_t scratch_bytes;
} nets_dnn_kernel;

/* Whether there is such a kernel. One for planning alone has no primitive. */
static inline bool nets_dnn_is_made(const nets_dnn_kernel *kernel) { return kernel->n_args > 0; }

/* Windows over an image: convolutions and pools. NHWC dims; pairs are {height, width}. */
typedef struct nets_dnn_windows {
    int64_t x[4], y[4];
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    int64_t pad_end_least[2]; /* the least padding below and on the right; the last window may need more */
    int64_t groups;           /* convolutions only */
    bool half, wide_dx;       /* convolutions. half: bf16, but gradients of weights are f32; wide_dx: those of x, too */
} nets_dnn_windows;

/* A matrix product y[rows, columns] = a[rows, inner] b[inner, columns]. Matrices are stored row by row; a_transposed: a
 * is stored as its transpose; b likewise. The strides are elements from one stored row to the next; 0: rows have no
 * gaps. */
typedef struct nets_dnn_product_desc {
    int64_t rows, inner, columns;
    bool a_transposed, b_transposed;
    int64_t a_stride, b_stride, y_stride;
    bool adds;         /* y += a b */
    bool half, half_y; /* half: a and b are bf16; half_y: so is y */
    bool bias;         /* a bias by column, f32, is added before y is rounded */
} nets_dnn_product_desc;

/* Whether the CPU has units for products of bf16, and oneDNN may use them. Without them it would compute with others,
 * several times slower than f32. */
bool nets_dnn_has_bf16(void);

/* The pool must outlive `dnn`. */
MM_CHECKED mm_status nets_dnn_init(nets_dnn *dnn, mm_host_pool *pool, bool plans_only);
void nets_dnn_fini(nets_dnn *dnn);

typedef enum nets_dnn_conv_kind {
    NETS_DNN_CONV_FORWARD,
    NETS_DNN_CONV_BY_DATA,   /* the gradient with respect to x */
    NETS_DNN_CONV_BY_WEIGHTS /* the gradient with respect to the weights */
} nets_dnn_conv_kind;

/* Makes a convolution's kernel. MM_ERR_UNSUPPORTED with `half`: oneDNN has none for the CPU's bf16 units. Its arguments
 * have oneDNN's names: SRC, WEIGHTS, DST, or their DIFF_ ones. The weights are in the layout that the primitive
 * prefers; `like` not NULL: in the layout of that kernel, of the same kind. nets_dnn_weights_reorder converts from and
 * to the plain layout. */
MM_CHECKED mm_status nets_dnn_conv(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_conv_kind kind,
                                   const nets_dnn_kernel *like, nets_dnn_kernel *kernel_out);

/* The items of which a convolution's weights consist, output channels or groups, and where the kernel's argument `arg`
 * (WEIGHTS, DIFF_WEIGHTS) has them: in blocks, of which the last may be filled up. Weights that cannot be cut
 * count as one block. */
typedef struct nets_dnn_weight_items {
    int64_t n;
    int64_t elems, bytes;       /* of an item, in the plain layout */
    int64_t block, block_bytes; /* items of a block; bytes from one block to the next */
} nets_dnn_weight_items;

/* `kernel` was made from `w`. */
MM_CHECKED mm_status nets_dnn_weight_items_of(const nets_dnn_windows *w, const nets_dnn_kernel *kernel, int arg,
                                              nets_dnn_weight_items *items_out);

/* Which items' weights a reorder copies, or adds. They are whole blocks, or the last items. */
typedef struct nets_dnn_reorder {
    int64_t first, n;
    bool adds;
} nets_dnn_reorder;

/* A kernel that copies FROM the plain layout TO that of the kernel's WEIGHTS, or FROM that of its DIFF_WEIGHTS TO the
 * plain one; `kernel` was made from `w`. Both arguments begin with the first of these items. What fills up the last
 * block becomes zero. No kernel is made if the layouts are equal. */
MM_CHECKED mm_status nets_dnn_weights_reorder(const nets_dnn *dnn, const nets_dnn_windows *w,
                                              const nets_dnn_kernel *kernel, int arg, const nets_dnn_reorder *how,
                                              nets_dnn_kernel *reorder_out);

/* A product's kernel, with arguments SRC (a), WEIGHTS (b), DST (y) in the layouts described, without reordering, and
 * BIAS. MM_ERR_UNSUPPORTED with `half`: oneDNN has none for the CPU's bf16 units. */
MM_CHECKED mm_status nets_dnn_product(const nets_dnn *dnn, const nets_dnn_product_desc *product,
                                      nets_dnn_kernel *kernel_out);

/* A kernel that copies images of dims x, f32 or bf16 (`half`), FROM NHWC TO NCHW (`to_planes`), or back. */
MM_CHECKED mm_status nets_dnn_planes_reorder(const nets_dnn *dnn, const int64_t x[4], bool half, bool to_planes,
                                             nets_dnn_kernel *reorder_out);

/* The kernels of a pool of averages, with arguments SRC and DST, or their DIFF_ ones. exclude_pad: padding does not
 * count. */
MM_CHECKED mm_status nets_dnn_pool_forward(const nets_dnn *dnn, const nets_dnn_windows *w, bool exclude_pad,
                                           nets_dnn_kernel *kernel_out);
MM_CHECKED mm_status nets_dnn_pool_backward(const nets_dnn *dnn, const nets_dnn_windows *w, bool exclude_pad,
                                            nets_dnn_kernel *kernel_out);

/* Upsampling's kernels, with arguments SRC and DST, or their DIFF_ ones. Factors are whole numbers. Bilinear
 * interpolation takes pixels as squares: corners are not aligned. */
MM_CHECKED mm_status nets_dnn_upsample_forward(const nets_dnn *dnn, const int64_t x[4], const int64_t y[4],
                                               bool bilinear, nets_dnn_kernel *kernel_out);
MM_CHECKED mm_status nets_dnn_upsample_backward(const nets_dnn *dnn, const int64_t x[4], const int64_t y[4],
                                                bool bilinear, nets_dnn_kernel *kernel_out);

void nets_dnn_kernel_fini(nets_dnn_kernel *kernel);

/* An argument's bytes; 0 if the kernel has none of that name. */
int64_t nets_dnn_arg_bytes(const nets_dnn_kernel *kernel, int arg);

/* Sets the memory of a thread's argument; `thread` is 0 outside of the pool's runs. Does nothing if the kernel has no
 * argument of that name. MM_ERR_ORDER: it is for planning alone. */
MM_CHECKED mm_status nets_dnn_bind(nets_dnn_kernel *kernel, int thread, int arg, const void *data);

/* Runs the kernel to its end on the calling thread, with the arguments of `thread`, all of which are bound. `scratch`
 * has scratch_bytes. MM_ERR_ORDER: it is for planning alone. */
MM_CHECKED mm_status nets_dnn_run(const nets_dnn *dnn, nets_dnn_kernel *kernel, int thread, void *scratch);

#endif

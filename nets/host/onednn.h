/* oneDNN, 2 from 2.6 on or 3 (onednn_version.c alone tells them apart). A kernel is one primitive with its memory
 * objects; it is made once, bound to pointers and run any number of times, without allocation of ours. Layouts:
 * activations NHWC, plain weights OIHW, grouped GOIHW. A kernel is made for one thread and runs on the caller's; several
 * threads of a pool may run it at a time, each with arguments of its own (pieces.h). */
#ifndef NETS_HOST_ONEDNN_H
#define NETS_HOST_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "mm/device/host_pool.h"

typedef struct nets_dnn {
    dnnl_engine_t engine;
    mm_host_pool *pool;     /* borrowed; NULL: the caller's thread alone */
    dnnl_stream_t *streams; /* one for each of its threads */
} nets_dnn;

typedef struct nets_dnn_kernel {
    dnnl_primitive_t primitive; /* NULL: not made, or not needed */
    dnnl_exec_arg_t *args;      /* n_args of thread 0, n_args of thread 1, ... */
    int n_args, threads;
    int64_t scratch_bytes;
} nets_dnn_kernel;

/* Windows over an image: convolutions and pools. NHWC dims; pairs are {height, width}. */
typedef struct nets_dnn_windows {
    int64_t x[4], y[4];
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    int64_t pad_end_least[2]; /* as `pad`, behind the image; the last window may need more */
    int64_t groups;           /* convolutions */
} nets_dnn_windows;

/* Of a matrix product y[rows, columns] = a[rows, inner] b[inner, columns]: `transposed` means stored as the transposed
 * matrix; all are row by row. From one stored row to the next are a_stride, b_stride, y_stride elements (0: as many as
 * a row has). */
typedef struct nets_dnn_product_desc {
    int64_t rows, inner, columns;
    bool a_transposed, b_transposed;
    int64_t a_stride, b_stride, y_stride;
} nets_dnn_product_desc;

typedef enum nets_dnn_pool { NETS_DNN_POOL_MAX, NETS_DNN_POOL_AVG, NETS_DNN_POOL_AVG_EXCLUDE_PAD } nets_dnn_pool;

/* The pool must outlive it. */
MM_CHECKED mm_status nets_dnn_init(nets_dnn *dnn, mm_host_pool *pool);
void nets_dnn_fini(nets_dnn *dnn);

typedef enum nets_dnn_conv_kind {
    NETS_DNN_CONV_FORWARD,
    NETS_DNN_CONV_BY_DATA,   /* the gradient by x */
    NETS_DNN_CONV_BY_WEIGHTS /* by the weights */
} nets_dnn_conv_kind;

/* Arguments by oneDNN's names: SRC, WEIGHTS, DST and their DIFF_. Weights are in the layout that the primitive
 * likes, or in that of `like`, one of the same kind; nets_dnn_weights_reorder makes the way from or to the plain one. */
MM_CHECKED mm_status nets_dnn_conv(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_conv_kind kind,
                                   const nets_dnn_kernel *like, nets_dnn_kernel *kernel_out);

/* FROM plain TO the layout of the kernel's argument `arg` (WEIGHTS, DIFF_WEIGHTS), or the other way round; `w` is what
 * the kernel was made of. Its primitive stays NULL if the layouts are one. */
MM_CHECKED mm_status nets_dnn_weights_reorder(const nets_dnn *dnn, const nets_dnn_windows *w,
                                              const nets_dnn_kernel *kernel, int arg, bool to_plain,
                                              nets_dnn_kernel *reorder_out);

/* Arguments SRC (a), WEIGHTS (b), DST (y), none of which oneDNN wants otherwise than as described. */
MM_CHECKED mm_status nets_dnn_product(const nets_dnn *dnn, const nets_dnn_product_desc *product,
                                      nets_dnn_kernel *kernel_out);

/* Of images of dims x: FROM pixels (NHWC) TO planes (NCHW), or the other way round. */
MM_CHECKED mm_status nets_dnn_planes_reorder(const nets_dnn *dnn, const int64_t x[4], bool to_planes,
                                             nets_dnn_kernel *reorder_out);

/* SRC, DST and, of a max pool in training, WORKSPACE: a byte for each element of DST, the window's element. */
MM_CHECKED mm_status nets_dnn_pool_forward(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_pool kind,
                                           bool training, nets_dnn_kernel *kernel_out);
MM_CHECKED mm_status nets_dnn_pool_backward(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_pool kind,
                                            nets_dnn_kernel *kernel_out);

/* SRC, DST; DIFF_DST, DIFF_SRC. By whole factors, pixels being squares: bilinear does not align the corners. */
MM_CHECKED mm_status nets_dnn_upsample_forward(const nets_dnn *dnn, const int64_t x[4], const int64_t y[4],
                                               bool bilinear, nets_dnn_kernel *kernel_out);
MM_CHECKED mm_status nets_dnn_upsample_backward(const nets_dnn *dnn, const int64_t x[4], const int64_t y[4],
                                                bool bilinear, nets_dnn_kernel *kernel_out);

void nets_dnn_kernel_fini(nets_dnn_kernel *kernel);

/* Bytes of an argument; 0 if the kernel has none of that name. */
int64_t nets_dnn_arg_bytes(const nets_dnn_kernel *kernel, int arg);

/* Points an argument of a thread (0 outside the pool's runs) at memory; nothing if the kernel has none of that name. */
MM_CHECKED mm_status nets_dnn_bind(nets_dnn_kernel *kernel, int thread, int arg, const void *data);

/* Runs it to its end on the calling thread, with that number's arguments. All are bound; `scratch` has scratch_bytes. */
MM_CHECKED mm_status nets_dnn_run(const nets_dnn *dnn, nets_dnn_kernel *kernel, int thread, void *scratch);

#endif

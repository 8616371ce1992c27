/* SPDX-License-Identifier: MIT */
/* One direction of a convolution, float32 or bf16 NHWC with weights KRSC (out, height, width, in), the layouts of
 * cuDNN's fast kernels. Internal.
 *
 * The candidates are the algorithms of cuDNN's legacy API (cudnn_legacy.c), for images of fewer than 2^31 elements, the
 * engines of its graph API (cudnn_graph.h) and, for a convolution that is a product of matrices, cuBLAS's algorithms
 * (gemm.h). Timing finds the fastest, and those that take more time and less workspace (cudnn_choose.c). Which of these
 * runs depends on the workspace that the step gets. A deterministic configuration uses the fastest only. */
#ifndef NETS_CUDA_LIBRARIES_CUDNN_CONV_H
#define NETS_CUDA_LIBRARIES_CUDNN_CONV_H

#include "nets/cuda/choose/pareto.h"
#include "nets/cuda/libraries/cudnn_graph.h"
#include "nets/cuda/libraries/gemm.h"

/* Candidates that take up to this many times the fastest one's time count as equally fast; of them the one with the
 * least workspace is taken. The next choice is made in the same way among those with less workspace. Chosen: the
 * precision of the timing. */
#define NETS_CUDNN_NO_SLOWER 1.02

/* A candidate that takes more workspace than limit_bytes must take at most this fraction of the time of the fastest one
 * within the limit. Chosen: so much memory must be worth at least a tenth of the time. */
#define NETS_CUDNN_MUCH_FASTER 0.9

/* The legacy API's descriptors. */
typedef struct nets_cudnn_legacy {
    cudnnTensorDescriptor_t x, y; /* x NULL: the images are too large for this API, or there is no handle */
    cudnnFilterDescriptor_t weights;
    cudnnConvolutionDescriptor_t conv;
} nets_cudnn_legacy;

/* A choice that is ready to be launched. */
typedef struct nets_conv_algorithm {
    nets_conv_choice choice;
    nets_cudnn_plan plan;        /* for NETS_CONV_GRAPH */
    nets_gemm_algorithm product; /* for NETS_CONV_PRODUCT */
} nets_conv_algorithm;

typedef struct nets_cudnn_conv {
    nets_cuda_backend *cuda;
    nets_conv_shape shape;
    nets_conv_terms terms;
    nets_conv_algorithm of[NETS_WORKSPACES]; /* the choices, in the order of nets_conv_pareto */
    int n;
    nets_cudnn_legacy legacy;
    nets_gemm product;
    nets_cudnn_graph graph; /* for the engines among the choices */
    int64_t x_bytes, y_bytes, weights_bytes;
} nets_cudnn_conv;

/* The terms for outputs, from those for gradients. Outputs are always deterministic: a recomputation must give the same
 * bits. */
static inline nets_conv_terms nets_cudnn_output_terms(const nets_conv_terms *terms) {
    return (nets_conv_terms){true, terms->limit_bytes, terms->tensor_core_limit_bytes};
}

/* The shape of a matrix product: x [rows][in], y [rows][out], weights [out][in]. */
static inline nets_conv_shape nets_product_shape(nets_direction direction, int64_t rows, int64_t in, int64_t out,
                                                 int bf16 /* nets_conv_bf16, or 0 */) {
    return (nets_conv_shape){.direction = direction,
                             .x = {(int)rows, 1, 1, (int)in},
                             .y = {(int)rows, 1, 1, (int)out},
                             .kernel = {1, 1},
                             .stride = {1, 1},
                             .dilation = {1, 1},
                             .groups = 1,
                             .bf16 = bf16};
}

/* Describes the convolution and chooses what computes it: the cached choices for this device, precision, terms and
 * shape, else what timing finds, in device memory that is freed afterwards. If there is not enough memory, or timing
 * fails, the library's guess is taken and not cached. Without a device the choices are those cached for any device;
 * without any, the workspace is the limit. `conv` must not move afterwards. MM_ERR_UNSUPPORTED: nothing can compute it
 * within the precision and the terms. */
MM_CHECKED mm_status nets_cudnn_conv_init(nets_cudnn_conv *conv, nets_cuda_backend *cuda, const nets_conv_shape *shape,
                                          const nets_conv_terms *terms);
void nets_cudnn_conv_fini(nets_cudnn_conv *conv);

/* ---------------------------------------------------------------- cudnn_conv_run.c */

/* What an op needs in its workspace besides the library's. */
typedef struct nets_conv_room {
    int64_t before; /* bytes in front of the library's workspace */
    int64_t least;  /* at least so many for both together: kernels that run before or after the library use them */
    int64_t behind; /* bytes behind both, aligned; 0: none, and the size of both is not rounded up */
} nets_conv_room;

/* Sets the sizes of workspace for a phase of `op` that enqueues `parts` one after the other in the same workspace, each
 * by its fastest algorithm that fits. A part that was not created (all zero) is ignored. */
void nets_cudnn_conv_set_workspaces(nets_op *op, mm_phase phase, const nets_cudnn_conv *const parts[], int n_parts,
                                    nets_conv_room room);

/* A convolution's tensors, and the workspace of the library. */
typedef struct nets_conv_tensors {
    void *x, *y, *weights;
    void *extra; /* of a product with an epilogue (gemm.h) */
    void *workspace;
    int64_t workspace_bytes;
} nets_conv_tensors;

/* Enqueues the convolution, by its fastest algorithm that takes at most `workspace_bytes`. Forward computes y from x
 * and weights; by input, x from y and weights; by weights, weights from x and y. MM_ERR_INVALID: every algorithm takes
 * more. */
MM_CHECKED mm_status nets_cudnn_conv_enqueue(const nets_cudnn_conv *conv, const nets_conv_tensors *at,
                                             mm_stream *stream);

/* Checks that EARLIER is present exactly if the product adds to it (`adds`: nets_conv_shape.adds). MM_ERR_INVALID. */
MM_CHECKED mm_status nets_cuda_check_earlier(const nets_op_args *args, bool adds);
/* Copies EARLIER, if present, to DX unless it lies there. The product then adds to DX in any case: the same bits. */
MM_CHECKED mm_status nets_cuda_put_earlier(const nets_op_args *args, mm_dtype maps, int64_t elems, mm_stream *stream);

/* Enqueues the convolution by this algorithm, on `stream`, to which cuDNN's handle must be set already. */
MM_CHECKED mm_status nets_cudnn_conv_launch(const nets_cudnn_conv *conv, const nets_conv_algorithm *algorithm,
                                            const nets_conv_tensors *at, cudaStream_t stream);

/* ---------------------------------------------------------------- cudnn_choose.c */

/* Sets conv->of to the best candidates that the precision and the terms allow, and prepares what they need. *timed_out:
 * whether all candidates were timed. MM_ERR_ORDER: the backend was told to stop. */
MM_CHECKED mm_status nets_cudnn_choose(nets_cudnn_conv *conv, bool *timed_out);

/* ---------------------------------------------------------------- cudnn_legacy.c */

MM_CHECKED mm_status nets_cudnn_legacy_init(nets_cudnn_legacy *legacy, const nets_conv_shape *shape);
void nets_cudnn_legacy_fini(nets_cudnn_legacy *legacy);

/* Whether a cached algorithm still takes no more workspace than its choice says. */
bool nets_cudnn_legacy_holds(const nets_cudnn_conv *conv, const nets_conv_choice *choice);

/* Lists the best allowed algorithms, by the library's timing in this device memory, in the order of nets_conv_pareto;
 * `trial` NULL: by its heuristic. Their times are not set. MM_ERR_UNSUPPORTED: there is none. */
MM_CHECKED mm_status nets_cudnn_legacy_propose(nets_cudnn_conv *conv, const nets_conv_tensors *trial, int capacity,
                                               nets_conv_choice *choices, int *n_out);

MM_CHECKED mm_status nets_cudnn_legacy_launch(const nets_cudnn_conv *conv, const nets_conv_choice *choice, void *x,
                                              void *y, void *weights, void *workspace);

#endif

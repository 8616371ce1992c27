/* The three directions of one convolution, float32 NHWC, weights KRSC (out, height, width, in): that is what cuDNN's
 * fast kernels want. Internal.
 *
 * cuDNN computes them by two APIs: the legacy one's algorithms (cudnn_legacy.c), for images of fewer than 2^31
 * elements, and the graph API's engines (cudnn_graph.h). Those that are products of matrices cuBLAS computes, too
 * (product.h). Which is fastest is found by timing (cudnn_choose.c). */
#ifndef NETS_CUDA_CUDNN_CONV_H
#define NETS_CUDA_CUDNN_CONV_H

#include "nets/cuda/cudnn_graph.h"
#include "nets/cuda/product.h"

/* Times that differ by less are taken as equal: timing is not surer. Of equals the one with the least workspace is
 * taken. */
#define NETS_CUDNN_NO_SLOWER 1.02f

/* What takes more workspace than the default limit must take no more than this of the fastest other's time. */
#define NETS_CUDNN_MUCH_FASTER 0.9f

/* The legacy API's descriptors. */
typedef struct nets_cudnn_legacy {
    cudnnTensorDescriptor_t x, y; /* x NULL: the images are too large for it, or it would have no handle to plan with */
    cudnnFilterDescriptor_t weights;
    cudnnConvolutionDescriptor_t conv;
} nets_cudnn_legacy;

typedef struct nets_cudnn_conv {
    nets_cuda_backend *cuda;
    nets_conv_shape shape;
    nets_conv_terms terms;
    nets_conv_choice choice;
    nets_cudnn_legacy legacy;
    nets_product product;
    nets_product_algorithm algorithm; /* where the choice is one of its own */
    nets_cudnn_graph graph;           /* where the choice is one of its engines */
    nets_cudnn_plan plan;
    int64_t x_bytes, y_bytes, weights_bytes;
} nets_cudnn_conv;

/* From those of gradients: an output may be computed again, and must have the same bits then. */
static inline nets_conv_terms nets_cudnn_output_terms(const nets_conv_terms *terms) {
    return (nets_conv_terms){true, terms->limit_bytes, terms->tensor_core_limit_bytes};
}

/* Describes it and chooses what computes it: what was chosen before for this device, precision, terms and
 * shape; else by timing, in memory that is taken from the device for that time; where there is not that much, the
 * library's guess, which is not kept (so too where timing fails). Without a device: one chosen on any device before,
 * else none, with the limit as workspace. It stays where it is. MM_ERR_UNSUPPORTED if there is nothing that the
 * precision and the terms allow. */
MM_CHECKED mm_status nets_cudnn_conv_init(nets_cudnn_conv *conv, nets_cuda_backend *cuda, const nets_conv_shape *shape,
                                          const nets_conv_terms *terms);
void nets_cudnn_conv_fini(nets_cudnn_conv *conv);

/* Forward: y from x; by input: x from y; by weights: weights from both. */
MM_CHECKED mm_status nets_cudnn_conv_enqueue(const nets_cudnn_conv *conv, void *x, void *y, void *weights,
                                             void *workspace, mm_stream *stream);

/* The same by what is chosen so far, on the stream that cuDNN's handle has. */
MM_CHECKED mm_status nets_cudnn_conv_launch(const nets_cudnn_conv *conv, void *x, void *y, void *weights,
                                            void *workspace, cudaStream_t stream);

/* Of all candidates, the best that the precision and the terms allow; what it needs is ready then. `timed`: all of
 * them were run (cudnn_choose.c). */
MM_CHECKED mm_status nets_cudnn_choose(nets_cudnn_conv *conv, bool *timed_out);

/* ---------------------------------------------------------------- cudnn_legacy.c */

/* What the algorithms are tried on, of the device. */
typedef struct nets_cudnn_trial {
    void *x, *y, *weights, *workspace;
} nets_cudnn_trial;

MM_CHECKED mm_status nets_cudnn_legacy_init(nets_cudnn_legacy *legacy, const nets_conv_shape *shape);
void nets_cudnn_legacy_fini(nets_cudnn_legacy *legacy);

/* Whether an algorithm, with its precision, still takes no more than the workspace that is said of it. */
bool nets_cudnn_legacy_holds(const nets_cudnn_conv *conv, const nets_conv_choice *choice);

/* The best algorithm that is allowed, as the library times them, or, `trial` NULL, expects them to be.
 * MM_ERR_UNSUPPORTED if there is none. */
MM_CHECKED mm_status nets_cudnn_legacy_choose(nets_cudnn_conv *conv, const nets_cudnn_trial *trial,
                                              nets_conv_choice *choice_out);

MM_CHECKED mm_status nets_cudnn_legacy_launch(const nets_cudnn_conv *conv, void *x, void *y, void *weights,
                                              void *workspace);

#endif

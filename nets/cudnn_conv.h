/* All that knows cuDNN's convolutions: the three directions of one convolution, float32 NHWC, weights KRSC (out, height,
 * width, in): that is what its fast kernels want. Internal. */
#ifndef NETS_CUDNN_CONV_H
#define NETS_CUDNN_CONV_H

#include "nets/cuda_ops.h"

typedef struct nets_cudnn_conv {
    nets_cuda_backend *cuda;
    nets_direction direction;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t weights;
    cudnnConvolutionDescriptor_t conv;
    nets_conv_choice choice;
    int64_t x_bytes, y_bytes, weights_bytes;
} nets_cudnn_conv;

/* Describes it and chooses its algorithm: the one that was chosen before for this device, precision, determinism, limit
 * and shape; else by timing, in memory that is taken from the device for that time; where there is not that much, cuDNN's
 * guess, which is not kept (so too where timing fails). Without a device: one chosen on any device before, else none, with the limit as workspace. */
MM_CHECKED mm_status nets_cudnn_conv_init(nets_cudnn_conv *conv, nets_cuda_backend *cuda, const nets_conv_shape *shape);
void nets_cudnn_conv_fini(nets_cudnn_conv *conv);

/* Forward: y from x; by input: x from y; by weights: weights from both. */
MM_CHECKED mm_status nets_cudnn_conv_enqueue(const nets_cudnn_conv *conv, void *x, void *y, void *weights,
                                             void *workspace, mm_stream *stream);

/* Of the algorithms that cuDNN lists, the best that the configuration allows; MM_ERR_UNSUPPORTED if none. `timed`: they
 * were run (cudnn_choose.c). */
MM_CHECKED mm_status nets_cudnn_choose(nets_cudnn_conv *conv, bool *timed_out);

/* The workspace that an algorithm takes with that cudnnMathType_t, which is set; -1: it is none for this convolution. */
int64_t nets_cudnn_bytes(const nets_cudnn_conv *conv, int algorithm, int math);

#endif

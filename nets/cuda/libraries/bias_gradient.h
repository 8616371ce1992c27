/* SPDX-License-Identifier: MIT */
/* The gradient of a bias of bf16 maps: the sums of the output's gradient over its rows. cuBLASLt gives them beside the
 * weights' gradient, which reads the same map (an epilogue, gemm.h); a kernel of ours reads the map once more. The
 * epilogue is taken if the library has it, its sums agree with the kernel's and repeat their bits, and it costs the
 * product less time than the kernel takes. The choice is made when an op is created, or comes from the cache. If it
 * cannot be timed, and if the backend is deterministic, the kernel is taken. Internal. */
#ifndef NETS_CUDA_LIBRARIES_BIAS_GRADIENT_H
#define NETS_CUDA_LIBRARIES_BIAS_GRADIENT_H

#include "nets/cuda/libraries/cudnn_conv.h"

/* Describes the product that gives the weights' gradient, and chooses what computes it (nets_cudnn_conv_init). `shape`:
 * of the product without sums. sums: NETS_CONV_BF16_SUMS_X or _Y, whichever of x and y is the output's gradient. over:
 * cuts that map for the kernel. *gives_sums_out: the product gives the sums, as nets_conv_tensors.extra. */
MM_CHECKED mm_status nets_bias_gradient_init(nets_cudnn_conv *dw, nets_cuda_backend *cuda, const nets_conv_shape *shape,
                                             const nets_conv_terms *terms, nets_conv_bf16 sums,
                                             const nets_cuda_reduction *over, bool *gives_sums_out);

#endif

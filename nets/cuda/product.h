/* A convolution that is a product of matrices: one whose windows are single pixels, each of x giving one of y. By
 * cuBLASLt, whose algorithms are candidates beside cuDNN's (cudnn_choose.c). Internal. */
#ifndef NETS_CUDA_PRODUCT_H
#define NETS_CUDA_PRODUCT_H

#include "nets/cuda/cuda_ops.h"

typedef struct nets_product {
    cublasLtHandle_t lt; /* NULL: it is no product, none that can be described, or there is no device */
    nets_direction direction;
    float beta;
    cublasComputeType_t compute;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, c;
} nets_product;

typedef struct nets_product_algorithm {
    cublasLtMatmulAlgo_t made;
    int64_t workspace_bytes;
    bool tensor_core; /* computes with them: rounds factors to TF32 */
} nets_product_algorithm;

/* It stays where it is, and needs no end; `lt` is NULL where this fails. */
MM_CHECKED mm_status nets_product_init(nets_product *product, const nets_cuda_backend *cuda,
                                       const nets_conv_shape *shape);

/* The most promising algorithms within a limit of workspace, best first, without their workspaces: only one that is
 * made knows it. Where it fails, those before remain. */
MM_CHECKED mm_status nets_product_propose(nets_product *product, int64_t limit_bytes, bool deterministic, int capacity,
                                          nets_conv_choice *choices, int *n_out);

/* Fails if this library has no such algorithm for it on this device. */
MM_CHECKED mm_status nets_product_make(nets_product *product, const nets_conv_choice *choice,
                                       nets_product_algorithm *algorithm_out);

/* Forward: y from x; by input: x from y; by weights: weights from both. */
MM_CHECKED mm_status nets_product_enqueue(const nets_product *product, const nets_product_algorithm *algorithm, void *x,
                                          void *y, void *weights, void *workspace, cudaStream_t stream);

#endif

/* SPDX-License-Identifier: MIT */
/* A convolution that is a product of matrices: its windows are single pixels, and x and y have the same pixels.
 * cuBLASLt computes it; its algorithms are candidates beside cuDNN's (cudnn_choose.c). By its epilogues cuBLASLt also
 * reads or writes a tensor more, called `extra` here: a bias that it adds to the f32 sums (NETS_CONV_BF16_BIAS), or
 * sums over a factor's pixels, which are the gradient of a bias (NETS_CONV_BF16_SUMS_X, _Y). Internal. */
#ifndef NETS_CUDA_LIBRARIES_GEMM_H
#define NETS_CUDA_LIBRARIES_GEMM_H

#include "nets/cuda/cuda_ops.h"

typedef struct nets_gemm {
    cublasLtHandle_t lt; /* NULL: not a product, cuBLASLt cannot describe it, or there is no device */
    nets_direction direction;
    float beta;
    cublasComputeType_t compute;
    bool bf16, gives_bf16; /* type of the factors; type of the result */
    uint32_t epilogue;     /* cublasLtEpilogue_t */
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, c;
} nets_gemm;

typedef struct nets_gemm_algorithm {
    cublasLtMatmulAlgo_t made;
    int64_t workspace_bytes;
    bool tensor_core; /* computes with tensor cores, which round factors to TF32 */
} nets_gemm_algorithm;

/* `product` must not move afterwards and needs no fini. On failure `lt` is NULL. */
MM_CHECKED mm_status nets_gemm_init(nets_gemm *product, const nets_cuda_backend *cuda, const nets_conv_shape *shape);

/* Lists the algorithms that cuBLASLt proposes within a limit of workspace, best first. Only nets_gemm_make finds out
 * their workspace_bytes. On failure the first *n_out are valid. */
MM_CHECKED mm_status nets_gemm_propose(nets_gemm *product, int64_t limit_bytes, bool deterministic, int capacity,
                                       nets_conv_choice *choices, int *n_out);

/* Prepares an algorithm. Fails if this library has no such algorithm for the product on this device. */
MM_CHECKED mm_status nets_gemm_make(nets_gemm *product, const nets_conv_choice *choice,
                                    nets_gemm_algorithm *algorithm_out);

/* Bytes of `extra`; 0: none. */
int64_t nets_gemm_extra_bytes(const nets_conv_shape *shape);

/* Enqueues it. Forward computes y from x and weights; by input, x from y and weights; by weights, weights from x
 * and y. extra: aligned to 16 bytes; NULL: the product has none. */
MM_CHECKED mm_status nets_gemm_enqueue(const nets_gemm *product, const nets_gemm_algorithm *algorithm, void *x, void *y,
                                       void *weights, void *extra, void *workspace, cudaStream_t stream);

#endif

/* The ops of device "cuda": cuDNN and cuBLAS for convolutions and products, own kernels (cuda_kernels.h) for the rest.
 * Nothing here allocates or waits when work is enqueued, so that it can be captured in a graph. Internal. */
#ifndef NETS_CUDA_OPS_H
#define NETS_CUDA_OPS_H

#include <cublasLt.h>
#include <cudnn.h>

#include "mm/device/device_cuda.h"
#include "nets/cuda/choices.h"
#include "nets/cuda/cuda_kernels.h"
#include "nets/op.h"
#include "nets/op_sizes.h"

typedef struct nets_cuda_backend {
    nets_backend base;
    mm_cuda_gpu *gpu;           /* what dnn and lt are of; NULL: they are NULL */
    nets_backend_config config; /* its strings are the choices' */
    nets_conv_terms terms;      /* of a convolution's gradients */
    nets_cuda_choices choices;
    cudnnHandle_t dnn;   /* NULL: there is no device, so ops can be described but not enqueued */
    cublasLtHandle_t lt; /* as dnn */
    /* Not NULL: cuDNN plans convolutions for a device that these describe and that need not be there (dnn and lt are
     * NULL): which engines it proposes, and what they take, is known without it. Of cuBLAS's products nothing is. */
    cudnnBackendDescriptor_t properties;
    bool told_untimed; /* that algorithms could not be timed */
} nets_cuda_backend;

extern const nets_backend_ops nets_cuda_backend_ops;

/* One of each operation: cuda_<group>.c. */
#define NETS_CUDA_OP(NAME, name) extern const nets_op_impl nets_cuda_op_##name;
NETS_OPS(NETS_CUDA_OP)
#undef NETS_CUDA_OP

/* cuda_elementwise.c */
MM_CHECKED mm_status nets_cuda_update_step(nets_backend *backend, const nets_update_args *args, mm_stream *stream);

/* By a ReLU's output, NETS_Y. */
static inline nets_cuda_gate nets_cuda_gate_of(const nets_op_args *args) {
    const void *y = args->at[NETS_Y];
    bool by_mask = args->sign_roles & NETS_ROLE_BIT(NETS_Y);
    return (nets_cuda_gate){.y = by_mask ? NULL : y, .mask = by_mask ? y : NULL};
}

/* Whether what was launched since the last call could be. */
MM_CHECKED mm_status nets_cuda_launched(const char *what);

/* Kernels count pixels, libraries count everything in 32 bits: MM_ERR_UNSUPPORTED for dims beyond. */
MM_CHECKED mm_status nets_cuda_check_dims(const nets_op_desc *desc);

/* With the library's words: MM_ERR_NOMEM if it got no memory, else MM_ERR_DEVICE. */
MM_CHECKED mm_status nets_cuda_dnn_check(cudnnStatus_t status, const char *what);
MM_CHECKED mm_status nets_cuda_blas_check(cublasStatus_t status, const char *what);

/* The library's handle, its work going to the stream. */
MM_CHECKED mm_status nets_cuda_dnn_on(nets_cuda_backend *cuda, mm_stream *stream, cudnnHandle_t *handle_out);

#endif

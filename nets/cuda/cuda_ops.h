/* SPDX-License-Identifier: MIT */
/* The ops of device "cuda": cuDNN and cuBLAS compute convolutions and matrix products, our own kernels (cuda_kernels.h)
 * the rest. Enqueuing neither allocates nor waits, so it can be captured in a CUDA graph. Internal. */
#ifndef NETS_CUDA_CUDA_OPS_H
#define NETS_CUDA_CUDA_OPS_H

#include <cublasLt.h>
#include <cudnn.h>

#include "mm/device/cuda/device_cuda.h"
#include "nets/contract/op.h"
#include "nets/contract/op_sizes.h"
#include "nets/cuda/choose/algorithm_cache.h"
#include "nets/cuda/kernels/cuda_kernels.h"

/* The norm of all gradients: partial sums of their squares, and the factor that clips the gradients. */
typedef struct nets_cuda_norm {
    double parts[NETS_CUDA_UPDATE_PARTS];
    float clip;
} nets_cuda_norm;

typedef struct nets_cuda_backend {
    nets_backend base;
    mm_cuda_gpu *gpu;           /* the GPU of dnn and lt; NULL: there is none, and they are NULL */
    nets_backend_config config; /* its strings belong to `choices` */
    nets_conv_terms terms;      /* for a convolution's gradients; for outputs: nets_cudnn_output_terms */
    nets_algorithm_cache choices;
    cudnnHandle_t dnn;   /* NULL: ops can be described but not enqueued */
    cublasLtHandle_t lt; /* NULL: as with dnn */
    /* cuDNN's description of a device that need not be present; NULL: not used. With it, dnn and lt are NULL, and cuDNN
     * still proposes engines for that device and reports their workspaces. cuBLAS cannot. */
    cudnnBackendDescriptor_t properties;
    /* Counters of blocks for reductions (reduce.h): in GPU memory, 0 between launches. NULL: no op needed them. */
    unsigned *counters;
    nets_cuda_norm *norm; /* in GPU memory; the launches of an update share it. NULL: there is no GPU */
    bool told_untimed;    /* the warning that algorithms could not be timed was logged */
} nets_cuda_backend;

extern const nets_backend_ops nets_cuda_backend_ops;

/* The implementations of the operations, in cuda_<group>.c. */
#define NETS_CUDA_OP(NAME, name) extern const nets_op_impl nets_cuda_op_##name;
NETS_OPS(NETS_CUDA_OP)
#undef NETS_CUDA_OP

/* nets_op_impl.destroy of ops that own nothing else. */
void nets_cuda_free(nets_op *op);

/* nets_cuda_pad_step is in cuda_slices.c, nets_cuda_convert_step in cuda_convert.c, the others in cuda_update.c */
MM_CHECKED mm_status nets_cuda_update_step(nets_backend *backend, const nets_update_args *args, mm_stream *stream);
mm_status nets_cuda_check_step(nets_backend *backend, const nets_update_args *args, mm_stream *stream);
MM_CHECKED mm_status nets_cuda_pass_on_step(nets_backend *backend, uint32_t *rng, int64_t images, mm_stream *stream);
MM_CHECKED mm_status nets_cuda_add_step(nets_backend *backend, float *sum, const float *addend, int64_t elems,
                                        mm_stream *stream);
MM_CHECKED mm_status nets_cuda_pad_step(nets_backend *backend, const float *from, float *to, int64_t pixels,
                                        mm_stream *stream);
MM_CHECKED mm_status nets_cuda_convert_step(nets_backend *backend, mm_dtype from_type, const void *from,
                                            mm_dtype to_type, void *to, int64_t elems, mm_stream *stream);

/* The types of maps that our own kernels take, for nets_op_impl.maps. */
#define NETS_CUDA_MAPS (NETS_DTYPE_BIT(MM_F32) | NETS_DTYPE_BIT(MM_BF16))

/* The gate of a ReLU's gradient: its output NETS_Y, as elements or as a sign mask. */
static inline nets_cuda_gate nets_cuda_gate_of(const nets_op_args *args) {
    const void *y = args->at[NETS_Y];
    bool by_mask = args->sign_roles & NETS_ROLE_BIT(NETS_Y);
    return (nets_cuda_gate){.y = by_mask ? NULL : y, .mask = by_mask ? y : NULL};
}

/* Describes reductions over a map: how it is cut, and the backend's counters (without a GPU there are none).
 * MM_ERR_NOMEM, MM_ERR_DEVICE, MM_ERR_UNSUPPORTED: it has more channels than there are counters for. */
MM_CHECKED mm_status nets_cuda_reduction_init(nets_cuda_reduction *over, nets_cuda_backend *cuda,
                                              const nets_shape *map);

/* Fails if a kernel launch since the last call has failed; `what` names the operation. */
MM_CHECKED mm_status nets_cuda_launched(const char *what);

/* MM_ERR_UNSUPPORTED: a dimension is too large. Kernels count pixels, and libraries every dimension, in 32 bits. */
MM_CHECKED mm_status nets_cuda_check_dims(const nets_op_desc *desc);

/* MM_OK for success; MM_ERR_NOMEM if the library got no memory, else MM_ERR_DEVICE, with the library's own message. */
MM_CHECKED mm_status nets_cuda_dnn_check(cudnnStatus_t status, const char *what);
MM_CHECKED mm_status nets_cuda_blas_check(cublasStatus_t status, const char *what);

/* cuDNN's handle, set to the stream. */
MM_CHECKED mm_status nets_cuda_dnn_on(nets_cuda_backend *cuda, mm_stream *stream, cudnnHandle_t *handle_out);

#endif

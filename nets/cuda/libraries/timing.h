/* SPDX-License-Identifier: MIT */
/* Times the candidates for an operation: in captured graphs, on random data, in device memory that is freed afterwards.
 * This happens when an op is created. Internal. */
#ifndef NETS_CUDA_LIBRARIES_TIMING_H
#define NETS_CUDA_LIBRARIES_TIMING_H

#include "nets/cuda/cuda_ops.h"

typedef struct nets_cuda_timing {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    float *values;    /* random numbers with which tensors are filled */
    uint16_t *halves; /* the same in bf16 */
} nets_cuda_timing;

/* `timing` must be all zero. Stop and end it even if start fails: stop waits for running work, so that its memory can
 * be freed; end frees what `timing` owns. */
MM_CHECKED mm_status nets_cuda_timing_start(nets_cuda_timing *timing);
void nets_cuda_timing_stop(const nets_cuda_timing *timing);
void nets_cuda_timing_end(nets_cuda_timing *timing);

/* Allocate device memory: uninitialised, or a tensor of random numbers. Free it with cudaFree. On failure *memory_out
 * is NULL or must be freed. */
MM_CHECKED mm_status nets_cuda_timing_take(int64_t bytes, void **memory_out);
MM_CHECKED mm_status nets_cuda_timing_tensor(const nets_cuda_timing *timing, int64_t bytes, bool bf16,
                                             void **memory_out);

/* MM_ERR_ORDER: the backend was told to stop (nets_backend_config.stop). */
MM_CHECKED mm_status nets_cuda_timing_go_on(const nets_cuda_backend *cuda);

/* Enqueues the timed work on the stream, once. */
typedef mm_status (*nets_cuda_timed_fn)(const void *ctx, cudaStream_t stream);

/* Measures one launch. fastest_ns: time of the fastest candidate so far (INT64_MAX: none yet); what takes much longer
 * is timed less precisely. Fails if `launch` fails or cannot be captured. */
MM_CHECKED mm_status nets_cuda_timing_run(const nets_cuda_timing *timing, nets_cuda_timed_fn launch, const void *ctx,
                                          int64_t fastest_ns, int64_t *ns_out);

#endif

/* SPDX-License-Identifier: MIT */
/* Timing what may compute an operation, in captured graphs and on random data, in memory that is allocated for that
 * time. It happens when an op is created. Internal. */
#ifndef NETS_CUDA_LIBRARIES_TIMING_H
#define NETS_CUDA_LIBRARIES_TIMING_H

#include "nets/cuda/cuda_ops.h"

typedef struct nets_cuda_timing {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    float *values;    /* what tensors are filled with */
    uint16_t *halves; /* the same in bf16 */
} nets_cuda_timing;

/* `timing` is all zero before. After a failure, too, stop and end it: stop waits for what runs, so that its memory can
 * be freed; end frees the timing's own. */
MM_CHECKED mm_status nets_cuda_timing_start(nets_cuda_timing *timing);
void nets_cuda_timing_stop(const nets_cuda_timing *timing);
void nets_cuda_timing_end(nets_cuda_timing *timing);

/* Memory of the device, which cudaFree frees: any; and a tensor of random numbers. On failure *memory_out is NULL or to
 * be freed. */
MM_CHECKED mm_status nets_cuda_timing_take(int64_t bytes, void **memory_out);
MM_CHECKED mm_status nets_cuda_timing_tensor(const nets_cuda_timing *timing, int64_t bytes, bool bf16,
                                             void **memory_out);

/* Enqueues on the stream what is timed, once. */
typedef mm_status (*nets_cuda_timed_fn)(const void *ctx, cudaStream_t stream);

/* How long one takes. What takes much longer than the fastest so far is timed less precisely; INT64_MAX: there is none
 * yet. Fails if `launch` does, or cannot be captured. */
MM_CHECKED mm_status nets_cuda_timing_run(const nets_cuda_timing *timing, nets_cuda_timed_fn launch, const void *ctx,
                                          int64_t fastest_ns, int64_t *ns_out);

#endif

/* SPDX-License-Identifier: MIT */
/* What CUDA ops and codecs need besides device.h; for no other code.
 *
 * Failure. If a call of CUDA fails, our call that made it returns MM_ERR_NOMEM or MM_ERR_DEVICE, with CUDA's call and
 * words in the message. A fault on the GPU (such as a kernel's bad address) is final: every later call in the process
 * fails with the same error, and mm_stream_reset does not help. */
#ifndef MM_DEVICE_CUDA_DEVICE_CUDA_H
#define MM_DEVICE_CUDA_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "mm/device/contract/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The cudaStream_t of a stream, for launches and libraries. The caller has entered the device (mm_device_enter). Valid
 * while the stream exists. Each call counts as a task in the stream's statistics. */
cudaStream_t mm_cuda_stream(mm_stream *stream);

/* MM_OK for cudaSuccess; else MM_ERR_NOMEM or MM_ERR_DEVICE with "cuda: WHAT: cudaErrorName, its description". what:
 * the call, or what was launched. Clears cudaGetLastError. */
MM_CHECKED mm_status mm_cuda_check(cudaError_t error, const char *what);

/* ---- A GPU, for threads to enter (cuda_gpu.c). Each mm_device has one. Code that calls CUDA without an mm_device
 * opens its own. Thread-safe. */

typedef struct mm_cuda_gpu mm_cuda_gpu;

/* Number of GPUs that answer. */
int mm_cuda_count(void);
/* Opens a GPU, and makes its primary context if the process has none there. The thread's current GPU stays what it was.
 * MM_ERR_NOT_FOUND: no such GPU answers. The caller closes it. */
MM_CHECKED mm_status mm_cuda_gpu_open(int ordinal, mm_cuda_gpu **gpu_out);
/* NULL is legal. */
void mm_cuda_gpu_close(mm_cuda_gpu *gpu);
/* See mm_device_ops.enter and leave. */
MM_CHECKED mm_status mm_cuda_gpu_enter(const mm_cuda_gpu *gpu, bool silent, bool *entered_out);
void mm_cuda_gpu_leave(const mm_cuda_gpu *gpu);

extern const mm_device_ops mm_device_cuda_ops;

#ifdef __cplusplus
}
#endif

#endif

/* The CUDA device's own: what ops, codecs and their launchers need beside device.h, and only they.
 *
 * Failure. What a call of CUDA refuses is returned from the call of ours that made it, MM_ERR_NOMEM or MM_ERR_DEVICE,
 * with the call and CUDA's words. A fault on the device (a kernel's bad address) ends the process's use of it: every
 * later call fails with the same error, mm_stream_reset mends nothing. */
#ifndef MM_DEVICE_DEVICE_CUDA_H
#define MM_DEVICE_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "mm/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The stream's own handle, for launches and libraries: with its device entered (mm_device_enter). Legal while the stream
 * is. Counts as a task of it. */
cudaStream_t mm_cuda_stream(mm_stream *stream);

/* MM_OK, or a failure that says "cuda: WHAT: cudaErrorName, its words". `what`: the call, or what was launched. Forgets
 * CUDA's own last error. */
MM_CHECKED mm_status mm_cuda_check(cudaError_t error, const char *what);

/* ---- GPUs as threads enter them (cuda_gpu.c). A device has one; whoever calls CUDA without a device has one of its
 * own. Any thread may use it. */

typedef struct mm_cuda_gpu mm_cuda_gpu;

/* How many GPUs answer; 0: none. */
int mm_cuda_count(void);
/* MM_ERR_NOT_FOUND: no such GPU answers. Makes its context, if the process has none there, and makes nothing
 * current. */
MM_CHECKED mm_status mm_cuda_gpu_open(int ordinal, mm_cuda_gpu **gpu_out);
/* NULL is legal. */
void mm_cuda_gpu_close(mm_cuda_gpu *gpu);
/* As mm_device_ops.enter and leave. */
MM_CHECKED mm_status mm_cuda_gpu_enter(const mm_cuda_gpu *gpu, bool silent, bool *entered_out);
void mm_cuda_gpu_leave(const mm_cuda_gpu *gpu);

extern const mm_device_ops mm_device_cuda_ops;

#ifdef __cplusplus
}
#endif

#endif

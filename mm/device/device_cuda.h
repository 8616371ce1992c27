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

/* The stream's own handle, for launches and libraries. Legal while the stream is. Counts as a task of it. */
cudaStream_t mm_cuda_stream(mm_stream *stream);

/* MM_OK, or a failure that says "cuda: WHAT: cudaErrorName, its words". `what`: the call, or what was launched. Forgets
 * CUDA's own last error. */
MM_CHECKED mm_status mm_cuda_check(cudaError_t error, const char *what);

extern const mm_device_ops mm_device_cuda_ops;

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: MIT */
/* CUDA's errors as statuses with messages. */
#include "mm/device/cuda/cuda_internal.h"

mm_status mm_cuda_check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return MM_OK;
    cudaGetLastError(); /* clears the error, so that a later launch does not report it as its own */
    return mm_fail(error == cudaErrorMemoryAllocation ? MM_ERR_NOMEM : MM_ERR_DEVICE, "cuda: %s: %s, %s", what,
                   cudaGetErrorName(error), cudaGetErrorString(error));
}

/* The runtime's error numbers equal the driver's. */
mm_status cuda_driver_check(CUresult result, const char *what) { return mm_cuda_check((cudaError_t)result, what); }

mm_status cuda_stream_fail(const cuda_stream *stream, mm_status status) {
    return status == MM_OK ? MM_OK : mm_fail_in(status, "stream %s", stream->name);
}

bool cuda_event_completed(cudaEvent_t event) {
    if (cudaEventQuery(event) != cudaErrorNotReady) return true;
    cudaGetLastError(); /* clears cudaErrorNotReady, which CUDA keeps as an error */
    return false;
}

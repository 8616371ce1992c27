/* SPDX-License-Identifier: MIT */
/* GPUs by ordinal, and a thread's current GPU.
 *
 * A thread enters a GPU by pushing its primary context, and leaves it by popping it. So afterwards it has what was
 * current before: a GPU that it chose with cudaSetDevice, a context of its own, or none. cudaSetDevice could not
 * restore "none": setting GPU 0 again would make a context there, which takes hundreds of MiB of a GPU that nobody
 * uses. */
#include <stdlib.h>

#include "mm/device/cuda/cuda_internal.h"

struct mm_cuda_gpu {
    int ordinal;
    CUcontext context; /* the primary context, which the runtime uses too */
    CUresult (*get)(CUcontext *);
    CUresult (*push)(CUcontext);
    CUresult (*pop)(CUcontext *);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*release)(CUdevice);
};

mm_status cuda_find_function(const char *symbol, void *function_out) {
    enum { VERSION = 12000 }; /* CUDA 12.0, whose variant of a function is looked up */
    enum cudaDriverEntryPointQueryResult found;
    void *function;
    CUDA_TRY(cudaGetDriverEntryPointByVersion(symbol, &function, VERSION, cudaEnableDefault, &found), symbol);
    if (found != cudaDriverEntryPointSuccess || function == NULL)
        return mm_fail(MM_ERR_UNSUPPORTED, "cuda: the driver has no %s; one of CUDA 12 or later is needed", symbol);
    *(void **)function_out = function;
    return MM_OK;
}

int mm_cuda_count(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
    (void)cudaGetLastError(); /* no GPU is not an error here */
    return count;
}

static mm_status find_gpu(int ordinal) {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && ordinal < count) return MM_OK;
    (void)cudaGetLastError();
    if (error == cudaSuccess && count > 0) return mm_device_fail_ordinal("cuda", ordinal, count);
    return mm_fail(MM_ERR_NOT_FOUND,
                   "cuda: no GPU answers (%s); see what nvidia-smi and CUDA_VISIBLE_DEVICES say, or use the "
                   "device 'host'",
                   error == cudaSuccess ? "there are none" : cudaGetErrorString(error));
}

static mm_status find_functions(mm_cuda_gpu *gpu) {
    MM_TRY(cuda_find_function("cuCtxGetCurrent", &gpu->get));
    MM_TRY(cuda_find_function("cuCtxPushCurrent", &gpu->push));
    MM_TRY(cuda_find_function("cuCtxPopCurrent", &gpu->pop));
    MM_TRY(cuda_find_function("cuDevicePrimaryCtxRetain", &gpu->retain));
    return cuda_find_function("cuDevicePrimaryCtxRelease", &gpu->release);
}

/* The runtime makes the primary context and keeps it until the process ends, so its state on the GPU stays valid. */
static mm_status open_gpu(mm_cuda_gpu *gpu) {
    MM_TRY(find_gpu(gpu->ordinal));
    MM_TRY(find_functions(gpu));
    CUDA_TRY(cudaInitDevice(gpu->ordinal, 0, 0), "cudaInitDevice");
    return cuda_driver_check(gpu->retain(&gpu->context, gpu->ordinal), "cuDevicePrimaryCtxRetain");
}

mm_status mm_cuda_gpu_open(int ordinal, mm_cuda_gpu **gpu_out) {
    mm_cuda_gpu *gpu = calloc(1, sizeof *gpu);
    if (gpu == NULL) return mm_fail(MM_ERR_NOMEM, "cuda: no memory for a GPU's %zu bytes", sizeof *gpu);
    gpu->ordinal = ordinal;
    mm_status status = open_gpu(gpu);
    if (status != MM_OK) {
        free(gpu);
        return status;
    }
    *gpu_out = gpu;
    return MM_OK;
}

void mm_cuda_gpu_close(mm_cuda_gpu *gpu) {
    if (gpu == NULL) return;
    (void)gpu->release(gpu->ordinal);
    free(gpu);
}

mm_status mm_cuda_gpu_enter(const mm_cuda_gpu *gpu, bool silent, bool *entered_out) {
    CUcontext now = NULL;
    *entered_out = false;
    if (gpu->get(&now) == CUDA_SUCCESS && now == gpu->context) return MM_OK;
    CUresult result = gpu->push(gpu->context);
    *entered_out = result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) return MM_OK;
    return silent ? MM_ERR_DEVICE : cuda_driver_check(result, "cuCtxPushCurrent");
}

void mm_cuda_gpu_leave(const mm_cuda_gpu *gpu) {
    CUcontext ours;
    (void)gpu->pop(&ours);
}

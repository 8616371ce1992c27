/* SPDX-License-Identifier: MIT */
/* Counts calls, makes one fail as a test ordered, and stores the last error. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_emulation/runtime.h"

static const char *const names[] = {
#define X(name) #name,
    CUDA_EMULATION_CALLS(X)
#undef X
};

static atomic_long calls[CALLS];
static _Thread_local long calls_here[CALLS];
static _Thread_local cudaError_t last_error;

/* The call that is to fail; under runtime.lock. */
static struct {
    runtime_call call;
    long left; /* calls until then; 0: nothing is ordered */
    cudaError_t error;
    bool failed;
} order;

cudaError_t runtime_failed(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

static cudaError_t enter(runtime_call call, bool asks_device) {
    atomic_fetch_add(&calls[call], 1);
    calls_here[call]++;
    pthread_mutex_lock(&runtime.lock);
    cudaError_t error = asks_device ? runtime.fault : cudaSuccess;
    if (order.left > 0 && order.call == call && --order.left == 0) {
        order.failed = true;
        error = order.error;
    }
    pthread_mutex_unlock(&runtime.lock);
    return runtime_failed(error);
}

cudaError_t runtime_enter(runtime_call call) { return enter(call, true); }

cudaError_t runtime_enter_context(runtime_call call) { return enter(call, false); }

cudaError_t runtime_enter_unsafe(runtime_call call) {
    cudaError_t error = runtime_enter(call);
    return error != cudaSuccess ? error : runtime_failed(capture_refuse_unsafe());
}

/* ---------------------------------------------------------------- control.h */

const char *cuda_emulation_name(size_t i) { return i < CALLS ? names[i] : NULL; }

static runtime_call find(const char *name) {
    for (int i = 0; i < CALLS; i++)
        if (strcmp(names[i], name) == 0) return (runtime_call)i;
    fprintf(stderr, "cuda_emulation: it has no function %s\n", name);
    abort();
}

cudaError_t cuda_emulation_enter(const char *name) { return runtime_enter(find(name)); }

long cuda_emulation_calls(const char *name) { return atomic_load(&calls[find(name)]); }

long cuda_emulation_calls_here(const char *name) {
    long sum = 0;
    if (name) return calls_here[find(name)];
    for (int i = 0; i < CALLS; i++) sum += calls_here[i];
    return sum - calls_here[CALL_cuCtxGetCurrent] - calls_here[CALL_cuCtxPushCurrent] -
           calls_here[CALL_cuCtxPopCurrent];
}

long cuda_emulation_dear_calls(void) {
    static const char *const dear[] = {"cudaDeviceSynchronize",
                                       "cudaStreamSynchronize",
                                       "cudaStreamQuery",
                                       "cudaMalloc",
                                       "cudaFree",
                                       "cudaHostAlloc",
                                       "cudaFreeHost",
                                       "cudaMemGetInfo",
                                       "cuMemCreate",
                                       "cuMemRelease",
                                       "cuMemMap",
                                       "cuMemUnmap",
                                       "cuMemSetAccess",
                                       "cuMemAddressReserve",
                                       "cuMemAddressFree",
                                       "cudaEventCreateWithFlags",
                                       "cudaEventDestroy",
                                       "cudaStreamCreateWithPriority",
                                       "cudaStreamDestroy",
                                       "cudaGraphInstantiate",
                                       "cudaGraphExecDestroy",
                                       "cudaStreamBeginCapture"};
    long sum = 0;
    for (size_t i = 0; i < sizeof dear / sizeof *dear; i++) sum += cuda_emulation_calls(dear[i]);
    return sum;
}

void cuda_emulation_fail(const char *name, long nth, cudaError_t error) {
    runtime_call call = find(name);
    pthread_mutex_lock(&runtime.lock);
    order.call = call;
    order.left = nth;
    order.error = error;
    order.failed = false;
    pthread_mutex_unlock(&runtime.lock);
}

bool cuda_emulation_failed(void) {
    pthread_mutex_lock(&runtime.lock);
    bool failed = order.failed;
    pthread_mutex_unlock(&runtime.lock);
    return failed;
}

void cuda_emulation_fault(cudaError_t error) {
    pthread_mutex_lock(&runtime.lock);
    if (runtime.fault == cudaSuccess) runtime.fault = error;
    pthread_mutex_unlock(&runtime.lock);
}

void cuda_emulation_reset(void) {
    cuda_emulation_alive alive = cuda_emulation_alive_get();
    if (cuda_emulation_strays()) {
        fprintf(stderr, "cuda_emulation_reset: %ld calls used what is another device's than the thread's current one\n",
                cuda_emulation_strays());
        abort();
    }
    if (alive.streams || alive.events || alive.graphs || alive.ranges || alive.contexts || alive.device_bytes ||
        alive.pinned_bytes) {
        fprintf(
            stderr,
            "cuda_emulation_reset: alive are %ld streams, %ld events, %ld graphs, %ld ranges, %ld uses of contexts, "
            "%zu bytes of device memory, %zu pinned bytes\n",
            alive.streams, alive.events, alive.graphs, alive.ranges, alive.contexts, alive.device_bytes,
            alive.pinned_bytes);
        abort();
    }
    for (int i = 0; i < CALLS; i++) atomic_store(&calls[i], 0);
    memset(calls_here, 0, sizeof calls_here);
    last_error = cudaSuccess;
    runtime_forget_contexts();
    cuda_emulation_slow_kernels(0);
    pthread_mutex_lock(&runtime.lock);
    runtime.fault = cudaSuccess;
    runtime_forget_launches();
    order.left = 0;
    order.failed = false;
    pthread_mutex_unlock(&runtime.lock);
}

/* ---------------------------------------------------------------- the last error */

void cuda_emulation_set_last_error(cudaError_t error) { last_error = error; }

/* A fault of the device stays until the reset. */
cudaError_t cudaPeekAtLastError(void) {
    atomic_fetch_add(&calls[CALL_cudaPeekAtLastError], 1);
    calls_here[CALL_cudaPeekAtLastError]++;
    pthread_mutex_lock(&runtime.lock);
    cudaError_t fault = runtime.fault;
    pthread_mutex_unlock(&runtime.lock);
    return fault != cudaSuccess ? fault : last_error;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t ordered = runtime_enter(CALL_cudaGetLastError);
    cudaError_t error = ordered != cudaSuccess ? ordered : last_error;
    last_error = cudaSuccess;
    return error;
}

static const struct error_text {
    cudaError_t error;
    const char *name, *text;
} error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

static const struct error_text *find_text(cudaError_t error) {
    for (size_t i = 0; i < sizeof error_texts / sizeof *error_texts; i++)
        if (error_texts[i].error == error) return &error_texts[i];
    return NULL;
}

const char *cudaGetErrorName(cudaError_t error) {
    const struct error_text *text = find_text(error);
    return text ? text->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    const struct error_text *text = find_text(error);
    return text ? text->text : "unrecognized error code";
}

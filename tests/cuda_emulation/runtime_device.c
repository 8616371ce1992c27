/* SPDX-License-Identifier: MIT */
/* The machine that is emulated: its devices, and which of them is a thread's current one. */
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_emulation/runtime.h"

runtime_state runtime = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .progress = PTHREAD_COND_INITIALIZER,
    .devices = 2,
    .total_bytes = (size_t)4 << 30,
    .others_bytes = (size_t)64 << 20,
};

static const struct cudaDeviceProp device_properties = {
    .name = "Emulated GPU",
    .sharedMemPerBlock = 48 << 10,
    .sharedMemPerBlockOptin = 227 << 10,
    .sharedMemPerMultiprocessor = 228 << 10,
    .regsPerBlock = 65536,
    .warpSize = 32,
    .maxThreadsPerBlock = 1024,
    .maxThreadsPerMultiProcessor = 2048,
    .maxThreadsDim = {1024, 1024, 64},
    .maxGridSize = {2147483647, 65535, 65535},
    .major = 9,
    .minor = 0,
    .multiProcessorCount = 4,
    .asyncEngineCount = 3,
    .l2CacheSize = 50 << 20,
    .memoryBusWidth = 6144,
    .canUseHostPointerForRegisteredMem = 1,
    .hostRegisterSupported = 1,
};

/* MM_EMULATED_CUDA_DEVICES in the environment: how many devices there are at first. */
static __attribute__((constructor)) void read_devices(void) {
    const char *text = getenv("MM_EMULATED_CUDA_DEVICES");
    if (text) cuda_emulation_set_devices(atoi(text));
}

void cuda_emulation_set_devices(int count) {
    if (count > RUNTIME_DEVICES) abort();
    pthread_mutex_lock(&runtime.lock);
    runtime.devices = count;
    pthread_mutex_unlock(&runtime.lock);
}

void cuda_emulation_set_memory(size_t total_bytes, size_t others_bytes) {
    pthread_mutex_lock(&runtime.lock);
    runtime.total_bytes = total_bytes;
    runtime.others_bytes = others_bytes;
    pthread_mutex_unlock(&runtime.lock);
}

cuda_emulation_alive cuda_emulation_alive_get(void) {
    pthread_mutex_lock(&runtime.lock);
    cuda_emulation_alive alive = runtime.alive;
    pthread_mutex_unlock(&runtime.lock);
    return alive;
}

/* ---------------------------------------------------------------- contexts */

struct CUctx_st {
    int device;
};

/* Primary contexts; there are no others here. */
static struct CUctx_st contexts[RUNTIME_DEVICES] = {{0}, {1}, {2}, {3}};

/* The thread's contexts; the last one is current. */
static _Thread_local struct {
    int n;
    CUcontext at[16];
} stack;

enum { STACK_MOST = sizeof stack.at / sizeof *stack.at };

static void make_context(int device) {
    pthread_mutex_lock(&runtime.lock);
    runtime.has_context[device] = true;
    pthread_mutex_unlock(&runtime.lock);
}

static void set_current(int device) {
    make_context(device);
    if (stack.n == 0) stack.n = 1;
    stack.at[stack.n - 1] = &contexts[device];
}

int runtime_device(void) {
    if (stack.n == 0) set_current(0);
    return stack.at[stack.n - 1]->device;
}

cudaError_t runtime_on(int device) {
    if (runtime_device() == device) return cudaSuccess;
    pthread_mutex_lock(&runtime.lock);
    runtime.strays++;
    pthread_mutex_unlock(&runtime.lock);
    return runtime_failed(cudaErrorInvalidResourceHandle);
}

void runtime_forget_contexts(void) {
    stack.n = 0;
    pthread_mutex_lock(&runtime.lock);
    memset(runtime.has_context, 0, sizeof runtime.has_context);
    pthread_mutex_unlock(&runtime.lock);
}

int cuda_emulation_device(void) { return runtime_device(); }

cudaError_t cuda_emulation_on(int device) { return runtime_on(device); }

bool cuda_emulation_has_context(int device) {
    pthread_mutex_lock(&runtime.lock);
    bool has = runtime.has_context[device];
    pthread_mutex_unlock(&runtime.lock);
    return has;
}

long cuda_emulation_strays(void) {
    pthread_mutex_lock(&runtime.lock);
    long strays = runtime.strays;
    pthread_mutex_unlock(&runtime.lock);
    return strays;
}

void cuda_emulation_forget_strays(void) {
    pthread_mutex_lock(&runtime.lock);
    runtime.strays = 0;
    pthread_mutex_unlock(&runtime.lock);
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    CUresult error = (CUresult)runtime_enter_context(CALL_cuCtxGetCurrent);
    if (error == CUDA_SUCCESS) *context = stack.n > 0 ? stack.at[stack.n - 1] : NULL;
    return error;
}

CUresult cuCtxPushCurrent(CUcontext context) {
    CUresult error = (CUresult)runtime_enter_context(CALL_cuCtxPushCurrent);
    if (error != CUDA_SUCCESS) return error;
    if (!context || stack.n == STACK_MOST) return CUDA_ERROR_INVALID_VALUE;
    stack.at[stack.n++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context) {
    CUresult error = (CUresult)runtime_enter_context(CALL_cuCtxPopCurrent);
    if (stack.n == 0) return CUDA_ERROR_INVALID_VALUE;
    *context = stack.at[--stack.n];
    return error;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUresult error = (CUresult)runtime_enter(CALL_cuDevicePrimaryCtxRetain);
    if (error != CUDA_SUCCESS) return error;
    if (device < 0 || device >= runtime.devices) return CUDA_ERROR_INVALID_VALUE;
    make_context(device);
    pthread_mutex_lock(&runtime.lock);
    runtime.retained[device]++;
    runtime.alive.contexts++;
    pthread_mutex_unlock(&runtime.lock);
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

/* The context stays, because the runtime uses it, too. */
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    CUresult error = (CUresult)runtime_enter(CALL_cuDevicePrimaryCtxRelease);
    pthread_mutex_lock(&runtime.lock);
    bool ours = device >= 0 && device < RUNTIME_DEVICES && runtime.retained[device] > 0;
    if (ours) {
        runtime.retained[device]--;
        runtime.alive.contexts--;
    }
    pthread_mutex_unlock(&runtime.lock);
    return ours ? error : CUDA_ERROR_INVALID_VALUE;
}

/* ---------------------------------------------------------------- devices */

static cudaError_t check_device(int device) {
    if (runtime.devices == 0) return runtime_failed(cudaErrorNoDevice);
    return device >= 0 && device < runtime.devices ? cudaSuccess : runtime_failed(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceCount(int *count) {
    ENTER(cudaGetDeviceCount);
    if (runtime.devices == 0) return runtime_failed(cudaErrorNoDevice);
    *count = runtime.devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    ENTER(cudaSetDevice);
    cudaError_t error = check_device(device);
    if (error == cudaSuccess) set_current(device);
    return error;
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags) {
    ENTER(cudaInitDevice);
    if (device_flags != 0 || flags != 0) return runtime_failed(cudaErrorInvalidValue);
    cudaError_t error = check_device(device);
    if (error == cudaSuccess) make_context(device);
    return error;
}

cudaError_t cudaGetDevice(int *device) {
    ENTER(cudaGetDevice);
    *device = stack.n > 0 ? stack.at[stack.n - 1]->device : 0; /* makes no context */
    return check_device(*device);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    ENTER(cudaGetDeviceProperties);
    cudaError_t error = check_device(device);
    if (error != cudaSuccess) return error;
    *properties = device_properties;
    properties->totalGlobalMem = runtime.total_bytes;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    ENTER(cudaDeviceGetAttribute);
    cudaError_t error = check_device(device);
    if (error != cudaSuccess) return error;
    const struct cudaDeviceProp *p = &device_properties;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p->maxThreadsPerBlock;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)p->sharedMemPerBlock;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)p->sharedMemPerBlockOptin;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)p->sharedMemPerMultiprocessor;
        return cudaSuccess;
    case cudaDevAttrWarpSize:
        *value = p->warpSize;
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = p->multiProcessorCount;
        return cudaSuccess;
    case cudaDevAttrMemoryClockRate:
        *value = 2619000;
        return cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = 6144;
        return cudaSuccess;
    case cudaDevAttrL2CacheSize:
        *value = p->l2CacheSize;
        return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = p->maxThreadsPerMultiProcessor;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p->major;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p->minor;
        return cudaSuccess;
    }
    return runtime_failed(cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int *version) {
    ENTER(cudaDriverGetVersion);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    ENTER(cudaRuntimeGetVersion);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* Dynamic shared memory that kernels have asked for; under runtime.lock. */
static struct {
    const void *function;
    size_t bytes;
} shared_limits[256];

/* The function's limit, which is added if it is new; NULL: the table is full. */
static size_t *shared_limit(const void *function) {
    for (size_t i = 0; i < sizeof shared_limits / sizeof *shared_limits; i++) {
        if (!shared_limits[i].function)
            shared_limits[i].bytes = device_properties.sharedMemPerBlock, shared_limits[i].function = function;
        if (shared_limits[i].function == function) return &shared_limits[i].bytes;
    }
    return NULL;
}

/* Static shared memory of every kernel: compilers align and pad what a kernel declares, so it is more than the
 * declarations add up to. A GPU refuses a launch if static and dynamic memory together exceed what a block may have. */
enum { STATIC_SHARED_BYTES = 6 << 10 };

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    ENTER(cudaFuncGetAttributes);
    if (!function) return runtime_failed(cudaErrorInvalidDeviceFunction);
    *attributes = (struct cudaFuncAttributes){.sharedSizeBytes = STATIC_SHARED_BYTES};
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
    ENTER(cudaFuncSetAttribute);
    if (!function) return runtime_failed(cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || (size_t)value + STATIC_SHARED_BYTES > device_properties.sharedMemPerBlockOptin)
        return runtime_failed(cudaErrorInvalidValue);
    pthread_mutex_lock(&runtime.lock);
    size_t *limit = shared_limit(function);
    if (limit) *limit = (size_t)value;
    pthread_mutex_unlock(&runtime.lock);
    return limit ? cudaSuccess : runtime_failed(cudaErrorMemoryAllocation);
}

size_t cuda_emulation_shared_limit(const void *function) {
    pthread_mutex_lock(&runtime.lock);
    const size_t *limit = shared_limit(function);
    const size_t bytes = limit ? *limit : device_properties.sharedMemPerBlock;
    pthread_mutex_unlock(&runtime.lock);
    return bytes;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                          size_t dynamic_shared_bytes) {
    ENTER(cudaOccupancyMaxActiveBlocksPerMultiprocessor);
    const struct cudaDeviceProp *p = &device_properties;
    if (!function || threads <= 0) return runtime_failed(cudaErrorInvalidValue);
    int by_threads = p->maxThreadsPerMultiProcessor / threads;
    int by_shared = (int)(p->sharedMemPerMultiprocessor / (dynamic_shared_bytes + 1024));
    *blocks = threads > p->maxThreadsPerBlock ? 0 : by_threads < by_shared ? by_threads : by_shared;
    return cudaSuccess;
}

/* SPDX-License-Identifier: MIT */
/* A stand-in for CUDA's driver, libcuda.so.1, on a machine without one. cuDNN compiles kernels for a device that is
 * only described to it, then loads them and asks for each by its name: this loads whatever it is given, and remembers
 * the names. There is no device, and all else fails as with the stub of NVIDIA's toolkit. */
#include "tests/nets/stand_in_driver.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* As in cuda.h, which a machine without a toolkit has not. Handles are pointers. */
enum { SUCCESS = 0, STUB_LIBRARY = 34 /* CUDA_ERROR_STUB_LIBRARY */ };

#define EXPORTED __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char kernels[STAND_IN_KERNELS][STAND_IN_NAME];
static int n_kernels;
static char loaded; /* what handles of modules, libraries and kernels point to */

EXPORTED int stand_in_kernels(const char *names_out[STAND_IN_KERNELS]) {
    pthread_mutex_lock(&lock);
    const int n = n_kernels;
    for (int i = 0; i < n; i++) names_out[i] = kernels[i];
    pthread_mutex_unlock(&lock);
    return n;
}

EXPORTED void stand_in_forget(void) {
    pthread_mutex_lock(&lock);
    n_kernels = 0;
    pthread_mutex_unlock(&lock);
}

static int give(void *out) {
    void *const handle = &loaded;
    memcpy(out, &handle, sizeof handle);
    return SUCCESS;
}

static int give_kernel(void *out, const char *name) {
    pthread_mutex_lock(&lock);
    if (n_kernels < STAND_IN_KERNELS) snprintf(kernels[n_kernels++], STAND_IN_NAME, "%s", name);
    pthread_mutex_unlock(&lock);
    return give(out);
}

/* ---------------------------------------------------------------- what works */

/* Parameters of no use here have no names, and what lies behind them is not declared. */
#define UNUSED __attribute__((unused))

EXPORTED int cuModuleLoadData(void *out, UNUSED const void *image) { return give(out); }

EXPORTED int cuModuleLoadDataEx(void *out, UNUSED const void *image, UNUSED unsigned n, UNUSED void *options,
                                UNUSED void **values) {
    return give(out);
}

EXPORTED int cuModuleLoadFatBinary(void *out, UNUSED const void *image) { return give(out); }

EXPORTED int cuModuleUnload(UNUSED void *module) { return SUCCESS; }

EXPORTED int cuModuleGetFunction(void *out, UNUSED void *module, const char *name) { return give_kernel(out, name); }

EXPORTED int cuFuncSetAttribute(UNUSED void *kernel, UNUSED int what, UNUSED int value) { return SUCCESS; }

EXPORTED int cuLibraryLoadData(void *out, UNUSED const void *code, UNUSED void *options, UNUSED void **values,
                               UNUSED unsigned n, UNUSED void *library_options, UNUSED void **library_values,
                               UNUSED unsigned n_library) {
    return give(out);
}

EXPORTED int cuLibraryUnload(UNUSED void *library) { return SUCCESS; }

EXPORTED int cuLibraryGetKernel(void *out, UNUSED void *library, const char *name) { return give_kernel(out, name); }

EXPORTED int cuKernelSetAttribute(UNUSED int what, UNUSED int value, UNUSED void *kernel, UNUSED int device) {
    return SUCCESS;
}

/* ---------------------------------------------------------------- what fails */

/* cuDNN 9.19 and its runtime look these up; a name that is missing would be told on standard error. */
#define FAILS(X)                                                                                                       \
    X(cuCtxGetCurrent)                                                                                                 \
    X(cuCtxGetDevice)                                                                                                  \
    X(cuCtxGetLimit)                                                                                                   \
    X(cuCtxPopCurrent)                                                                                                 \
    X(cuCtxPushCurrent)                                                                                                \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetAttribute)                                                                                            \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDevicePrimaryCtxRelease)                                                                                       \
    X(cuDevicePrimaryCtxReset)                                                                                         \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuDriverGetVersion)                                                                                              \
    X(cuFuncGetAttribute)                                                                                              \
    X(cuGetErrorName)                                                                                                  \
    X(cuGetErrorString)                                                                                                \
    X(cuGetProcAddress_v2)                                                                                             \
    X(cuInit)                                                                                                          \
    X(cuKernelGetAttribute)                                                                                            \
    X(cuLaunchCooperativeKernel)                                                                                       \
    X(cuLaunchKernel)                                                                                                  \
    X(cuLaunchKernelEx)                                                                                                \
    X(cuLibraryLoadFromFile)                                                                                           \
    X(cuLinkAddData)                                                                                                   \
    X(cuLinkAddData_v2)                                                                                                \
    X(cuLinkAddFile_v2)                                                                                                \
    X(cuLinkComplete)                                                                                                  \
    X(cuLinkCreate)                                                                                                    \
    X(cuLinkCreate_v2)                                                                                                 \
    X(cuLinkDestroy)                                                                                                   \
    X(cuMemcpyDtoH_v2)                                                                                                 \
    X(cuModuleGetGlobal_v2)                                                                                            \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                                                     \
    X(cuOccupancyMaxPotentialClusterSize)                                                                              \
    X(cuStreamGetCtx)                                                                                                  \
    X(cuStreamSynchronize)                                                                                             \
    X(cuTensorMapEncodeTiled)

/* One function under all these names, because its parameters are of no use. */
__attribute__((used)) static int fail(void) __asm__("stand_in_fail");
static int fail(void) { return STUB_LIBRARY; }
#define ALIAS(name) __asm__(".globl " #name "\n.type " #name ", @function\n.set " #name ", stand_in_fail");
FAILS(ALIAS)

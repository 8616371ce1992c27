/* SPDX-License-Identifier: MIT */
/* An H200 that cuDNN is only told of: it proposes engines for it, and tells their workspaces, without a GPU. Include it
 * after <cmocka.h>. */
#ifndef TESTS_NETS_CUDNN_DEVICE_H
#define TESTS_NETS_CUDNN_DEVICE_H

#include "nets/cuda/cuda_ops.h"

/* The versions of the library that this is written for: older ones plan for no device that they are told of, and what
 * engines a newer one proposes, and what workspace these take, is its own matter. */
enum { OLDEST = 90800, NEWER = 92000 };

#if CUDNN_VERSION >= 90800
/* What cuDNN 9.19 wants to be told of a device. */
static const char H200[] =
    "{\"deviceName\":\"NVIDIA H200\",\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,\"pciDeviceId\":0,"
    "\"isTccDriver\":0,\"multiProcessorCount\":132,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
    "\"totalGlobalMem\":150000000000,\"l2CacheSize\":62914560,\"maxGridSize\":[2147483647,65535,65535],"
    "\"maxBlockSize\":[1024,1024,64],\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"maxCtasPerSM\":32,"
    "\"warpSize\":32,\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,\"supportCoopLaunch\":1}";

static inline cudnnBackendDescriptor_t cudnn_device_describe(void) {
    cudnnBackendDescriptor_t properties;
    if (cudnnGetVersion() < OLDEST || cudnnGetVersion() >= NEWER ||
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties) != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                 sizeof H200 - 1, H200) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(properties) == CUDNN_STATUS_SUCCESS)
        return properties;
    cudnnBackendDestroyDescriptor(properties);
    return NULL;
}
#else
static inline cudnnBackendDescriptor_t cudnn_device_describe(void) { return NULL; }
#endif

static inline void cudnn_device_need(cudnnBackendDescriptor_t properties) {
    if (properties) return;
    print_message("cuDNN %zu, with headers of %d: this knows what %d to %d plan for a device that they are told of\n",
                  cudnnGetVersion(), CUDNN_VERSION, OLDEST, NEWER - 1);
    skip();
}

#endif

/* SPDX-License-Identifier: MIT */
/* An H200 that is only described to cuDNN, which then proposes engines for it, and says their workspaces, without a
 * GPU. Include it after <cmocka.h>. */
#ifndef TESTS_NETS_CUDNN_DEVICE_H
#define TESTS_NETS_CUDNN_DEVICE_H

#include "nets/cuda/cuda_ops.h"

/* The cuDNN versions that these tests are for: older ones cannot plan for a described device; newer ones may propose
 * other engines and workspaces. */
enum { OLDEST = 90800, NEWER = 92000 };

#if CUDNN_VERSION >= 90800
/* The description that cuDNN 9.19 wants of a device. */
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

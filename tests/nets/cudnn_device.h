/* SPDX-License-Identifier: MIT */
/* GPUs that are only described to cuDNN, which then proposes engines for them and says their workspaces; and the
 * stand-in driver, with which it also compiles and loads engines' kernels. Include it after <cmocka.h>. */
#ifndef TESTS_NETS_CUDNN_DEVICE_H
#define TESTS_NETS_CUDNN_DEVICE_H

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "nets/cuda/cuda_ops.h"
#include "tests/nets/stand_in_driver.h"

/* The cuDNN versions that these tests are for: older ones cannot plan for a described device; newer ones may propose
 * other engines and workspaces. */
enum { OLDEST = 90800, NEWER = 92000 };

/* Sizes that follow from the compute capability: CUDA's programming guide, "Compute Capabilities". The others: data
 * sheets (tools/facts/gpus.csv). */
typedef struct cudnn_card {
    const char *name;
    int capability; /* 900: 9.0 */
    int processors, clock_khz, memory_khz, l2_mib;
    long long memory_bytes;
    int threads, blocks, shared_kib; /* most of a multiprocessor; most shared memory of a block */
} cudnn_card;

enum { H200, H100, A100, RTX3090, L40S, RTX4090, B200, RTX5090, CARDS };
static const cudnn_card CUDNN_CARDS[CARDS] = {
    [H200] = {"NVIDIA H200", 900, 132, 1980000, 3201000, 60, 150000000000, 2048, 32, 227},
    [H100] = {"NVIDIA H100 80GB HBM3", 900, 132, 1980000, 2619000, 50, 85000000000, 2048, 32, 227},
    [A100] = {"NVIDIA A100-SXM4-80GB", 800, 108, 1410000, 1593000, 40, 85000000000, 2048, 32, 163},
    [RTX3090] = {"NVIDIA GeForce RTX 3090", 860, 82, 1695000, 9751000, 6, 25000000000, 1536, 16, 99},
    [L40S] = {"NVIDIA L40S", 890, 142, 2520000, 9001000, 96, 48000000000, 1536, 24, 99},
    [RTX4090] = {"NVIDIA GeForce RTX 4090", 890, 128, 2520000, 10501000, 72, 25000000000, 1536, 24, 99},
    [B200] = {"NVIDIA B200", 1000, 148, 1965000, 3996000, 126, 190000000000, 2048, 32, 227},
    [RTX5090] = {"NVIDIA GeForce RTX 5090", 1200, 170, 2407000, 14001000, 96, 34000000000, 1536, 24, 99},
};

#if CUDNN_VERSION >= 90800
/* NULL: this cuDNN cannot be told of a device, or does not know this one. */
static inline cudnnBackendDescriptor_t cudnn_device_describe(const cudnn_card *c) {
    cudnnBackendDescriptor_t properties;
    char json[1024];
    /* The description that cuDNN 9.19 wants. */
    const int length = snprintf(
        json, sizeof json,
        "{\"deviceName\":\"%s\",\"deviceVer\":%d,\"driverVer\":13000,\"cudaDeviceId\":0,\"pciDeviceId\":0,"
        "\"isTccDriver\":0,\"multiProcessorCount\":%d,\"smClockRateKHz\":%d,\"memClockRateKHz\":%d,"
        "\"totalGlobalMem\":%lld,\"l2CacheSize\":%d,\"maxGridSize\":[2147483647,65535,65535],"
        "\"maxBlockSize\":[1024,1024,64],\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,\"maxCtasPerSM\":%d,"
        "\"warpSize\":32,\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"maxSharedMemoryPerBlock\":49152,"
        "\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":1024,\"supportCoopLaunch\":1}",
        c->name, c->capability, c->processors, c->clock_khz, c->memory_khz, c->memory_bytes, c->l2_mib << 20,
        c->threads, c->blocks, c->shared_kib << 10);
    if (cudnnGetVersion() < OLDEST || cudnnGetVersion() >= NEWER ||
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties) != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, length,
                                 json) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(properties) == CUDNN_STATUS_SUCCESS)
        return properties;
    cudnnBackendDestroyDescriptor(properties);
    return NULL;
}
#else
static inline cudnnBackendDescriptor_t cudnn_device_describe(const cudnn_card *c) {
    (void)c;
    return NULL;
}
#endif

static inline void cudnn_device_need(cudnnBackendDescriptor_t properties) {
    if (properties) return;
    print_message("cuDNN %zu, with headers of %d: this knows what %d to %d plan for a device that they are told of\n",
                  cudnnGetVersion(), CUDNN_VERSION, OLDEST, NEWER - 1);
    skip();
}

/* ---------------------------------------------------------------- the stand-in driver */

typedef struct cudnn_driver {
    void *library; /* NULL: it is not beside this test, as in a pack for other machines */
    int (*kernels)(const char *names_out[STAND_IN_KERNELS]);
    void (*forget)(void);
} cudnn_driver;

/* Loads it under the name that cuDNN looks for, libcuda.so.1, before cuDNN does; for the whole process. */
static inline cudnn_driver cudnn_driver_open(void) {
    cudnn_driver d = {.library = dlopen("tests/nets/libstand_in_driver.so", RTLD_NOW | RTLD_GLOBAL)};
    if (!d.library) return d;
    *(void **)&d.kernels = dlsym(d.library, "stand_in_kernels");
    *(void **)&d.forget = dlsym(d.library, "stand_in_forget");
    return d;
}

static inline void cudnn_driver_need(const cudnn_driver *d) {
    if (d->library) return;
    print_message("there is no stand-in driver beside this test: cuDNN compiles kernels only where it finds one\n");
    skip();
}

#endif

/* SPDX-License-Identifier: MIT */
/* The CUDA device: its table of functions, creation and destruction. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "mm/device/cuda/cuda_internal.h"

static mm_status find_driver(cuda_driver *driver) {
    MM_TRY(cuda_find_function("cuMemGetAllocationGranularity", &driver->granularity));
    MM_TRY(cuda_find_function("cuMemAddressReserve", &driver->address_reserve));
    MM_TRY(cuda_find_function("cuMemAddressFree", &driver->address_free));
    MM_TRY(cuda_find_function("cuMemCreate", &driver->create));
    MM_TRY(cuda_find_function("cuMemRelease", &driver->release));
    MM_TRY(cuda_find_function("cuMemMap", &driver->map));
    MM_TRY(cuda_find_function("cuMemUnmap", &driver->unmap));
    return cuda_find_function("cuMemSetAccess", &driver->set_access);
}

/* Nominal rate to and from pinned memory, each way, by the PCI Express generation of the GPU's architecture.
 * Generation 3: chosen, the part of its 15.75 GB/s that is commonly reached. Generation 4: twice that. Generation 5:
 * 55.2 GB/s, measured on an H200 with other programs, none of them ours (tools/facts/README.md). */
static int64_t link_rate(int architecture) {
    static const int64_t GENERATION_3 = INT64_C(12000000000);
    return architecture >= 9 ? GENERATION_3 * 46 / 10 : architecture == 8 ? GENERATION_3 * 2 : GENERATION_3;
}

/* Double data rate: two transfers per clock, each as wide as the bus. */
static mm_status find_memory_rate(int ordinal, int64_t *bytes_per_s_out) {
    int kilohertz, bits;
    CUDA_TRY(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, ordinal), "cudaDeviceGetAttribute");
    CUDA_TRY(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, ordinal), "cudaDeviceGetAttribute");
    *bytes_per_s_out = INT64_C(2000) * kilohertz * (bits / 8);
    return MM_OK;
}

/* Chosen: an eighth of what driver 580 refuses (cuda_pinned.c), and far more than most reservations. */
static const size_t REGISTER_MOST_BYTES = (size_t)64 << 30;

static mm_status describe_gpu(cuda_device *device) {
    struct cudaDeviceProp properties;
    CUDA_TRY(cudaGetDeviceProperties(&properties, device->ordinal), "cudaGetDeviceProperties");
    snprintf(device->description.model, sizeof device->description.model, "%.127s", properties.name);
    device->description.processors = properties.multiProcessorCount;
    device->description.link_bytes_per_s = link_rate(properties.major);
    device->can_register = properties.canUseHostPointerForRegisteredMem && properties.hostRegisterSupported;
    device->register_most_bytes = REGISTER_MOST_BYTES;
    atomic_store(&device->registers, device->can_register);
    return find_memory_rate(device->ordinal, &device->description.memory_bytes_per_s);
}

static void close_parts(cuda_device *device) {
    cuda_time_fini(device);
    if (device->service != NULL) cuda_stream_destroy(device->service);
    assert(atomic_load(&device->alive) == 0);
    cuda_memory_fini(device);
}

static void cuda_destroy(mm_device *base) {
    cuda_device *device = (cuda_device *)base;
    bool entered = false;
    if (device->gpu != NULL) (void)!mm_cuda_gpu_enter(device->gpu, true, &entered);
    close_parts(device);
    if (entered) mm_cuda_gpu_leave(device->gpu);
    mm_cuda_gpu_close(device->gpu);
    pthread_mutex_destroy(&device->time_lock);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

/* With the GPU current. */
static mm_status open_parts(cuda_device *device) {
    MM_TRY(find_driver(&device->driver));
    MM_TRY(describe_gpu(device));
    MM_TRY(cuda_stream_create(&device->base, "mm-service", 0, &device->service));
    MM_TRY(cuda_time_init(device));
    return cuda_memory_init(device);
}

static mm_status open_device(cuda_device *device) {
    bool entered;
    MM_TRY(mm_cuda_gpu_open(device->ordinal, &device->gpu));
    MM_TRY(mm_cuda_gpu_enter(device->gpu, false, &entered));
    mm_status status = open_parts(device);
    if (entered) mm_cuda_gpu_leave(device->gpu);
    return status;
}

static mm_status cuda_create(int ordinal, const mm_device_config *config, mm_device **device_out) {
    cuda_device *device = calloc(1, sizeof *device);
    if (device == NULL) return mm_fail(MM_ERR_NOMEM, "cuda: no memory for the device's %zu bytes", sizeof *device);
    device->base.ops = &mm_device_cuda_ops;
    device->ordinal = ordinal;
    device->config = *config;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->time_lock, NULL);
    mm_status status = open_device(device);
    if (status != MM_OK) {
        cuda_destroy(&device->base);
        return status;
    }
    *device_out = &device->base;
    return MM_OK;
}

static mm_status cuda_enter(mm_device *base, bool silent, bool *entered_out) {
    return mm_cuda_gpu_enter(((cuda_device *)base)->gpu, silent, entered_out);
}

static void cuda_leave(mm_device *base) { mm_cuda_gpu_leave(((cuda_device *)base)->gpu); }

static void cuda_describe(mm_device *base, mm_device_description *description_out) {
    cuda_device *device = (cuda_device *)base;
    *description_out = device->description;
    description_out->pinned = atomic_load(&device->registers) ? "mapped in huge pages and registered" : "cudaHostAlloc";
}

/* Spins rather than sleeps, because a cudaMalloc keeps the caller's thread busy too. */
static void cuda_charge_alloc(mm_device *base) {
    int64_t cost_ns = ((cuda_device *)base)->config.alloc_cost_ns;
    if (cost_ns == 0) return;
    for (int64_t end_ns = mm_now_ns() + cost_ns; mm_now_ns() < end_ns;) continue;
}

const mm_device_ops mm_device_cuda_ops = {
    .name = "cuda",
    .summary = "an NVIDIA GPU; cuda:N is the one of that number, from 0, of those that CUDA_VISIBLE_DEVICES leaves",
    .cpu_reaches_memory = false,
    .count = mm_cuda_count,
    .create = cuda_create,
    .destroy = cuda_destroy,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .describe = cuda_describe,
    .reserve = cuda_reserve,
    .reserve_trimmed = cuda_reserve_trimmed,
    .release = cuda_release,
    .trim = cuda_trim,
    .restore = cuda_restore,
    .memory_info = cuda_memory_info,
    .outside_bytes = cuda_outside_bytes,
    .charge_alloc = cuda_charge_alloc,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_wait = cuda_stream_wait,
    .stream_sync = cuda_stream_sync,
    .stream_reset = cuda_stream_reset,
    .stream_stats = cuda_stream_stats,
    .stream_handle = cuda_stream_handle,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_sync = cuda_event_sync,
    .event_done = cuda_event_done,
    .event_ns = cuda_event_ns,
    .stream_check = cuda_stream_check,
    .foreign_check = cuda_foreign_check,
    .foreign_record = cuda_foreign_record,
    .foreign_wait = cuda_foreign_wait,
    .copy_async = cuda_copy_async,
    .fill_async = cuda_fill_async,
    .checksum_async = cuda_checksum_async,
    .mark_async = cuda_mark_async,
    .find_mark_async = cuda_find_mark_async,
    .sums_async = cuda_sums_async,
    .call_async = cuda_call_async,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .replay_launch = cuda_replay_launch,
    .replay_destroy = cuda_replay_destroy,
};

/* SPDX-License-Identifier: MIT */
/* Reservations of device memory. A reservation is a range of addresses, mapped in chunks, so that parts of it can be
 * given back and mapped again while all addresses stay:
 *
 *      bytes asked for
 *     |-----------------------------------|
 *     | chunk 0 | chunk 1 | chunk 2 | ch 3 |   the last one ends at the granule above
 * */
#include <assert.h>
#include <stdlib.h>

#include "mm/core/size.h"
#include "mm/device/cuda/cuda_internal.h"

/* A chunk has 16 granules (of 2 MiB on GPUs of today, so 32 MiB). Chosen: with smaller chunks, the bytes given back are
 * closer to those asked for, but there are more calls of the driver. */
enum { CHUNK_GRANULES = 16 };

struct cuda_range {
    cuda_range *next;
    CUdeviceptr base;
    int64_t bytes, mapped_to; /* bytes: as reserved; mapped_to: end of the last chunk */
    int64_t chunk_bytes;
    int chunks;
    bool mapped[]; /* per chunk */
};

static int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

static mm_status no_memory(const char *what) { return mm_fail(MM_ERR_NOMEM, "cuda: no memory for %s", what); }

/* ---------------------------------------------------------------- chunks */

static int64_t chunk_offset(const cuda_range *range, int chunk) { return chunk * range->chunk_bytes; }

static int64_t chunk_bytes(const cuda_range *range, int chunk) {
    int64_t left = range->mapped_to - chunk_offset(range, chunk);
    return left < range->chunk_bytes ? left : range->chunk_bytes;
}

static CUmemLocation place_of(const cuda_device *device) {
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal};
}

static void count_mapped(cuda_device *device, int64_t bytes) {
    pthread_mutex_lock(&device->lock);
    device->mapped_bytes += bytes;
    pthread_mutex_unlock(&device->lock);
}

/* Maps a chunk; it cannot be accessed yet (open_access). */
static mm_status map_chunk(cuda_device *device, cuda_range *range, int chunk) {
    const cuda_driver *driver = &device->driver;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = place_of(device)};
    CUdeviceptr address = range->base + (CUdeviceptr)chunk_offset(range, chunk);
    size_t bytes = (size_t)chunk_bytes(range, chunk);
    CUmemGenericAllocationHandle handle;
    MM_TRY(cuda_driver_check(driver->create(&handle, bytes, &properties, 0), "cuMemCreate"));
    mm_status status = cuda_driver_check(driver->map(address, bytes, 0, handle, 0), "cuMemMap");
    driver->release(handle); /* only the handle goes: the memory stays as long as it is mapped */
    MM_TRY(status);
    range->mapped[chunk] = true;
    count_mapped(device, (int64_t)bytes);
    return MM_OK;
}

static mm_status open_access(const cuda_device *device, CUdeviceptr address, int64_t bytes) {
    const CUmemAccessDesc access = {.location = place_of(device), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuda_driver_check(device->driver.set_access(address, (size_t)bytes, &access, 1), "cuMemSetAccess");
}

static void unmap_chunk(cuda_device *device, cuda_range *range, int chunk) {
    int64_t bytes = chunk_bytes(range, chunk);
    CUdeviceptr address = range->base + (CUdeviceptr)chunk_offset(range, chunk);
    if (!range->mapped[chunk] || device->driver.unmap(address, (size_t)bytes) != CUDA_SUCCESS) return;
    range->mapped[chunk] = false;
    count_mapped(device, -bytes);
}

/* Maps one chunk again and opens access to it alone, because its neighbours are in use. */
static mm_status remap_chunk(cuda_device *device, cuda_range *range, int chunk) {
    MM_TRY(map_chunk(device, range, chunk));
    CUdeviceptr address = range->base + (CUdeviceptr)chunk_offset(range, chunk);
    mm_status status = open_access(device, address, chunk_bytes(range, chunk));
    if (status == MM_OK) status = cuda_fill_async(device->service, (void *)address, 0, chunk_bytes(range, chunk));
    if (status == MM_OK) status = cuda_stream_sync(device->service);
    if (status != MM_OK) unmap_chunk(device, range, chunk);
    return status;
}

/* Returns MM_ERR_NOMEM; the message says how much was asked and how much is free. */
static mm_status report_shortage(int64_t bytes, size_t free_bytes, size_t total_bytes) {
    char asked[32], left[32], total[32];
    return mm_fail(MM_ERR_NOMEM,
                   "cuda: %s of device memory asked, %s of the GPU's %s are free; use a smaller budget, or end what "
                   "else uses the GPU",
                   mm_size_format(bytes, asked, sizeof asked), mm_size_format((int64_t)free_bytes, left, sizeof left),
                   mm_size_format((int64_t)total_bytes, total, sizeof total));
}

static mm_status check_free(int64_t bytes) {
    size_t free_bytes, total_bytes;
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    return (uint64_t)bytes <= free_bytes ? MM_OK : report_shortage(bytes, free_bytes, total_bytes);
}

/* ---------------------------------------------------------------- ranges */

static cuda_range *range_create(const cuda_device *device, int64_t bytes) {
    int64_t granule = (int64_t)device->granule_bytes, chunk = granule * CHUNK_GRANULES;
    int64_t chunks = (bytes + chunk - 1) / chunk;
    cuda_range *range = calloc(1, sizeof *range + (size_t)chunks * sizeof range->mapped[0]);
    if (range == NULL) return NULL;
    range->bytes = bytes;
    range->mapped_to = round_up(bytes, granule);
    range->chunk_bytes = chunk;
    range->chunks = (int)chunks;
    return range;
}

static void range_destroy(cuda_device *device, cuda_range *range) {
    for (int i = 0; i < range->chunks; i++) unmap_chunk(device, range, i);
    if (range->base != 0) device->driver.address_free(range->base, (size_t)range->mapped_to);
    free(range);
}

static mm_status range_reserve(const cuda_device *device, cuda_range *range) {
    return cuda_driver_check(device->driver.address_reserve(&range->base, (size_t)range->mapped_to, 0, 0, 0),
                             "cuMemAddressReserve");
}

static mm_status range_map(cuda_device *device, cuda_range *range) {
    for (int i = 0; i < range->chunks; i++) MM_TRY(map_chunk(device, range, i));
    MM_TRY(open_access(device, range->base, range->mapped_to)); /* in one call for all chunks, because each call waits
                                                                   for the GPU */
    MM_TRY(cuda_fill_async(device->service, (void *)range->base, 0, range->bytes));
    return cuda_stream_sync(device->service);
}

static mm_status reserve_device(cuda_device *device, int64_t bytes, bool mapped, void **memory_out) {
    if (mapped) MM_TRY(check_free(bytes));
    cuda_range *range = range_create(device, bytes);
    if (range == NULL) return no_memory("a reservation");
    mm_status status = range_reserve(device, range);
    if (status == MM_OK && mapped) status = range_map(device, range);
    if (status != MM_OK) {
        range_destroy(device, range);
        return status;
    }
    pthread_mutex_lock(&device->lock);
    range->next = device->ranges;
    device->ranges = range;
    device->reserved_bytes += bytes;
    pthread_mutex_unlock(&device->lock);
    *memory_out = (void *)range->base;
    return MM_OK;
}

static void release_device(cuda_device *device, void *memory) {
    pthread_mutex_lock(&device->lock);
    cuda_range **at = &device->ranges;
    while ((*at)->base != (CUdeviceptr)memory) at = &(*at)->next;
    cuda_range *range = *at;
    *at = range->next;
    device->reserved_bytes -= range->bytes;
    pthread_mutex_unlock(&device->lock);
    range_destroy(device, range);
}

/* ---------------------------------------------------------------- trim and restore */

static cuda_range *find_range(cuda_device *device, const void *memory) {
    CUdeviceptr address = (CUdeviceptr)memory;
    pthread_mutex_lock(&device->lock);
    cuda_range *range = device->ranges;
    while (range != NULL && (address < range->base || address >= range->base + (CUdeviceptr)range->bytes))
        range = range->next;
    pthread_mutex_unlock(&device->lock);
    assert(range != NULL); /* the caller passed memory of a reservation */
    return range;
}

/* Sets part of a chunk, which stays mapped, to zero. A failure here is final for the GPU; the next call returns it. */
static void clear(cuda_device *device, const cuda_range *range, int64_t begin, int64_t end) {
    mm_status status = cuda_fill_async(device->service, (void *)(range->base + (CUdeviceptr)begin), 0, end - begin);
    if (status == MM_OK) status = cuda_stream_sync(device->service);
    (void)status;
}

/* Unmaps chunks that lie wholly inside, and the last one if the range reaches the reservation's end. */
void cuda_trim(mm_device *base, void *memory, int64_t bytes) {
    cuda_device *device = (cuda_device *)base;
    cuda_range *range = find_range(device, memory);
    int64_t begin = (int64_t)((CUdeviceptr)memory - range->base), end = begin + bytes;
    if (end >= range->bytes) end = range->mapped_to;
    for (int i = 0; i < range->chunks; i++) {
        int64_t first = chunk_offset(range, i), last = first + chunk_bytes(range, i);
        int64_t from = first > begin ? first : begin, to = last < end ? last : end;
        if (from >= to || !range->mapped[i]) continue;
        if (from == first && to == last)
            unmap_chunk(device, range, i);
        else
            clear(device, range, from, to);
    }
}

mm_status cuda_restore(mm_device *base, void *memory, int64_t bytes) {
    cuda_device *device = (cuda_device *)base;
    cuda_range *range = find_range(device, memory);
    int64_t begin = (int64_t)((CUdeviceptr)memory - range->base), missing = 0;
    int first = (int)(begin / range->chunk_bytes), last = (int)((begin + bytes - 1) / range->chunk_bytes);
    for (int i = first; i <= last; i++)
        if (!range->mapped[i]) missing += chunk_bytes(range, i);
    if (missing == 0) return MM_OK;
    MM_TRY(check_free(missing));
    for (int i = first; i <= last; i++)
        if (!range->mapped[i]) MM_TRY(remap_chunk(device, range, i));
    return MM_OK;
}

/* ---------------------------------------------------------------- the contract's */

mm_status cuda_memory_init(cuda_device *device) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = place_of(device)};
    size_t free_bytes, total_bytes;
    CUmemAllocationGranularity_flags option = CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    MM_TRY(cuda_driver_check(device->driver.granularity(&device->granule_bytes, &properties, option),
                             "cuMemGetAllocationGranularity"));
    MM_TRY(cuda_slots_add(device));
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    device->total_bytes = (int64_t)total_bytes;
    device->free_at_creation_bytes = (int64_t)free_bytes;
    return MM_OK;
}

void cuda_memory_fini(cuda_device *device) {
    assert(device->ranges == NULL && device->reserved_bytes == 0);
    cuda_pinned_fini(device);
}

mm_status cuda_reserve_trimmed(mm_device *base, int64_t bytes, void **memory_out) {
    return reserve_device((cuda_device *)base, bytes, false, memory_out);
}

mm_status cuda_reserve(mm_device *base, mm_memory_kind kind, int64_t bytes, void **memory_out) {
    cuda_device *device = (cuda_device *)base;
    return kind == MM_MEMORY_DEVICE ? reserve_device(device, bytes, true, memory_out)
                                    : cuda_pinned_reserve(device, bytes, false, memory_out);
}

void cuda_release(mm_device *base, mm_memory_kind kind, void *memory, int64_t bytes) {
    (void)bytes;
    if (kind == MM_MEMORY_DEVICE)
        release_device((cuda_device *)base, memory);
    else
        cuda_pinned_release((cuda_device *)base, memory);
}

/* What would be free if only this device had taken memory since its creation, and what is free. After a fault of the
 * GPU, cudaMemGetInfo fails; then both are the first figure. */
static void look_at_free(cuda_device *device, int64_t *expected_out, int64_t *free_out) {
    size_t free_bytes, total_bytes;
    bool told = cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess;
    pthread_mutex_lock(&device->lock);
    *expected_out = device->free_at_creation_bytes - device->mapped_bytes;
    pthread_mutex_unlock(&device->lock);
    *free_out = told ? (int64_t)free_bytes : *expected_out;
}

void cuda_memory_info(mm_device *base, mm_memory_info *info_out) {
    cuda_device *device = (cuda_device *)base;
    mm_memory_info info = {.total_bytes = device->total_bytes};
    int64_t expected;
    look_at_free(device, &expected, &info.free_bytes);
    pthread_mutex_lock(&device->lock);
    info.reserved_bytes = device->reserved_bytes;
    pthread_mutex_unlock(&device->lock);
    *info_out = info;
}

int64_t cuda_outside_bytes(mm_device *base) {
    int64_t expected, free_now;
    look_at_free((cuda_device *)base, &expected, &free_now);
    return expected - free_now;
}

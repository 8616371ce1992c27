/* SPDX-License-Identifier: MIT */
/* Device memory: ranges of addresses, in granules that are mapped and made accessible one by one. The CPU may touch
 * accessible granules only while some stream works (memory_open_locked); at all other times a touch faults, as on a
 * GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/cuda_emulation/check_memory.h"
#include "tests/cuda_emulation/runtime.h"

enum {
    GRANULE = CHECK_GRANULE, /* a GPU's is 2 MiB */
    GARBAGE = 0xff,          /* NaN, -1 */
    PLAIN_GARBAGE = 64,      /* granules of a cudaMalloc that are filled: to fill a large workspace takes long */
    HUGE_PAGE = 2 << 20,
};

/* Physical memory. It is freed once it is released and mapped nowhere. */
typedef struct physical {
    int device;
    size_t bytes;
    int mapped; /* number of granules that map it */
    bool released;
} physical;

typedef struct granule {
    physical *memory; /* NULL: not mapped */
    bool accessible;
} granule;

typedef struct range {
    struct range *next;
    char *base;
    size_t bytes, granules;
    bool plain;   /* made by cudaMalloc */
    size_t asked; /* plain: bytes that the caller may use */
    int device;   /* of its accessible memory; -1: none yet */
    granule granule[];
} range;

/* Under runtime.lock. */
static range *ranges;
static long opened[RUNTIME_DEVICES];

/* ---------------------------------------------------------------- protection */

static void protect(const range *r, size_t first, size_t end, int protection) {
    if (mprotect(r->base + first * GRANULE, (end - first) * GRANULE, protection) != 0) {
        perror("cuda_emulation: mprotect");
        abort();
    }
}

static void protect_all_locked(int device, int protection) {
    for (const range *r = ranges; r; r = r->next)
        for (size_t first = 0, end; first < r->granules && r->device == device; first = end) {
            bool accessible = r->granule[first].accessible;
            for (end = first + 1; end < r->granules && r->granule[end].accessible == accessible;) end++;
            if (accessible) protect(r, first, end, protection);
        }
}

void memory_open_locked(int device) {
    if (opened[device]++ == 0) protect_all_locked(device, PROT_READ | PROT_WRITE);
}

void memory_close_locked(int device) {
    if (--opened[device] == 0) protect_all_locked(device, PROT_NONE);
}

/* ---------------------------------------------------------------- ranges */

static range *find_locked(const void *memory) {
    for (range *r = ranges; r; r = r->next)
        if ((const char *)memory >= r->base && (const char *)memory < r->base + r->bytes) return r;
    return NULL;
}

/* The range of which the bytes are whole granules, and which granules; NULL: the bytes are not whole granules of one
 * range. */
static range *find_granules_locked(CUdeviceptr address, size_t bytes, size_t *first_out, size_t *end_out) {
    range *r = find_locked((void *)address);
    if (!r || bytes == 0) return NULL;
    size_t offset = (size_t)(address - (CUdeviceptr)r->base);
    if (offset % GRANULE != 0 || bytes % GRANULE != 0 || bytes > r->bytes - offset) return NULL;
    *first_out = offset / GRANULE;
    *end_out = (offset + bytes) / GRANULE;
    return r;
}

/* Uses huge pages if there are any: else opening and closing all memory takes two thirds of a test's time. */
static void prefer_huge_pages(char *base, size_t bytes) { madvise(base, bytes, MADV_HUGEPAGE); }

static range *range_create(size_t bytes) {
    size_t granules = bytes / GRANULE, alignment = bytes < HUGE_PAGE ? GRANULE : HUGE_PAGE, padded = bytes + alignment;
    range *r = calloc(1, sizeof *r + granules * sizeof r->granule[0]);
    if (!r) return NULL;
    char *memory = mmap(NULL, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        free(r);
        return NULL;
    }
    size_t before = (alignment - (uintptr_t)memory % alignment) % alignment;
    if (before > 0) munmap(memory, before);
    if (before < alignment) munmap(memory + before + bytes, alignment - before);
    r->base = memory + before;
    prefer_huge_pages(r->base, bytes);
    r->bytes = bytes;
    r->granules = granules;
    r->device = -1;
    pthread_mutex_lock(&runtime.lock);
    r->next = ranges;
    ranges = r;
    runtime.alive.ranges++;
    pthread_mutex_unlock(&runtime.lock);
    return r;
}

static void range_destroy_locked(range *r) {
    range **at = &ranges;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    check_memory_gone(r->base);
    munmap(r->base, r->bytes);
    free(r);
    runtime.alive.ranges--;
}

/* The device whose memory it is; -1: it is not device memory. */
static int device_of(const void *memory) {
    pthread_mutex_lock(&runtime.lock);
    const range *r = find_locked(memory);
    int device = r ? r->device : -1;
    pthread_mutex_unlock(&runtime.lock);
    return device;
}

/* ---------------------------------------------------------------- physical memory */

static size_t free_bytes_locked(int device) {
    size_t used = runtime.others_bytes + runtime.used_bytes[device];
    return runtime.total_bytes > used ? runtime.total_bytes - used : 0;
}

static void use_locked(int device, size_t bytes) {
    runtime.used_bytes[device] += bytes;
    runtime.alive.device_bytes += bytes;
}

static size_t kept_back_bytes;

void cuda_emulation_keep_back(size_t bytes) {
    pthread_mutex_lock(&runtime.lock);
    kept_back_bytes = bytes;
    pthread_mutex_unlock(&runtime.lock);
}

static physical *physical_create(int device, size_t bytes) {
    physical *memory = NULL;
    pthread_mutex_lock(&runtime.lock);
    if (bytes + kept_back_bytes <= free_bytes_locked(device)) memory = calloc(1, sizeof *memory);
    if (memory) {
        memory->device = device;
        memory->bytes = bytes;
        use_locked(device, bytes);
    }
    pthread_mutex_unlock(&runtime.lock);
    return memory;
}

static void physical_drop_locked(physical *memory) {
    if (!memory->released || memory->mapped > 0) return;
    use_locked(memory->device, -memory->bytes);
    free(memory);
}

static void map_locked(range *r, size_t first, size_t end, physical *memory) {
    for (size_t g = first; g < end; g++) r->granule[g] = (granule){memory, false};
    memory->mapped += (int)(end - first);
}

static void unmap_locked(range *r, size_t first, size_t end) {
    void *fresh = mmap(r->base + first * GRANULE, (end - first) * GRANULE, PROT_NONE,
                       MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fresh == MAP_FAILED) {
        perror("cuda_emulation: mmap");
        abort();
    }
    prefer_huge_pages(fresh, (end - first) * GRANULE);
    check_memory_opened(r->base + first * GRANULE, (end - first) * GRANULE, false);
    for (size_t g = first; g < end; g++) {
        physical *memory = r->granule[g].memory;
        r->granule[g] = (granule){NULL, false};
        memory->mapped--;
        physical_drop_locked(memory);
    }
}

/* New memory holds garbage, as if others had used it. */
static void make_accessible_locked(range *r, size_t first, size_t end) {
    r->device = r->granule[first].memory->device;
    protect(r, first, end, PROT_READ | PROT_WRITE);
    check_memory_opened(r->base + first * GRANULE, (end - first) * GRANULE, true);
    for (size_t g = first; g < end; g++) {
        if (!r->granule[g].accessible && !(r->plain && g >= PLAIN_GARBAGE))
            memset(r->base + g * GRANULE, GARBAGE, GRANULE);
        r->granule[g].accessible = true;
    }
    if (opened[r->device] == 0) protect(r, first, end, PROT_NONE);
}

/* ---------------------------------------------------------------- the driver's virtual memory */

#define ENTER_DRIVER(call)                                                                                             \
    do {                                                                                                               \
        cudaError_t enter_ = runtime_enter(CALL_##call);                                                               \
        if (enter_ != cudaSuccess) return (CUresult)enter_;                                                            \
    } while (0)

static bool is_device_there(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 && location->id < runtime.devices;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option) {
    ENTER_DRIVER(cuMemGetAllocationGranularity);
    (void)option;
    if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || !is_device_there(&properties->location))
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = GRANULE;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
    ENTER_DRIVER(cuMemAddressReserve);
    if (bytes == 0 || bytes % GRANULE != 0 || alignment > GRANULE || wanted != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    range *r = range_create(bytes);
    if (!r) return CUDA_ERROR_OUT_OF_MEMORY;
    check_memory_made(r->base, bytes, CHECK_ADDRESSES);
    *address = (CUdeviceptr)r->base;
    return CUDA_SUCCESS;
}

/* After a fault of the device, functions that free something still free it, though they return the fault's error, so
 * that tests see that nothing was forgotten. */
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    CUresult error = (CUresult)runtime_enter(CALL_cuMemAddressFree), result = CUDA_ERROR_INVALID_VALUE;
    size_t first, end;
    pthread_mutex_lock(&runtime.lock);
    range *r = find_granules_locked(address, bytes, &first, &end);
    bool mapped = false;
    for (size_t g = 0; r && g < r->granules; g++) mapped = mapped || r->granule[g].memory;
    if (r && !mapped && first == 0 && end == r->granules) {
        range_destroy_locked(r);
        result = error;
    }
    pthread_mutex_unlock(&runtime.lock);
    return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
    ENTER_DRIVER(cuMemCreate);
    if (bytes == 0 || bytes % GRANULE != 0 || flags != 0 || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        !is_device_there(&properties->location))
        return CUDA_ERROR_INVALID_VALUE;
    physical *memory = physical_create(properties->location.id, bytes);
    if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    CUresult error = (CUresult)runtime_enter(CALL_cuMemRelease);
    physical *memory = (physical *)(uintptr_t)handle;
    pthread_mutex_lock(&runtime.lock);
    memory->released = true;
    physical_drop_locked(memory);
    pthread_mutex_unlock(&runtime.lock);
    return error;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    ENTER_DRIVER(cuMemMap);
    physical *memory = (physical *)(uintptr_t)handle;
    size_t first, end;
    if (offset != 0 || flags != 0 || bytes != memory->bytes) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&runtime.lock);
    range *r = find_granules_locked(address, bytes, &first, &end);
    bool vacant = r != NULL;
    for (size_t g = first; vacant && g < end; g++) vacant = !r->granule[g].memory;
    if (vacant) map_locked(r, first, end, memory);
    pthread_mutex_unlock(&runtime.lock);
    return vacant ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Refuses to unmap a part of a mapping: every mapping that the bytes touch must lie wholly within the bytes. */
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    CUresult error = (CUresult)runtime_enter(CALL_cuMemUnmap);
    size_t first, end;
    pthread_mutex_lock(&runtime.lock);
    range *r = find_granules_locked(address, bytes, &first, &end);
    bool whole = r != NULL;
    for (size_t g = first; whole && g < end; g++) whole = r->granule[g].memory != NULL;
    if (whole && first > 0) whole = r->granule[first - 1].memory != r->granule[first].memory;
    if (whole && end < r->granules) whole = r->granule[end - 1].memory != r->granule[end].memory;
    if (whole) unmap_locked(r, first, end);
    pthread_mutex_unlock(&runtime.lock);
    return whole ? error : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    ENTER_DRIVER(cuMemSetAccess);
    size_t first, end;
    if (count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE || !is_device_there(&access->location))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&runtime.lock);
    range *r = find_granules_locked(address, bytes, &first, &end);
    bool mapped = r != NULL; /* and belongs to that device: no other may access it here */
    for (size_t g = first; mapped && g < end; g++)
        mapped = r->granule[g].memory && r->granule[g].memory->device == access->location.id;
    if (mapped) make_accessible_locked(r, first, end);
    pthread_mutex_unlock(&runtime.lock);
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = cudaGetErrorName((cudaError_t)error);
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = cudaGetErrorString((cudaError_t)error);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *result) {
    static const struct {
        const char *symbol;
        void *function;
    } entries[] = {
        {"cuGetErrorName", (void *)cuGetErrorName},
        {"cuGetErrorString", (void *)cuGetErrorString},
        {"cuCtxGetCurrent", (void *)cuCtxGetCurrent},
        {"cuCtxPushCurrent", (void *)cuCtxPushCurrent},
        {"cuCtxPopCurrent", (void *)cuCtxPopCurrent},
        {"cuDevicePrimaryCtxRetain", (void *)cuDevicePrimaryCtxRetain},
        {"cuDevicePrimaryCtxRelease", (void *)cuDevicePrimaryCtxRelease},
        {"cuMemGetAllocationGranularity", (void *)cuMemGetAllocationGranularity},
        {"cuMemAddressReserve", (void *)cuMemAddressReserve},
        {"cuMemAddressFree", (void *)cuMemAddressFree},
        {"cuMemCreate", (void *)cuMemCreate},
        {"cuMemRelease", (void *)cuMemRelease},
        {"cuMemMap", (void *)cuMemMap},
        {"cuMemUnmap", (void *)cuMemUnmap},
        {"cuMemSetAccess", (void *)cuMemSetAccess},
    };
    ENTER(cudaGetDriverEntryPointByVersion);
    if (version > CUDART_VERSION || flags != cudaEnableDefault) return runtime_failed(cudaErrorInvalidValue);
    *result = cudaDriverEntryPointSymbolNotFound;
    *function = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].symbol, symbol) == 0) {
            *function = entries[i].function;
            *result = cudaDriverEntryPointSuccess;
        }
    return cudaSuccess;
}

/* ---------------------------------------------------------------- plain allocations */

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    ENTER(cudaMemGetInfo);
    const int device = runtime_device();
    pthread_mutex_lock(&runtime.lock);
    *free_bytes = free_bytes_locked(device);
    *total_bytes = runtime.total_bytes;
    pthread_mutex_unlock(&runtime.lock);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    ENTER_UNSAFE(cudaMalloc);
    if (bytes == 0) {
        *out = NULL;
        return cudaSuccess;
    }
    if (bytes > SIZE_MAX / 2) return runtime_failed(cudaErrorMemoryAllocation);
    const size_t asked = bytes;
    bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    physical *memory = physical_create(runtime_device(), bytes);
    range *r = memory ? range_create(bytes) : NULL;
    pthread_mutex_lock(&runtime.lock);
    if (memory) memory->released = true;
    if (r) {
        r->plain = true;
        r->asked = asked;
        map_locked(r, 0, r->granules, memory);
        make_accessible_locked(r, 0, r->granules);
    } else if (memory)
        physical_drop_locked(memory);
    pthread_mutex_unlock(&runtime.lock);
    if (!r) return runtime_failed(cudaErrorMemoryAllocation);
    check_memory_made(r->base, asked, CHECK_ALLOCATION);
    *out = r->base;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
    cudaError_t error = runtime_enter_unsafe(CALL_cudaFree);
    if (!memory || error == cudaErrorStreamCaptureUnsupported) return error;
    if (error == cudaSuccess && device_of(memory) >= 0) error = runtime_on(device_of(memory));
    pthread_mutex_lock(&runtime.lock);
    range *r = find_locked(memory);
    bool ours = r && r->plain && r->base == memory;
    if (ours) {
        unmap_locked(r, 0, r->granules);
        range_destroy_locked(r);
    }
    pthread_mutex_unlock(&runtime.lock);
    return ours ? error : runtime_failed(cudaErrorInvalidValue);
}

/* Pinned memory lies behind a page that begins with this. As with CUDA, the memory is aligned to pages only if it is a
 * page or more. */
typedef struct pinned {
    struct pinned *next;
    char *memory;
    size_t bytes;
} pinned;

static pinned *all_pinned; /* under runtime.lock */

enum { PAGE = 4096, SMALL_ALIGNMENT = 512 };

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags) {
    ENTER_UNSAFE(cudaHostAlloc);
    (void)flags;
    if (bytes == 0 || bytes > SIZE_MAX / 2) return runtime_failed(cudaErrorMemoryAllocation);
    size_t before = bytes < PAGE ? PAGE + SMALL_ALIGNMENT : PAGE;
    char *memory = mmap(NULL, before + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return runtime_failed(cudaErrorMemoryAllocation);
    memset(memory + before, GARBAGE, bytes);
    pinned *p = (pinned *)(void *)memory;
    p->memory = memory + before;
    p->bytes = bytes;
    pthread_mutex_lock(&runtime.lock);
    p->next = all_pinned;
    all_pinned = p;
    runtime.alive.pinned_bytes += bytes;
    pthread_mutex_unlock(&runtime.lock);
    check_memory_made(memory + before, bytes, CHECK_PINNED);
    *out = memory + before;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory) {
    cudaError_t error = runtime_enter_unsafe(CALL_cudaFreeHost);
    if (!memory || error == cudaErrorStreamCaptureUnsupported) return error;
    size_t before = (uintptr_t)memory % PAGE == 0 ? PAGE : PAGE + SMALL_ALIGNMENT;
    char *start = (char *)memory - before;
    pinned *p = (pinned *)(void *)start, **at = &all_pinned;
    size_t bytes = p->bytes;
    pthread_mutex_lock(&runtime.lock);
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    runtime.alive.pinned_bytes -= bytes;
    pthread_mutex_unlock(&runtime.lock);
    check_memory_gone(memory);
    munmap(start, before + bytes);
    return error;
}

/* Registered ranges of the process's own memory. */
enum { REGISTERED_MOST = 64 };
static struct {
    void *memory;
    size_t bytes;
} registered[REGISTERED_MOST];
static size_t registration_most_bytes; /* 0: 512 GiB - 1 */

void cuda_emulation_set_registration(size_t most_bytes) {
    pthread_mutex_lock(&runtime.lock);
    registration_most_bytes = most_bytes;
    pthread_mutex_unlock(&runtime.lock);
}

/* Whether the range begins in one registration and ends beyond it. */
static bool leaves_registration_locked(const void *memory, size_t bytes) {
    for (int i = 0; i < REGISTERED_MOST; i++) {
        const uintptr_t at = (uintptr_t)memory - (uintptr_t)registered[i].memory;
        if (registered[i].memory && at < registered[i].bytes) return registered[i].bytes - at < bytes;
    }
    return false;
}

/* CUDA copies to and from host memory of one registration, or of none. */
static bool leaves_registration(const void *memory, size_t bytes) {
    pthread_mutex_lock(&runtime.lock);
    const bool leaves = leaves_registration_locked(memory, bytes);
    pthread_mutex_unlock(&runtime.lock);
    return leaves;
}

/* Registers a range; bytes 0: forgets it. Under runtime.lock. */
static cudaError_t register_range(void *memory, size_t bytes) {
    void *wanted = bytes > 0 ? NULL : memory;
    for (int i = 0; i < REGISTERED_MOST; i++)
        if (bytes > 0 && registered[i].memory == memory) return cudaErrorInvalidValue;
    for (int i = 0; i < REGISTERED_MOST; i++) {
        if (registered[i].memory != wanted) continue;
        if (bytes > 0)
            check_memory_made(memory, bytes, CHECK_PINNED);
        else
            check_memory_gone(memory);
        runtime.alive.pinned_bytes += bytes - registered[i].bytes;
        registered[i].memory = bytes > 0 ? memory : NULL;
        registered[i].bytes = bytes;
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned int flags) {
    ENTER_UNSAFE(cudaHostRegister);
    (void)flags;
    if (!memory || bytes == 0 || (uintptr_t)memory % PAGE != 0) return runtime_failed(cudaErrorInvalidValue);
    pthread_mutex_lock(&runtime.lock);
    const size_t most = registration_most_bytes > 0 ? registration_most_bytes : ((size_t)512 << 30) - 1;
    cudaError_t error = bytes > most ? cudaErrorMemoryAllocation : register_range(memory, bytes);
    pthread_mutex_unlock(&runtime.lock);
    return runtime_failed(error);
}

cudaError_t cudaHostUnregister(void *memory) {
    cudaError_t error = runtime_enter_unsafe(CALL_cudaHostUnregister);
    if (!memory || error == cudaErrorStreamCaptureUnsupported) return error;
    pthread_mutex_lock(&runtime.lock);
    cudaError_t found = register_range(memory, 0);
    pthread_mutex_unlock(&runtime.lock);
    return error != cudaSuccess ? error : runtime_failed(found);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int flags) {
    ENTER(cudaHostGetDevicePointer);
    if (!host || flags != 0) return runtime_failed(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

/* ---------------------------------------------------------------- what a kernel may access */

/* The part of a range around the byte that is accessible; 0 bytes: the byte is not. */
static size_t accessible_part(const range *r, const char *at, const void **base_out) {
    size_t granule = (size_t)(at - r->base) / GRANULE, first = granule, end = granule;
    if (r->plain) {
        *base_out = r->base;
        return at < r->base + r->asked ? r->asked : 0;
    }
    while (end < r->granules && r->granule[end].accessible) end++;
    while (first > 0 && r->granule[first - 1].accessible) first--;
    *base_out = r->base + first * GRANULE;
    return end > granule ? (end - first) * GRANULE : 0;
}

size_t cuda_emulation_memory_at(const void *byte, const void **base_out) {
    const char *at = byte;
    size_t bytes = 0;
    pthread_mutex_lock(&runtime.lock);
    const range *r = find_locked(at);
    if (r) bytes = accessible_part(r, at, base_out);
    for (const pinned *p = all_pinned; p && !r; p = p->next)
        if (at >= p->memory && at < p->memory + p->bytes) {
            *base_out = p->memory;
            bytes = p->bytes;
        }
    for (int i = 0; i < REGISTERED_MOST && !r; i++) {
        const char *base = registered[i].memory;
        if (base && at >= base && at < base + registered[i].bytes) {
            *base_out = base;
            bytes = registered[i].bytes;
        }
    }
    pthread_mutex_unlock(&runtime.lock);
    return bytes;
}

/* ---------------------------------------------------------------- copies and fills */

typedef struct copy {
    char *dst;
    const char *src;
    size_t dst_pitch, src_pitch, width, height;
} copy;

/* MM_EMULATED_CUDA_OUT_MS in the environment: how long each copy from device to host memory takes at the least. */
static void delay(const copy *c) {
    const char *text = getenv("MM_EMULATED_CUDA_OUT_MS");
    const struct timespec time = {.tv_nsec = text ? atoi(text) * 1000000L : 0};
    if (text && device_of(c->src) >= 0 && device_of(c->dst) < 0) nanosleep(&time, NULL);
}

static void copy_run(void *arg) {
    const copy *c = arg;
    delay(c);
    for (size_t row = 0; row < c->height; row++) {
        memcpy(c->dst + row * c->dst_pitch, c->src + row * c->src_pitch, c->width);
        check_memory_written(c->dst + row * c->dst_pitch, c->width);
    }
}

static cudaError_t check_place(const void *memory) {
    const int device = device_of(memory);
    return device < 0 ? cudaSuccess : runtime_on(device);
}

static bool kind_fits(const void *dst, const void *src, enum cudaMemcpyKind kind) {
    if (kind == cudaMemcpyDefault) return true;
    bool to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return (device_of(dst) >= 0) == to && (device_of(src) >= 0) == from;
}

static cudaError_t enqueue(cudaStream_t stream, void (*run)(void *arg), const void *arg, size_t arg_bytes) {
    void *copied = malloc(arg_bytes);
    if (!copied) return runtime_failed(cudaErrorMemoryAllocation);
    memcpy(copied, arg, arg_bytes);
    task *t = task_create(TASK_RUN, run, copied, free);
    if (!t) return runtime_failed(cudaErrorMemoryAllocation);
    pthread_mutex_lock(&runtime.lock);
    cudaError_t error = stream_append_locked(stream, t);
    pthread_mutex_unlock(&runtime.lock);
    return runtime_failed(error);
}

static cudaError_t enqueue_copy(const copy *c, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (!stream || c->width > c->dst_pitch || c->width > c->src_pitch) return runtime_failed(cudaErrorInvalidValue);
    ON(stream->device);
    if (c->width == 0 || c->height == 0) return cudaSuccess;
    if (!kind_fits(c->dst, c->src, kind)) return runtime_failed(cudaErrorInvalidValue);
    cudaError_t error = check_place(c->dst);
    if (error == cudaSuccess) error = check_place(c->src);
    if (error != cudaSuccess) return error;
    if (leaves_registration(c->dst, c->dst_pitch * (c->height - 1) + c->width) ||
        leaves_registration(c->src, c->src_pitch * (c->height - 1) + c->width))
        return runtime_failed(cudaErrorInvalidValue);
    return enqueue(stream, copy_run, c, sizeof *c);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER(cudaMemcpyAsync);
    return enqueue_copy(&(copy){dst, src, bytes, bytes, bytes, 1}, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER(cudaMemcpy2DAsync);
    return enqueue_copy(&(copy){dst, src, dst_pitch, src_pitch, width, height}, kind, stream);
}

typedef struct fill {
    void *dst;
    size_t bytes;
    int value;
} fill;

static void fill_run(void *arg) {
    const fill *f = arg;
    memset(f->dst, f->value, f->bytes);
    check_memory_written(f->dst, f->bytes);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    ENTER(cudaMemsetAsync);
    if (!stream) return runtime_failed(cudaErrorInvalidValue);
    ON(stream->device);
    if (bytes == 0) return cudaSuccess;
    cudaError_t error = check_place(memory);
    if (error != cudaSuccess) return error;
    return enqueue(stream, fill_run, &(fill){memory, bytes, value}, sizeof(fill));
}

/* The fill is done when this returns. */
cudaError_t cudaMemset(void *memory, int value, size_t bytes) {
    ENTER_UNSAFE(cudaMemset);
    const int device = device_of(memory);
    if (device < 0) return runtime_failed(cudaErrorInvalidValue);
    ON(device);
    pthread_mutex_lock(&runtime.lock);
    memory_open_locked(device);
    memset(memory, value, bytes);
    check_memory_written(memory, bytes);
    memory_close_locked(device);
    pthread_mutex_unlock(&runtime.lock);
    return cudaSuccess;
}

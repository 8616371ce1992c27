/* SPDX-License-Identifier: MIT */
/* Pinned memory. cudaHostAlloc takes small pages and clears them in one thread: about a second for 1.5 GiB. So large
 * blocks are mapped here, in huge pages that several threads touch, and registered with CUDA. Small blocks, and large
 * ones that CUDA does not register, come from cudaHostAlloc.
 *
 * A block is registered in chunks: driver 580 does not register 512 GiB with one call (public issue 1234 of NVIDIA's
 * open-gpu-kernel-modules). Kernels may use a block across chunks, but CUDA refuses a copy whose host memory lies in
 * two registrations. So cuda_work.c cuts copies where a chunk ends (cuda_pinned_run). */
#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mm/core/size.h"
#include "mm/device/cuda/cuda_internal.h"

/* Pages are x86-64's. Chosen: blocks from LARGE_BYTES on are mapped here; up to TOUCHERS threads touch them, one more
 * for each TOUCHER_BYTES. `mm device` measures the result. */
enum { PAGE_BYTES = 4096, HUGE_PAGE_BYTES = 2 << 20, LARGE_BYTES = 16 << 20, TOUCHERS = 8, TOUCHER_BYTES = 64 << 20 };

struct cuda_pinned {
    cuda_pinned *next;
    void *memory;
    void *given;         /* the allocation; `memory` begins at a page of it */
    size_t bytes;        /* of `memory` */
    size_t mapped_bytes; /* size of `given` if it is mapped here and registered; 0: it is from cudaHostAlloc */
    size_t chunk_bytes;  /* each registration but the last has so many; 0: it is from cudaHostAlloc */
    bool own;            /* for the device's own slots */
};

static uintptr_t round_up(uintptr_t value, uintptr_t to) { return (value + to - 1) / to * to; }

/* ---------------------------------------------------------------- mapped here */

/* A process that touches more memory than there is gets killed, while cudaHostAlloc fails. So a block that takes nearly
 * all memory is left to cudaHostAlloc. An eighth of the memory stays free (chosen), for what other programs take
 * meanwhile. */
static bool has_room(int64_t bytes) {
    mm_host_memory memory;
    mm_host_memory_get(&memory);
    return bytes <= memory.free_bytes - memory.free_bytes / 8;
}

typedef struct touching {
    volatile char *from;
    size_t bytes;
} touching;

static void *touch(void *arg) {
    const touching *t = arg;
    for (size_t i = 0; i < t->bytes; i += PAGE_BYTES) t->from[i] = 0;
    return NULL;
}

static int touchers(size_t bytes) {
    cpu_set_t cpus;
    size_t most = 1 + bytes / TOUCHER_BYTES;
    if (most > TOUCHERS) most = TOUCHERS;
    size_t here = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? (size_t)CPU_COUNT(&cpus) : 1;
    return here > 1 ? (int)(most < here ? most : here) : 1;
}

static void touch_all(char *memory, size_t bytes) {
    pthread_t thread[TOUCHERS];
    touching part[TOUCHERS];
    bool started[TOUCHERS];
    int n = touchers(bytes);
    size_t each = round_up(bytes / (size_t)n + 1, HUGE_PAGE_BYTES);
    for (int i = 0; i < n; i++) {
        size_t begin = each * (size_t)i < bytes ? each * (size_t)i : bytes;
        part[i] = (touching){memory + begin, bytes - begin < each ? bytes - begin : each};
        started[i] = i > 0 && pthread_create(&thread[i], NULL, touch, &part[i]) == 0;
    }
    for (int i = 0; i < n; i++)
        if (!started[i]) touch(&part[i]);
    for (int i = 0; i < n; i++)
        if (started[i]) pthread_join(thread[i], NULL);
}

static size_t lesser(size_t a, size_t b) { return a < b ? a : b; }

/* Ends the registrations of the first `bytes` bytes. */
static void unregister(char *memory, size_t bytes, size_t chunk_bytes) {
    for (size_t at = 0; at < bytes; at += chunk_bytes) cudaHostUnregister(memory + at);
}

/* False: nothing is registered. */
static bool register_chunks(char *memory, size_t bytes, size_t chunk_bytes) {
    const unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
    for (size_t at = 0; at < bytes; at += chunk_bytes) {
        if (cudaHostRegister(memory + at, lesser(chunk_bytes, bytes - at), flags) == cudaSuccess) continue;
        cudaGetLastError();
        unregister(memory, at, chunk_bytes);
        return false;
    }
    return true;
}

/* False: the block could not be mapped or registered, and the caller uses cudaHostAlloc instead. The next block is
 * tried again: it may be smaller, or meet a system with more room. */
static bool map_and_register(cuda_device *device, size_t bytes, cuda_pinned *pinned) {
    if (!device->can_register || bytes < LARGE_BYTES || !has_room((int64_t)bytes)) return false;
    size_t mapped = round_up(bytes, PAGE_BYTES) + HUGE_PAGE_BYTES;
    void *given = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (given == MAP_FAILED) return false;
    char *memory = (char *)round_up((uintptr_t)given, HUGE_PAGE_BYTES);
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* a refusal leaves small pages, which work too */
    touch_all(memory, bytes);
    const size_t chunk_bytes = device->register_most_bytes;
    const bool registered = register_chunks(memory, round_up(bytes, PAGE_BYTES), chunk_bytes);
    atomic_store(&device->registers, registered);
    if (!registered) {
        munmap(given, mapped);
        return false;
    }
    /* fork would copy pinned pages for the child at once, and the child uses none of them. */
    (void)madvise(memory, bytes, MADV_DONTFORK);
    *pinned = (cuda_pinned){.memory = memory, .given = given, .mapped_bytes = mapped, .chunk_bytes = chunk_bytes};
    return true;
}

/* ---------------------------------------------------------------- CUDA's */

static mm_status alloc(size_t bytes, cuda_pinned *pinned) {
    unsigned flags = cudaHostAllocPortable | cudaHostAllocMapped;
    CUDA_TRY(cudaHostAlloc(&pinned->given, bytes, flags), "cudaHostAlloc");
    pinned->memory = pinned->given;
    if ((uintptr_t)pinned->given % PAGE_BYTES != 0) {
        /* cudaHostAlloc may cut small blocks from a page that they share. */
        CUDA_TRY(cudaFreeHost(pinned->given), "cudaFreeHost");
        CUDA_TRY(cudaHostAlloc(&pinned->given, bytes + PAGE_BYTES, flags), "cudaHostAlloc");
        pinned->memory = (void *)round_up((uintptr_t)pinned->given, PAGE_BYTES);
    }
    memset(pinned->memory, 0, bytes);
    return MM_OK;
}

/* ---------------------------------------------------------------- either */

mm_status cuda_pinned_reserve(cuda_device *device, int64_t bytes, bool own, void **memory_out) {
    cuda_pinned *pinned = calloc(1, sizeof *pinned);
    if (pinned == NULL) return mm_fail(MM_ERR_NOMEM, "cuda: no memory for a reservation");
    mm_status status = map_and_register(device, (size_t)bytes, pinned) ? MM_OK : alloc((size_t)bytes, pinned);
    if (status != MM_OK) {
        free(pinned);
        char asked[32];
        return mm_fail_in(status, "%s of pinned memory asked", mm_size_format(bytes, asked, sizeof asked));
    }
    pinned->own = own;
    pinned->bytes = (size_t)bytes;
    pthread_mutex_lock(&device->lock);
    pinned->next = device->pinned;
    device->pinned = pinned;
    pthread_mutex_unlock(&device->lock);
    if (pinned->chunk_bytes > 0 && pinned->bytes > pinned->chunk_bytes) atomic_fetch_add(&device->chunked, 1);
    *memory_out = pinned->memory;
    return MM_OK;
}

void cuda_pinned_release(cuda_device *device, const void *memory) {
    pthread_mutex_lock(&device->lock);
    cuda_pinned **at = &device->pinned;
    while ((*at)->memory != memory) at = &(*at)->next;
    cuda_pinned *pinned = *at;
    *at = pinned->next;
    pthread_mutex_unlock(&device->lock);
    if (pinned->chunk_bytes > 0 && pinned->bytes > pinned->chunk_bytes) atomic_fetch_sub(&device->chunked, 1);
    if (pinned->mapped_bytes > 0) {
        unregister(pinned->memory, round_up(pinned->bytes, PAGE_BYTES), pinned->chunk_bytes);
        munmap(pinned->given, pinned->mapped_bytes);
    } else {
        cudaFreeHost(pinned->given);
    }
    free(pinned);
}

int64_t cuda_pinned_run(cuda_device *device, const void *memory, int64_t bytes) {
    int64_t run = bytes;
    if (atomic_load(&device->chunked) == 0) return run;
    pthread_mutex_lock(&device->lock);
    for (const cuda_pinned *p = device->pinned; p != NULL; p = p->next) {
        const uintptr_t at = (uintptr_t)memory - (uintptr_t)p->memory; /* huge if `memory` is before the block */
        if (p->chunk_bytes == 0 || at >= p->bytes) continue;
        const int64_t left = (int64_t)(p->chunk_bytes - at % p->chunk_bytes);
        if (left < run) run = left;
    }
    pthread_mutex_unlock(&device->lock);
    return run;
}

void cuda_pinned_fini(cuda_device *device) {
    while (device->pinned != NULL) {
        assert(device->pinned->own);
        cuda_pinned_release(device, device->pinned->memory);
    }
}

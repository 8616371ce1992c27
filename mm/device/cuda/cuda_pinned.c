/* SPDX-License-Identifier: MIT */
/* Pinned memory. cudaHostAlloc takes small pages and clears them in one thread: about a second for 1.5 GiB. So large
 * blocks are mapped here, in huge pages that several threads touch, and registered with CUDA. Small blocks, and large
 * ones that CUDA does not register, come from cudaHostAlloc. */
#include <assert.h>
#include <sched.h>
#include <stdio.h>
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
    size_t mapped_bytes; /* size of `given` if it is mapped here and registered; 0: it is from cudaHostAlloc */
    bool own;            /* for the device's own slots */
};

static uintptr_t round_up(uintptr_t value, uintptr_t to) { return (value + to - 1) / to * to; }

/* ---------------------------------------------------------------- mapped here */

/* Finds a file's first line that begins with `key`, and returns the number after that; INT64_MAX if there is none. */
static int64_t read_number(const char *path, const char *key) {
    char line[128];
    long long value = INT64_MAX;
    size_t length = strlen(key);
    FILE *file = fopen(path, "r");
    while (file != NULL && value == INT64_MAX && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, length) == 0 && sscanf(line + length, "%lld", &value) != 1) value = INT64_MAX;
    if (file != NULL) fclose(file);
    return value;
}

/* The bytes left in a control group, at most `room`; `room` if there is no such group. */
static int64_t room_in_group(int64_t room, const char *limit_path, const char *used_path) {
    int64_t limit = read_number(limit_path, ""), used = read_number(used_path, "");
    return limit != INT64_MAX && limit - used < room ? limit - used : room;
}

/* A process that touches more memory than there is gets killed, while cudaHostAlloc fails. So a block that takes nearly
 * all memory is left to cudaHostAlloc. An eighth of the memory stays free (chosen), for what other programs take
 * meanwhile. */
static bool has_room(int64_t bytes) {
    int64_t free_kib = read_number("/proc/meminfo", "MemAvailable:");
    int64_t room = free_kib == INT64_MAX ? 0 : free_kib * 1024;
    room = room_in_group(room, "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current");
    room = room_in_group(room, "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                         "/sys/fs/cgroup/memory/memory.usage_in_bytes"); /* version 1 */
    return bytes <= room - room / 8;
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

/* False: the block could not be mapped or registered, and the caller uses cudaHostAlloc instead. */
static bool map_and_register(cuda_device *device, size_t bytes, cuda_pinned *pinned) {
    if (!atomic_load(&device->registers) || bytes < LARGE_BYTES || !has_room((int64_t)bytes)) return false;
    size_t mapped = round_up(bytes, PAGE_BYTES) + HUGE_PAGE_BYTES;
    void *given = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (given == MAP_FAILED) return false;
    char *memory = (char *)round_up((uintptr_t)given, HUGE_PAGE_BYTES);
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* a refusal leaves small pages, which work too */
    touch_all(memory, bytes);
    if (cudaHostRegister(memory, round_up(bytes, PAGE_BYTES), cudaHostRegisterPortable | cudaHostRegisterMapped) !=
        cudaSuccess) {
        cudaGetLastError();
        munmap(given, mapped);
        atomic_store(&device->registers, false);
        return false;
    }
    /* fork would copy pinned pages for the child at once, and the child uses none of them. */
    (void)madvise(memory, bytes, MADV_DONTFORK);
    *pinned = (cuda_pinned){.memory = memory, .given = given, .mapped_bytes = mapped};
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
    pthread_mutex_lock(&device->lock);
    pinned->next = device->pinned;
    device->pinned = pinned;
    pthread_mutex_unlock(&device->lock);
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
    if (pinned->mapped_bytes > 0) {
        cudaHostUnregister(pinned->memory);
        munmap(pinned->given, pinned->mapped_bytes);
    } else {
        cudaFreeHost(pinned->given);
    }
    free(pinned);
}

void cuda_pinned_fini(cuda_device *device) {
    while (device->pinned != NULL) {
        assert(device->pinned->own);
        cuda_pinned_release(device, device->pinned->memory);
    }
}

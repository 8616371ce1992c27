/* SPDX-License-Identifier: MIT */
/* The host device: its table of functions, and memory. */
#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mm/core/size.h"
#include "mm/core/system_file.h"
#include "mm/device/host/host_internal.h"

/* Bytes that malloc has handed out in this process. */
static int64_t heap_bytes(void) {
    struct mallinfo2 info = mallinfo2();
    return (int64_t)(info.uordblks + info.hblkhd);
}

mm_status mm_device_host_create(const mm_device_config *config, mm_device **device_out) {
    host_device *device = calloc(1, sizeof *device);
    if (device == NULL) return mm_fail(MM_ERR_NOMEM, "host device: no memory for its %zu bytes", sizeof *device);
    device->base = (mm_device){.ops = &mm_device_host_ops, .name = "host"};
    if (config != NULL) device->config = *config;
    pthread_mutex_init(&device->lock, NULL);
    mm_status status = MM_OK;
    if (device->config.codec_threads > 1)
        status = mm_host_pool_create(device->config.codec_threads, "mm-codec", &device->codec_pool);
    if (status != MM_OK) {
        pthread_mutex_destroy(&device->lock);
        free(device);
        return status;
    }
    device->heap_bytes = heap_bytes();
    *device_out = &device->base;
    return MM_OK;
}

static void host_destroy(mm_device *base) {
    host_device *device = (host_device *)base;
    assert(atomic_load(&device->alive) == 0);
    assert(device->reserved_bytes[MM_MEMORY_DEVICE] == 0 && device->reserved_bytes[MM_MEMORY_PINNED] == 0);
    mm_host_pool_destroy(device->codec_pool);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

/* ---------------------------------------------------------------- memory */

/* The caller has the lock. How much of the reservations is touched, and so is missing in memory->free_bytes, is not
 * known; so each reservation by itself is within what is free, and all together are within the total. */
static int64_t free_bytes(const host_device *device, const mm_host_memory *memory) {
    const int64_t left =
        memory->total_bytes - device->reserved_bytes[MM_MEMORY_DEVICE] - device->reserved_bytes[MM_MEMORY_PINNED];
    return left < 0 ? 0 : left < memory->free_bytes ? left : memory->free_bytes;
}

/* mmap grants more than there is, and a process that touches it is killed. A device refuses instead: reservations are
 * counted before they are mapped. */
static mm_status account_take(host_device *device, mm_memory_kind kind, int64_t bytes) {
    mm_host_memory memory;
    mm_host_memory_get(&memory);
    pthread_mutex_lock(&device->lock);
    int64_t left = free_bytes(device, &memory);
    if (bytes <= left) device->reserved_bytes[kind] += bytes;
    pthread_mutex_unlock(&device->lock);
    if (bytes <= left) return MM_OK;
    return mm_fail(MM_ERR_NOMEM, "host device: cannot reserve %s of %s memory: of the %s's %s, %s are free",
                   MM_SIZE_TEXT(bytes), kind == MM_MEMORY_DEVICE ? "device" : "pinned",
                   memory.total_bytes < memory.machine_bytes ? "control group" : "machine",
                   MM_SIZE_TEXT(memory.total_bytes), MM_SIZE_TEXT(left));
}

static void account_give(host_device *device, mm_memory_kind kind, int64_t bytes) {
    pthread_mutex_lock(&device->lock);
    assert(bytes <= device->reserved_bytes[kind]);
    device->reserved_bytes[kind] -= bytes;
    pthread_mutex_unlock(&device->lock);
}

static mm_status host_reserve(mm_device *base, mm_memory_kind kind, int64_t bytes, void **memory_out) {
    host_device *device = (host_device *)base;
    MM_TRY(account_take(device, kind, bytes));
    /* The kernel rounds up to pages. */
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        int error = errno;
        account_give(device, kind, bytes);
        return mm_fail(MM_ERR_NOMEM, "host device: cannot map %s: %s", MM_SIZE_TEXT(bytes), strerror(error));
    }
    /* When other processes read this memory, the kernel walks through its pages; large pages make that walk short. If
     * they are refused, small pages work too. */
    if (kind == MM_MEMORY_PINNED) (void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
    *memory_out = memory;
    return MM_OK;
}

enum { PAGE = MM_PAGE_BYTES };

/* Whole pages inside the range go back to the system, and read as zero afterwards; the rest is set to zero. */
static void host_trim(mm_device *base, void *memory, int64_t bytes) {
    (void)base;
    uint8_t *end = (uint8_t *)memory + bytes;
    uint8_t *first = (uint8_t *)(((uintptr_t)memory + PAGE - 1) / PAGE * PAGE);
    uint8_t *last = (uint8_t *)((uintptr_t)end / PAGE * PAGE);
    if (first >= last) {
        memset(memory, 0, (size_t)bytes);
        return;
    }
    madvise(first, (size_t)(last - first), MADV_DONTNEED);
    memset(memory, 0, (size_t)(first - (uint8_t *)memory));
    memset(last, 0, (size_t)(end - last));
}

static mm_status host_protect(mm_device *base, void *memory, int64_t bytes, mm_permit permit) {
    static const int modes[] = {
        [MM_PERMIT_NONE] = PROT_NONE, [MM_PERMIT_READ] = PROT_READ, [MM_PERMIT_ALL] = PROT_READ | PROT_WRITE};
    (void)base;
    if (mprotect(memory, (size_t)bytes, modes[permit]) == 0) return MM_OK;
    return mm_fail(MM_ERR_DEVICE, "host device: cannot protect %s: %s", MM_SIZE_TEXT(bytes), strerror(errno));
}

/* Sets bit 0 of in_memory[i] if page i is in memory; for all pages if the system does not say. */
static void look_for_pages(uintptr_t page, size_t pages, unsigned char *in_memory) {
    if (mincore((void *)page, pages * PAGE, in_memory) != 0) memset(in_memory, 1, pages);
}

static bool host_next_written(mm_device *base, const void *memory, int64_t bytes, int64_t *at, int64_t *end_out) {
    (void)base;
    enum { PAGES = 4096 }; /* asked for with one call; chosen: in_memory takes as much of the stack as a page */
    unsigned char in_memory[PAGES];
    const uintptr_t begin = (uintptr_t)memory, end = begin + (uintptr_t)bytes;
    uintptr_t first = 0; /* first page of the range that is found; 0: none yet */
    for (uintptr_t part = (begin + (uintptr_t)*at) / PAGE * PAGE; part < end; part += (uintptr_t)PAGES * PAGE) {
        size_t pages = (end - part + PAGE - 1) / PAGE < PAGES ? (end - part + PAGE - 1) / PAGE : PAGES;
        look_for_pages(part, pages, in_memory);
        for (size_t i = 0; i < pages; i++) {
            uintptr_t page = part + i * PAGE;
            bool in = in_memory[i] & 1;
            if (first == 0 && in) {
                first = page;
                if (page > begin + (uintptr_t)*at) *at = (int64_t)(page - begin);
            } else if (first != 0 && !in) {
                *end_out = (int64_t)(page - begin);
                return true;
            }
        }
    }
    *end_out = bytes;
    return first != 0;
}

static void host_release(mm_device *base, mm_memory_kind kind, void *memory, int64_t bytes) {
    munmap(memory, (size_t)bytes);
    account_give((host_device *)base, kind, bytes);
}

static void host_memory_info(mm_device *base, mm_memory_info *info_out) {
    host_device *device = (host_device *)base;
    mm_host_memory memory;
    mm_host_memory_get(&memory);
    pthread_mutex_lock(&device->lock);
    *info_out = (mm_memory_info){
        .free_bytes = free_bytes(device, &memory),
        .total_bytes = memory.total_bytes,
        .reserved_bytes = device->reserved_bytes[MM_MEMORY_DEVICE],
    };
    pthread_mutex_unlock(&device->lock);
}

/* Negative if other code of the process has freed memory that was allocated when the device was created. Includes the
 * device's own queues and events: some ten kilobytes a stream, growing with the longest queue. */
static int64_t host_outside_bytes(mm_device *base) { return heap_bytes() - ((host_device *)base)->heap_bytes; }

/* The model is the CPU's name from /proc/cpuinfo. */
static void host_describe(mm_device *base, mm_device_description *description_out) {
    static const int64_t memory_bytes_per_s = INT64_C(16000000000); /* chosen: about what one core reads and writes */
    int64_t out = ((host_device *)base)->config.link_out_bytes_per_s;
    int64_t in = ((host_device *)base)->config.link_in_bytes_per_s;
    mm_device_description description = {
        .model = "CPU", .processors = (int)sysconf(_SC_NPROCESSORS_ONLN), .pinned = "mapped"};
#ifdef _SC_LEVEL3_CACHE_SIZE
    long cache_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (cache_bytes > 0) description.cache_bytes = cache_bytes;
#endif
    char info[4096]; /* what it says of the first CPU */
    const char *model = mm_system_file_read("/proc/cpuinfo", info, sizeof info) ? strstr(info, "\nmodel name") : NULL;
    if (model != NULL) (void)sscanf(model, " model name : %127[^\n]", description.model);
    if (out > 0 && in > 0) { /* only with a simulated link: without one, the link is a memcpy, and no rates are given */
        description.memory_bytes_per_s = memory_bytes_per_s;
        description.link_bytes_per_s = out < in ? out : in;
    }
    *description_out = description;
}

/* Spins rather than sleeps, because a cudaMalloc keeps the caller's thread busy too. */
static void host_charge_alloc(mm_device *base) {
    int64_t cost_ns = ((host_device *)base)->config.alloc_cost_ns;
    if (cost_ns == 0) return;
    int64_t end_ns = mm_now_ns() + cost_ns;
    while (mm_now_ns() < end_ns) continue;
}

static int host_count(void) { return 1; }

static mm_status host_create(int ordinal, const mm_device_config *config, mm_device **device_out) {
    (void)ordinal;
    return mm_device_host_create(config, device_out);
}

const mm_device_ops mm_device_host_ops = {
    .name = "host",
    .summary = "this machine's CPU: streams are threads, device memory is an arena, the link's bandwidth can be set",
    .cpu_reaches_memory = true,
    .calls_may_block = true,
    .always_timed = true,
    .count = host_count,
    .create = host_create,
    .destroy = host_destroy,
    .describe = host_describe,
    .reserve = host_reserve,
    .release = host_release,
    .trim = host_trim,
    .protect = host_protect,
    .next_written = host_next_written,
    .memory_info = host_memory_info,
    .outside_bytes = host_outside_bytes,
    .charge_alloc = host_charge_alloc,
    .stream_create = host_stream_create,
    .stream_destroy = host_stream_destroy,
    .stream_wait = host_event_wait,
    .stream_sync = host_stream_sync,
    .stream_reset = host_stream_reset,
    .stream_stats = host_stream_stats,
    .event_create = host_event_create,
    .event_destroy = host_event_destroy,
    .event_record = host_event_record,
    .event_sync = host_event_sync,
    .event_done = host_event_done,
    .event_ns = host_event_ns,
    .event_tasks = host_event_tasks,
    .copy_async = host_copy_async,
    .fill_async = host_fill_async,
    .checksum_async = host_checksum_async,
    .mark_async = host_mark_async,
    .find_mark_async = host_find_mark_async,
    .sums_async = host_sums_async,
    .call_async = host_call_async,
};

/* SPDX-License-Identifier: MIT */
/* Allocation at run time: a jemalloc arena whose extents come from a range of the pool. */
#include "buffers/heap_jemalloc.h"
#include "buffers/layout/heap_size.h"
#include "buffers/layout/ranges.h"
#include "buffers/pool.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE = 4096, HEAP_ALIGN = 256, LARGE = 16384 /* smallest size that jemalloc gives an extent of its own */ };

extern const char *const je_malloc_conf_2_conf_harder;
const char *const je_malloc_conf_2_conf_harder = MM_JEMALLOC_CONF;

struct mm_heap {
    extent_hooks_t hooks; /* must be first: the hooks cast its address to mm_heap */
    mm_device *device;
    int64_t bytes;
    unsigned arena;
    atomic_int_fast64_t used, allocs;
    pthread_mutex_t lock; /* guards ranges and extents; innermost: taken under jemalloc's locks */
    mm_ranges ranges;     /* free addresses; room for extents + 1 spans is reserved, so mm_ranges_give cannot fail */
    size_t extents;
};

static void *extent_alloc(extent_hooks_t *hooks, void *at, size_t bytes, size_t align, bool *zero, bool *commit,
                          unsigned arena) {
    (void)arena;
    mm_heap *heap = (mm_heap *)hooks;
    int64_t address = -1;
    if (at || *zero) return NULL; /* the heap never asks for an extent at a given address, nor for a zeroed one */
    pthread_mutex_lock(&heap->lock);
    if (mm_ranges_reserve(&heap->ranges, heap->extents + 2) == MM_OK) {
        address = mm_ranges_take(&heap->ranges, (int64_t)bytes, (int64_t)align, MM_FIT_CLOSEST);
    }
    if (address >= 0) heap->extents++;
    pthread_mutex_unlock(&heap->lock);
    if (address < 0) return NULL;
    *commit = true;
    return (void *)(uintptr_t)address;
}

static bool extent_dalloc(extent_hooks_t *hooks, void *extent, size_t bytes, bool committed, unsigned arena) {
    (void)committed, (void)arena;
    mm_heap *heap = (mm_heap *)hooks;
    pthread_mutex_lock(&heap->lock);
    mm_ranges_give(&heap->ranges, (int64_t)(uintptr_t)extent, (int64_t)bytes);
    heap->extents--;
    pthread_mutex_unlock(&heap->lock);
    return false;
}

static bool extent_split(extent_hooks_t *hooks, void *extent, size_t bytes, size_t low, size_t high, bool committed,
                         unsigned arena) {
    (void)extent, (void)bytes, (void)low, (void)high, (void)committed, (void)arena;
    mm_heap *heap = (mm_heap *)hooks;
    pthread_mutex_lock(&heap->lock);
    bool refused = mm_ranges_reserve(&heap->ranges, heap->extents + 2) != MM_OK;
    if (!refused) heap->extents++;
    pthread_mutex_unlock(&heap->lock);
    return refused;
}

static bool extent_merge(extent_hooks_t *hooks, void *low, size_t low_bytes, void *high, size_t high_bytes,
                         bool committed, unsigned arena) {
    (void)low, (void)low_bytes, (void)high, (void)high_bytes, (void)committed, (void)arena;
    mm_heap *heap = (mm_heap *)hooks;
    pthread_mutex_lock(&heap->lock);
    heap->extents--;
    pthread_mutex_unlock(&heap->lock);
    return false;
}

static mm_status arena_create(mm_heap *heap) {
    mm_jemalloc_arena_config config = {.extent_hooks = &heap->hooks, .metadata_use_hooks = false};
    size_t length = sizeof heap->arena;
    int error = je_mallctl("experimental.arenas_create_ext", &heap->arena, &length, &config, sizeof config);
    if (error) return mm_fail(MM_ERR_NOMEM, "jemalloc could not create an arena for a heap (error %d)", error);
    return MM_OK;
}

static void arena_command(unsigned arena, const char *command) {
    char name[64];
    snprintf(name, sizeof name, "arena.%u.%s", arena, command);
    int error = je_mallctl(name, NULL, NULL, NULL, 0);
    assert(error == 0);
    (void)error;
}

mm_status mm_heap_open(mm_pool *pool, int64_t offset, int64_t bytes, mm_heap **heap_out) {
    if (offset < 0 || offset % PAGE || bytes < 0 || bytes > mm_pool_bytes(pool) - offset) {
        return mm_fail(MM_ERR_INVALID,
                       "a heap must begin at a multiple of 4096 and lie within its pool: %" PRId64
                       " bytes at offset %" PRId64 ", pool of %" PRId64,
                       bytes, offset, mm_pool_bytes(pool));
    }
    mm_heap *heap = calloc(1, sizeof *heap);
    if (!heap) return mm_fail(MM_ERR_NOMEM, "no memory for a heap");
    heap->hooks =
        (extent_hooks_t){.alloc = extent_alloc, .dalloc = extent_dalloc, .split = extent_split, .merge = extent_merge};
    heap->device = mm_pool_device(pool);
    heap->bytes = bytes / PAGE * PAGE;
    int64_t begin = (int64_t)(uintptr_t)mm_pool_base(pool) + offset;
    mm_status status = mm_ranges_init(&heap->ranges, begin, begin + heap->bytes);
    if (status == MM_OK) status = arena_create(heap);
    if (status != MM_OK) {
        mm_ranges_fini(&heap->ranges);
        free(heap);
        return status;
    }
    pthread_mutex_init(&heap->lock, NULL);
    *heap_out = heap;
    return MM_OK;
}

void mm_heap_close(mm_heap *heap) {
    if (!heap) return;
    assert(atomic_load(&heap->used) == 0);
    arena_command(heap->arena, "destroy");
    pthread_mutex_destroy(&heap->lock);
    mm_ranges_fini(&heap->ranges);
    free(heap);
}

mm_status mm_heap_alloc(mm_heap *heap, int64_t bytes, void **memory_out) {
    if (bytes < 0) return mm_fail(MM_ERR_INVALID, "cannot allocate %" PRId64 " bytes", bytes);
    void *memory = NULL;
    if (bytes <= heap->bytes) {
        int flags = MALLOCX_ARENA(heap->arena) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(HEAP_ALIGN);
        size_t size = bytes > LARGE ? (size_t)bytes : LARGE;
        memory = je_mallocx(size, flags);
        if (!memory) { /* extents that another thread is freeing may not be back in the range yet */
            arena_command(heap->arena, "purge");
            memory = je_mallocx(size, flags);
        }
    }
    mm_device_charge_alloc(heap->device);
    if (!memory) {
        return mm_fail(MM_ERR_NOMEM, "no room for %" PRId64 " bytes in a heap of %" PRId64 " with %" PRId64 " in use",
                       bytes, heap->bytes, mm_heap_used(heap));
    }
    atomic_fetch_add(&heap->used, mm_heap_class_bytes(bytes));
    atomic_fetch_add(&heap->allocs, 1);
    *memory_out = memory;
    return MM_OK;
}

void mm_heap_free(mm_heap *heap, void *memory) {
    if (!memory) return;
    atomic_fetch_sub(&heap->used, mm_heap_class_bytes((int64_t)je_sallocx(memory, 0)));
    je_dallocx(memory, MALLOCX_TCACHE_NONE);
    mm_device_charge_alloc(heap->device);
}

int64_t mm_heap_used(const mm_heap *heap) { return atomic_load(&heap->used); }

int64_t mm_heap_allocs(const mm_heap *heap) { return atomic_load(&heap->allocs); }

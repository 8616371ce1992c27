/* The memory itself: one reservation of a device for the budget (and one of pinned memory, "staging"), and unplanned
 * allocation inside a part of it. */
#ifndef BUFFERS_POOL_H
#define BUFFERS_POOL_H

#include "mm/device/device.h"

typedef struct mm_pool mm_pool;
typedef struct mm_heap mm_heap;

/* Reserves `bytes` at once. bytes 0: an empty pool (base NULL). */
MM_CHECKED mm_status mm_pool_create(mm_device *device, mm_memory_kind kind, int64_t bytes, mm_pool **pool_out);
/* Every heap of it must be closed. NULL is legal. */
void mm_pool_destroy(mm_pool *pool);
/* Bytes from `offset` on are not needed for now, and must not be used; see mm_device_trim. */
void mm_pool_trim(mm_pool *pool, int64_t offset);
/* Makes the first `bytes` usable again; see mm_device_restore. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_pool_restore(mm_pool *pool, int64_t bytes);
void *mm_pool_base(const mm_pool *pool);
int64_t mm_pool_bytes(const mm_pool *pool);
mm_device *mm_pool_device(const mm_pool *pool);

/* The test pattern, by which touched bytes are found: fills the pool's first `bytes` with it, but for those that it has
 * filled already and that were not trimmed since. What lies beyond is left as it was reserved. Blocking; the CPU sees
 * the memory (host), or the pattern is copied in, in pieces. */
MM_CHECKED mm_status mm_pool_pattern_extend(mm_pool *pool, int64_t bytes);
/* Touched bytes within [offset, offset + bytes), in words of 4: those that differ from the pattern, and beyond it those
 * that are not zero. A word that was written with just what was there counts as untouched. Beyond the pattern nothing
 * is read but pages that are in memory (host; one that was swapped out is missed), or the device itself compares (a
 * checksum), and pieces that differ are copied out. Additive over ranges that are multiples of 4. */
MM_CHECKED mm_status mm_pool_pattern_count(const mm_pool *pool, int64_t offset, int64_t bytes, int64_t *touched_out);

/* Unplanned allocation in [offset, offset + bytes) of the pool (offset a multiple of 4096; ends are rounded inwards):
 * a jemalloc arena over that range, its metadata elsewhere. Works on memory that the CPU cannot touch. */
MM_CHECKED mm_status mm_heap_open(mm_pool *pool, int64_t offset, int64_t bytes, mm_heap **heap_out);
/* Everything must have been freed. NULL is legal. */
void mm_heap_close(mm_heap *heap);
/* 256-byte aligned. MM_ERR_NOMEM with what was asked and what is in use. Charges the device's allocation cost.
 * Thread-safe. */
MM_CHECKED mm_status mm_heap_alloc(mm_heap *heap, int64_t bytes, void **memory_out);
void mm_heap_free(mm_heap *heap, void *memory); /* NULL is legal; charges too */
int64_t mm_heap_used(const mm_heap *heap);      /* bytes handed out, rounded up to what they take */
int64_t mm_heap_allocs(const mm_heap *heap);    /* calls so far */

#endif

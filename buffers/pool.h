/* SPDX-License-Identifier: MIT */
/* Pool: one reservation of device memory, as large as the budget (a second pool has the pinned memory). Heap:
 * allocation at run time inside a part of a pool. One thread at a time may use a pool; the heap is thread-safe. */
#ifndef BUFFERS_POOL_H
#define BUFFERS_POOL_H

#include "mm/device/contract/device.h"

typedef struct mm_pool mm_pool;
typedef struct mm_heap mm_heap;

/* Reserves `bytes` at once; 0: an empty pool (base NULL). Borrows the device until destroyed. MM_ERR_NOMEM,
 * MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_pool_create(mm_device *device, mm_memory_kind kind, int64_t bytes, mm_pool **pool_out);
/* Reserves addresses of device memory, `bytes` (> 0) of them, without memory: as if all were trimmed. MM_ERR_NOMEM,
 * MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_pool_create_trimmed(mm_device *device, int64_t bytes, mm_pool **pool_out);
/* Releases the memory. Every heap in it must be closed first. NULL is legal. */
void mm_pool_destroy(mm_pool *pool);
/* Gives the memory from `offset` on back to the device; it must not be used until restored. See mm_device_trim. */
void mm_pool_trim(mm_pool *pool, int64_t offset);
/* Makes the first `bytes` usable again; see mm_device_restore. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_pool_restore(mm_pool *pool, int64_t bytes);
void *mm_pool_base(const mm_pool *pool);
int64_t mm_pool_bytes(const mm_pool *pool);
mm_device *mm_pool_device(const mm_pool *pool);

/* The test pattern finds bytes that were touched. Fills the pool's first `bytes` with it; bytes that have it already
 * are skipped, unless they were trimmed since. Bytes beyond stay zero, as reserved. Blocking. MM_ERR_INVALID (a range
 * outside the pool), MM_ERR_NOMEM, MM_ERR_DEVICE. */
MM_CHECKED mm_status mm_pool_pattern_extend(mm_pool *pool, int64_t bytes);
/* *touched_out: touched bytes within [offset, offset + bytes), in words of 4. A word is touched if it differs from the
 * pattern, or, beyond the pattern, from zero; a word that was overwritten with the same value is not seen. Counts of
 * adjoining ranges add up if the ranges are multiples of 4. Beyond the pattern, counting takes no memory: on the host
 * only pages in memory are read (a page that was swapped out is missed); on a GPU a checksum finds the pieces that are
 * not zero, and only these are copied. Blocking. Errors as above. */
MM_CHECKED mm_status mm_pool_pattern_count(const mm_pool *pool, int64_t offset, int64_t bytes, int64_t *touched_out);

/* A heap in [offset, offset + bytes) of the pool: a jemalloc arena over that range, with its metadata in the C heap, so
 * it works on memory that the CPU cannot reach. offset: a multiple of 4096; `bytes` is rounded down to such a multiple.
 * Borrows the pool until closed. MM_ERR_INVALID (a range outside the pool), MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_heap_open(mm_pool *pool, int64_t offset, int64_t bytes, mm_heap **heap_out);
/* All allocations must be freed first. NULL is legal. */
void mm_heap_close(mm_heap *heap);
/* Allocates `bytes`, aligned to 256. Charges the time of an allocation on the device (mm_device_charge_alloc).
 * MM_ERR_INVALID (bytes < 0), MM_ERR_NOMEM; the message has the bytes asked for and those in use. Thread-safe, as are
 * the functions below. */
MM_CHECKED mm_status mm_heap_alloc(mm_heap *heap, int64_t bytes, void **memory_out);
void mm_heap_free(mm_heap *heap, void *memory); /* NULL is legal; charges time, as mm_heap_alloc does */
int64_t mm_heap_used(const mm_heap *heap);      /* bytes that live allocations occupy (mm_heap_class_bytes) */
int64_t mm_heap_allocs(const mm_heap *heap);    /* number of allocations so far */

#endif

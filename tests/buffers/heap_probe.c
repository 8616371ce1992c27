/* SPDX-License-Identifier: MIT */
#include "buffers/pool.h"

/* Opens a heap, allocates and frees once, closes it. Returns 0 if all went well. */
MM_API int heap_probe(void);

int heap_probe(void) {
    enum { BYTES = 1 << 20 };
    mm_device *device = NULL;
    mm_pool *pool = NULL;
    mm_heap *heap = NULL;
    void *memory = NULL;
    mm_status status = mm_device_create("host", NULL, &device);
    if (status == MM_OK) status = mm_pool_create(device, MM_MEMORY_DEVICE, BYTES, &pool);
    if (status == MM_OK) status = mm_heap_open(pool, 0, BYTES, &heap);
    if (status == MM_OK) status = mm_heap_alloc(heap, BYTES / 2, &memory);
    if (heap) mm_heap_free(heap, memory);
    mm_heap_close(heap);
    mm_pool_destroy(pool);
    mm_device_destroy(device);
    return (int)status;
}

/* SPDX-License-Identifier: MIT */
/* The allocator of modnn's simulation. Free spans, and blocks in use, are two lists in order of addresses. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "policies/modnn/modnn.h"

mm_status mm_modnn_memory_init(modnn_memory *memory, int64_t bytes, mm_fit fit, int most) {
    *memory = (modnn_memory){.bytes = bytes, .fit = fit, .blocks = malloc(((size_t)most + 1) * sizeof *memory->blocks)};
    MM_TRY(mm_ranges_init(&memory->free, 0, bytes));
    MM_TRY(mm_ranges_reserve(&memory->free, (size_t)most + 2));
    return memory->blocks ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the blocks of a plan");
}

void mm_modnn_memory_fini(modnn_memory *memory) {
    mm_ranges_fini(&memory->free);
    free(memory->ready.runs);
    free(memory->blocks);
    *memory = (modnn_memory){0};
}

/* Index of the first block at or above the offset. */
static int find(const modnn_memory *memory, int64_t offset) {
    int low = 0, high = memory->n;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (memory->blocks[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t mm_modnn_memory_take(modnn_memory *memory, int64_t bytes, mm_tensor tensor) {
    const int64_t offset = mm_ranges_take(&memory->free, bytes, MM_ALIGN, memory->fit);
    if (offset < 0) return -1;
    const int at = find(memory, offset);
    memmove(&memory->blocks[at + 1], &memory->blocks[at], (size_t)(memory->n - at) * sizeof *memory->blocks);
    memory->blocks[at] = (modnn_block){offset, bytes, tensor};
    memory->n++;
    return offset;
}

modnn_block *mm_modnn_memory_at(const modnn_memory *memory, int64_t offset) {
    const int at = find(memory, offset);
    assert(at < memory->n && memory->blocks[at].offset == offset);
    return &memory->blocks[at];
}

void mm_modnn_memory_give(modnn_memory *memory, int64_t offset, int64_t ready_ns) {
    modnn_block *block = mm_modnn_memory_at(memory, offset);
    const int at = (int)(block - memory->blocks);
    mm_ranges_give(&memory->free, offset, block->bytes);
    if (!mm_interval_map_tag(&memory->ready, offset, offset + block->bytes, ready_ns)) memory->failed = true;
    memory->n--;
    memmove(block, block + 1, (size_t)(memory->n - at) * sizeof *block);
}

int64_t mm_modnn_memory_ready(const modnn_memory *memory, int64_t offset, int64_t bytes) {
    int64_t ready = 0;
    const mm_interval_map *runs = &memory->ready;
    for (size_t i = mm_interval_map_find(runs, offset); i < runs->n && runs->runs[i].begin < offset + bytes; i++)
        if (runs->runs[i].tag > ready) ready = runs->runs[i].tag;
    return ready;
}

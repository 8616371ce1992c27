/* SPDX-License-Identifier: MIT */
#include "tests/buffers/untouchable.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mm/device/contract/checksum.h"

enum { QUEUE = 64 };

typedef struct untouchable {
    mm_device base;
    uint8_t *memory, *window;
    int64_t bytes;
    atomic_int charges;
    int copies_out;
} untouchable;

typedef struct copy {
    void *dst;
    const void *src;
    int64_t bytes;
} copy;

typedef struct late_stream {
    mm_stream base;
    copy queue[QUEUE];
    int n;
} late_stream;

static void destroy(mm_device *device) { free(device); }

static mm_status reserve(mm_device *device, mm_memory_kind kind, int64_t bytes, void **memory_out) {
    untouchable *u = (untouchable *)device;
    if (kind == MM_MEMORY_PINNED) {
        *memory_out = aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096);
        return *memory_out ? MM_OK : mm_fail(MM_ERR_NOMEM, "no pinned memory");
    }
    int file = memfd_create("untouchable", 0);
    if (file < 0 || ftruncate(file, bytes) != 0) abort();
    u->memory = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_SHARED, file, 0);
    u->window = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (u->memory == MAP_FAILED || u->window == MAP_FAILED) abort();
    u->bytes = bytes;
    *memory_out = u->memory;
    return MM_OK;
}

static void release(mm_device *device, mm_memory_kind kind, void *memory, int64_t bytes) {
    untouchable *u = (untouchable *)device;
    if (kind == MM_MEMORY_PINNED) {
        free(memory);
        return;
    }
    munmap(u->memory, (size_t)bytes);
    munmap(u->window, (size_t)bytes);
}

static void charge_alloc(mm_device *device) { atomic_fetch_add(&((untouchable *)device)->charges, 1); }

static mm_status stream_create(mm_device *device, const char *name, int priority, mm_stream **stream_out) {
    (void)name, (void)priority;
    late_stream *stream = calloc(1, sizeof *stream);
    if (!stream) abort();
    stream->base.device = device;
    *stream_out = &stream->base;
    return MM_OK;
}

static mm_status stream_sync(mm_stream *stream) {
    late_stream *late = (late_stream *)stream;
    for (int i = 0; i < late->n; i++) {
        const copy *c = &late->queue[i];
        memcpy(untouchable_window(stream->device, c->dst), untouchable_window(stream->device, c->src),
               (size_t)c->bytes);
    }
    late->n = 0;
    return MM_OK;
}

static void stream_destroy(mm_stream *stream) {
    if (stream_sync(stream) != MM_OK) abort();
    free(stream);
}

static mm_status copy_async(mm_stream *stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind) {
    late_stream *late = (late_stream *)stream;
    if (late->n == QUEUE) MM_TRY(stream_sync(stream));
    late->queue[late->n++] = (copy){dst, src, bytes};
    ((untouchable *)stream->device)->copies_out += kind == MM_COPY_OUT;
    return MM_OK;
}

static mm_status checksum_async(mm_stream *stream, const void *src, int64_t bytes, uint64_t *sum_out) {
    const uint8_t *memory = untouchable_window(stream->device, src);
    uint64_t sum = 0;
    MM_TRY(stream_sync(stream));
    for (int l = 0; l < MM_CHECKSUM_LANES && l < mm_checksum_words(bytes); l++) {
        uint64_t lane = mm_checksum_lane_begin(l);
        for (int64_t i = l; i < mm_checksum_words(bytes); i += MM_CHECKSUM_LANES)
            lane = mm_checksum_mix(lane, mm_checksum_word(memory, bytes, i));
        sum += mm_checksum_lane_end(lane);
    }
    *sum_out = mm_checksum_end(sum, bytes);
    return MM_OK;
}

static const mm_device_ops untouchable_ops = {
    .name = "untouchable",
    .summary = "memory that faults",
    .cpu_reaches_memory = false,
    .destroy = destroy,
    .reserve = reserve,
    .release = release,
    .charge_alloc = charge_alloc,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .copy_async = copy_async,
    .checksum_async = checksum_async,
};

mm_device *untouchable_create(void) {
    untouchable *u = calloc(1, sizeof *u);
    if (!u) abort();
    u->base.ops = &untouchable_ops;
    return &u->base;
}

uint8_t *untouchable_window(mm_device *device, const void *memory) {
    const untouchable *u = (const untouchable *)device;
    const uint8_t *byte = memory;
    bool inside = byte >= u->memory && byte < u->memory + u->bytes;
    return inside ? u->window + (byte - u->memory) : (uint8_t *)(uintptr_t)memory;
}

int untouchable_charges(mm_device *device) { return atomic_load(&((untouchable *)device)->charges); }

int untouchable_copies_out(mm_device *device) { return ((untouchable *)device)->copies_out; }

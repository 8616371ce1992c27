/* SPDX-License-Identifier: MIT */
#include "buffers/pool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "mm/device/contract/checksum.h"

struct mm_pool {
    mm_device *device;
    mm_memory_kind kind;
    char *base;
    int64_t bytes;
    int64_t pattern_bytes; /* filled with the pattern; the bytes above are as they were reserved */
};

static mm_status create(mm_device *device, mm_memory_kind kind, int64_t bytes, bool trimmed, mm_pool **pool_out) {
    if (bytes < 0) return mm_fail(MM_ERR_INVALID, "cannot create a pool of %" PRId64 " bytes", bytes);
    mm_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return mm_fail(MM_ERR_NOMEM, "no memory for a pool");
    *pool = (mm_pool){.device = device, .kind = kind, .bytes = bytes};
    void *base = NULL;
    mm_status status = MM_OK;
    if (bytes > 0)
        status =
            trimmed ? mm_device_reserve_trimmed(device, bytes, &base) : mm_device_reserve(device, kind, bytes, &base);
    if (status != MM_OK) {
        free(pool);
        return status;
    }
    pool->base = base;
    *pool_out = pool;
    return MM_OK;
}

mm_status mm_pool_create(mm_device *device, mm_memory_kind kind, int64_t bytes, mm_pool **pool_out) {
    return create(device, kind, bytes, false, pool_out);
}

mm_status mm_pool_create_trimmed(mm_device *device, int64_t bytes, mm_pool **pool_out) {
    return create(device, MM_MEMORY_DEVICE, bytes, true, pool_out);
}

void mm_pool_destroy(mm_pool *pool) {
    if (!pool) return;
    if (pool->base) mm_device_release(pool->device, pool->kind, pool->base, pool->bytes);
    free(pool);
}

void mm_pool_trim(mm_pool *pool, int64_t offset) {
    if (offset >= pool->bytes) return;
    mm_device_trim(pool->device, (uint8_t *)pool->base + offset, pool->bytes - offset);
    if (offset < pool->pattern_bytes) pool->pattern_bytes = offset;
}

mm_status mm_pool_restore(mm_pool *pool, int64_t bytes) {
    return bytes > 0 ? mm_device_restore(pool->device, pool->base, bytes) : MM_OK;
}

void *mm_pool_base(const mm_pool *pool) { return pool->base; }

int64_t mm_pool_bytes(const mm_pool *pool) { return pool->bytes; }

mm_device *mm_pool_device(const mm_pool *pool) { return pool->device; }

/* ---------------------------------------------------------------- the pattern
 *
 *      pattern_bytes                                bytes
 *     |--- the pattern ---|--- zero, as reserved ---|
 *
 * The pattern is one 32-bit word, repeated from the pool's base on. Memory is compared block by block, because most
 * blocks are wholly untouched. BLOCK_BYTES: a page of most systems. PIECE_BYTES (chosen): the size of one copy to or
 * from a GPU, and so of the pinned buffer. Any multiple of WORD is right for both. */

enum { WORD = 4, BLOCK_BYTES = 4096, PIECE_BYTES = 8 << 20 };

static const uint8_t pattern_word[WORD] = {0xa7, 0xd1, 0x8f, 0x6b}; /* as an f32: 3.5e26, which no training computes */
static const uint8_t zero_word[WORD];

/* What untouched memory contains. */
typedef struct untouched {
    uint8_t bytes[BLOCK_BYTES + WORD]; /* one word more than a block: a block may begin inside a word */
    bool zero;                         /* true: zeros; false: the pattern */
} untouched;

static void untouched_init(untouched *u, bool zero) {
    const uint8_t *word = zero ? zero_word : pattern_word;
    for (size_t i = 0; i < sizeof u->bytes; i++) u->bytes[i] = word[i % WORD];
    u->zero = zero;
}

/* offset: where `memory` lies in the pool. */
static void fill_pattern(const untouched *u, uint8_t *memory, int64_t offset, int64_t bytes) {
    const uint8_t *pattern = u->bytes + offset % WORD;
    for (; bytes > BLOCK_BYTES; memory += BLOCK_BYTES, bytes -= BLOCK_BYTES) memcpy(memory, pattern, BLOCK_BYTES);
    memcpy(memory, pattern, (size_t)bytes);
}

/* Returns `bytes` (less than a word) if any of them differs, else 0. */
static int64_t count_part(const uint8_t *memory, const uint8_t *pattern, int64_t bytes) {
    return memcmp(memory, pattern, (size_t)bytes) != 0 ? bytes : 0;
}

/* Bytes of the words that differ. If an end of the range cuts a word, only its bytes inside count. */
static int64_t count_words(const untouched *u, const uint8_t *memory, int64_t offset, int64_t bytes) {
    const uint8_t *pattern = u->bytes + offset % WORD;
    int64_t begin = (WORD - offset % WORD) % WORD;
    if (begin > bytes) begin = bytes;
    int64_t end = begin + (bytes - begin) / WORD * WORD, words = 0;
    uint32_t expected;
    memcpy(&expected, u->bytes, WORD);
    for (int64_t i = begin; i < end; i += WORD) {
        uint32_t word;
        memcpy(&word, memory + i, WORD);
        words += word != expected;
    }
    return count_part(memory, pattern, begin) + WORD * words + count_part(memory + end, pattern + end, bytes - end);
}

static int64_t count_touched(const untouched *u, const uint8_t *memory, int64_t offset, int64_t bytes) {
    const uint8_t *pattern = u->bytes + offset % WORD;
    int64_t touched = 0;
    for (int64_t i = 0; i < bytes; i += BLOCK_BYTES) {
        int64_t piece = bytes - i < BLOCK_BYTES ? bytes - i : BLOCK_BYTES;
        if (memcmp(memory + i, pattern, (size_t)piece) != 0) touched += count_words(u, memory + i, offset + i, piece);
    }
    return touched;
}

static bool cpu_reaches(const mm_pool *pool) {
    return pool->kind == MM_MEMORY_PINNED || pool->device->ops->cpu_reaches_memory;
}

/* ---------------------------------------------------------------- memory that the CPU cannot reach
 * Memory is filled and counted piece by piece, through a buffer in pinned memory. */

typedef struct pieces {
    mm_stream *stream;
    uint8_t *pinned; /* PIECE_BYTES */
    int64_t offset, bytes;
} pieces;

static mm_status with_pieces(const mm_pool *pool, int64_t offset, int64_t bytes, const untouched *u,
                             mm_status (*job)(const mm_pool *pool, const pieces *p, const untouched *u,
                                              int64_t *touched),
                             int64_t *touched) {
    pieces p = {.offset = offset, .bytes = bytes};
    void *pinned;
    MM_TRY(mm_device_reserve(pool->device, MM_MEMORY_PINNED, PIECE_BYTES, &pinned));
    p.pinned = pinned;
    mm_status status = mm_stream_create(pool->device, "pattern", 0, &p.stream);
    if (status == MM_OK) {
        status = job(pool, &p, u, touched);
        mm_stream_destroy(p.stream);
    }
    mm_device_release(pool->device, MM_MEMORY_PINNED, pinned, PIECE_BYTES);
    return status;
}

static mm_status fill_pieces(const mm_pool *pool, const pieces *p, const untouched *u, int64_t *touched) {
    (void)touched;
    fill_pattern(u, p->pinned, p->offset, PIECE_BYTES); /* the same for every piece: PIECE_BYTES is whole words */
    for (int64_t done = 0; done < p->bytes; done += PIECE_BYTES) {
        int64_t now = p->bytes - done < PIECE_BYTES ? p->bytes - done : PIECE_BYTES;
        MM_TRY(mm_copy_async(p->stream, pool->base + p->offset + done, p->pinned, now, MM_COPY_IN));
    }
    return mm_stream_sync(p->stream);
}

/* True if the memory is all zero. The device compares, by checksum, which is many times as fast as a copy. */
static mm_status is_zero(const pieces *p, const char *memory, int64_t bytes, bool *zero_out) {
    uint64_t sum;
    MM_TRY(mm_checksum_async(p->stream, memory, bytes, &sum));
    MM_TRY(mm_stream_sync(p->stream));
    *zero_out = sum == mm_checksum_zeros(bytes);
    return MM_OK;
}

static mm_status count_pieces(const mm_pool *pool, const pieces *p, const untouched *u, int64_t *touched) {
    for (int64_t done = 0; done < p->bytes; done += PIECE_BYTES) {
        const char *memory = pool->base + p->offset + done;
        int64_t now = p->bytes - done < PIECE_BYTES ? p->bytes - done : PIECE_BYTES;
        bool skip = false;
        if (u->zero) MM_TRY(is_zero(p, memory, now, &skip));
        if (skip) continue;
        MM_TRY(mm_copy_async(p->stream, p->pinned, memory, now, MM_COPY_OUT));
        MM_TRY(mm_stream_sync(p->stream));
        *touched += count_touched(u, p->pinned, p->offset + done, now);
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- fill and count */

static mm_status check_range(const mm_pool *pool, int64_t offset, int64_t bytes) {
    if (offset >= 0 && bytes >= 0 && offset <= pool->bytes && bytes <= pool->bytes - offset) return MM_OK;
    return mm_fail(MM_ERR_INVALID,
                   "a range must lie within its pool: %" PRId64 " bytes at offset %" PRId64 ", pool of %" PRId64, bytes,
                   offset, pool->bytes);
}

mm_status mm_pool_pattern_extend(mm_pool *pool, int64_t bytes) {
    MM_TRY(check_range(pool, 0, bytes));
    int64_t from = pool->pattern_bytes;
    if (bytes <= from) return MM_OK;
    untouched u;
    untouched_init(&u, false);
    if (cpu_reaches(pool))
        fill_pattern(&u, (uint8_t *)pool->base + from, from, bytes - from);
    else
        MM_TRY(with_pieces(pool, from, bytes - from, &u, fill_pieces, NULL));
    pool->pattern_bytes = bytes;
    return MM_OK;
}

/* Counts words that are not zero, in memory that the CPU reaches. Reads only pages that may have been written, because
 * reading an untouched page would allocate it. */
static void count_written(const mm_pool *pool, const untouched *u, int64_t offset, int64_t bytes, int64_t *touched) {
    const uint8_t *memory = (const uint8_t *)pool->base + offset;
    for (int64_t at = 0, end; mm_device_next_written(pool->device, memory, bytes, &at, &end); at = end)
        *touched += count_touched(u, memory + at, offset + at, end - at);
}

/* Counts a range that lies wholly within the pattern (zero false) or beyond it (zero true). */
static mm_status count_part_of(const mm_pool *pool, bool zero, int64_t offset, int64_t bytes, int64_t *touched) {
    if (bytes <= 0) return MM_OK;
    untouched u;
    untouched_init(&u, zero);
    if (!cpu_reaches(pool)) return with_pieces(pool, offset, bytes, &u, count_pieces, touched);
    if (zero)
        count_written(pool, &u, offset, bytes, touched);
    else
        *touched += count_touched(&u, (const uint8_t *)pool->base + offset, offset, bytes);
    return MM_OK;
}

mm_status mm_pool_pattern_count(const mm_pool *pool, int64_t offset, int64_t bytes, int64_t *touched_out) {
    MM_TRY(check_range(pool, offset, bytes));
    int64_t end = offset + bytes, touched = 0;
    int64_t turn = pool->pattern_bytes < offset ? offset : pool->pattern_bytes < end ? pool->pattern_bytes : end;
    MM_TRY(count_part_of(pool, false, offset, turn - offset, &touched));
    MM_TRY(count_part_of(pool, true, turn, end - turn, &touched));
    *touched_out = touched;
    return MM_OK;
}

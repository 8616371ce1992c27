#include "buffers/pool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct mm_pool {
    mm_device *device;
    mm_memory_kind kind;
    char *base;
    int64_t bytes;
};

mm_status mm_pool_create(mm_device *device, mm_memory_kind kind, int64_t bytes, mm_pool **pool_out) {
    if (bytes < 0) return mm_fail(MM_ERR_INVALID, "a pool of %" PRId64 " bytes", bytes);
    mm_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return mm_fail(MM_ERR_NOMEM, "no memory for a pool");
    *pool = (mm_pool){.device = device, .kind = kind, .bytes = bytes};
    void *base = NULL;
    mm_status status = bytes > 0 ? mm_device_reserve(device, kind, bytes, &base) : MM_OK;
    if (status != MM_OK) {
        free(pool);
        return status;
    }
    pool->base = base;
    *pool_out = pool;
    return MM_OK;
}

void mm_pool_destroy(mm_pool *pool) {
    if (!pool) return;
    if (pool->base) mm_device_release(pool->device, pool->kind, pool->base, pool->bytes);
    free(pool);
}

void mm_pool_trim(mm_pool *pool, int64_t offset) {
    if (offset < pool->bytes) mm_device_trim(pool->device, (uint8_t *)pool->base + offset, pool->bytes - offset);
}

mm_status mm_pool_restore(mm_pool *pool, int64_t bytes) {
    return bytes > 0 ? mm_device_restore(pool->device, pool->base, bytes) : MM_OK;
}

void *mm_pool_base(const mm_pool *pool) { return pool->base; }

int64_t mm_pool_bytes(const mm_pool *pool) { return pool->bytes; }

mm_device *mm_pool_device(const mm_pool *pool) { return pool->device; }

/* ---------------------------------------------------------------- the pattern
 * One 32-bit word, repeated from the pool's base on; compared block by block, since most blocks are wholly untouched.
 */

enum { WORD = 4, BLOCK_BYTES = 4096 };

static const uint8_t pattern_word[WORD] = {0xa7, 0xd1, 0x8f, 0x6b}; /* as a float -3.5e26: nothing computes it */

typedef struct pattern_block {
    uint8_t bytes[BLOCK_BYTES + WORD]; /* so that it can begin at any byte of the word */
} pattern_block;

static void block_init(pattern_block *block) {
    for (size_t i = 0; i < sizeof block->bytes; i++) block->bytes[i] = pattern_word[i % WORD];
}

/* `offset` is the place of `memory` in the pool. */
static void fill_pattern(const pattern_block *block, uint8_t *memory, int64_t offset, int64_t bytes) {
    const uint8_t *pattern = block->bytes + offset % WORD;
    for (; bytes > BLOCK_BYTES; memory += BLOCK_BYTES, bytes -= BLOCK_BYTES) memcpy(memory, pattern, BLOCK_BYTES);
    memcpy(memory, pattern, (size_t)bytes);
}

/* Bytes of a part of a word, if it differs. */
static int64_t count_part(const uint8_t *memory, const uint8_t *pattern, int64_t bytes) {
    return memcmp(memory, pattern, (size_t)bytes) != 0 ? bytes : 0;
}

/* Bytes of the words that differ; a word cut by the range's ends counts with the bytes that lie inside. */
static int64_t count_words(const uint8_t *memory, const uint8_t *pattern, int64_t offset, int64_t bytes) {
    int64_t begin = (WORD - offset % WORD) % WORD;
    if (begin > bytes) begin = bytes;
    int64_t end = begin + (bytes - begin) / WORD * WORD, words = 0;
    uint32_t expected;
    memcpy(&expected, pattern_word, WORD);
    for (int64_t i = begin; i < end; i += WORD) {
        uint32_t word;
        memcpy(&word, memory + i, WORD);
        words += word != expected;
    }
    return count_part(memory, pattern, begin) + WORD * words + count_part(memory + end, pattern + end, bytes - end);
}

static int64_t count_pattern(const pattern_block *block, const uint8_t *memory, int64_t offset, int64_t bytes) {
    const uint8_t *pattern = block->bytes + offset % WORD;
    int64_t touched = 0;
    for (int64_t i = 0; i < bytes; i += BLOCK_BYTES) {
        int64_t piece = bytes - i < BLOCK_BYTES ? bytes - i : BLOCK_BYTES;
        if (memcmp(memory + i, pattern, (size_t)piece) != 0) {
            touched += count_words(memory + i, pattern, offset + i, piece);
        }
    }
    return touched;
}

static bool cpu_reaches(const mm_pool *pool) {
    return pool->kind == MM_MEMORY_PINNED || pool->device->ops->cpu_reaches_memory;
}

/* For memory that the CPU cannot reach: fills it piece by piece, or counts (touched given), through `piece` in pinned
 * memory. */
static mm_status copy_pieces(const mm_pool *pool, const pattern_block *block, mm_stream *stream, uint8_t *piece,
                             int64_t piece_bytes, int64_t offset, int64_t bytes, int64_t *touched) {
    if (!touched) fill_pattern(block, piece, offset, piece_bytes); /* serves every piece: multiples of a word */
    for (int64_t done = 0; done < bytes; done += piece_bytes) {
        char *memory = pool->base + offset + done;
        int64_t now = bytes - done < piece_bytes ? bytes - done : piece_bytes;
        if (!touched) {
            MM_TRY(mm_copy_async(stream, memory, piece, now, MM_COPY_IN));
            continue;
        }
        MM_TRY(mm_copy_async(stream, piece, memory, now, MM_COPY_OUT));
        MM_TRY(mm_stream_sync(stream));
        *touched += count_pattern(block, piece, offset + done, now);
    }
    return mm_stream_sync(stream);
}

static mm_status through_pinned(const mm_pool *pool, const pattern_block *block, int64_t offset, int64_t bytes,
                                int64_t *touched) {
    enum { PIECE_BYTES = 8 << 20 };
    mm_stream *stream;
    void *piece;
    MM_TRY(mm_device_reserve(pool->device, MM_MEMORY_PINNED, PIECE_BYTES, &piece));
    mm_status status = mm_stream_create(pool->device, "pattern", 0, &stream);
    if (status == MM_OK) {
        status = copy_pieces(pool, block, stream, piece, PIECE_BYTES, offset, bytes, touched);
        mm_stream_destroy(stream);
    }
    mm_device_release(pool->device, MM_MEMORY_PINNED, piece, PIECE_BYTES);
    return status;
}

static mm_status check_range(const mm_pool *pool, int64_t offset, int64_t bytes) {
    if (offset >= 0 && bytes >= 0 && offset <= pool->bytes && bytes <= pool->bytes - offset) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "range of %" PRId64 " bytes at %" PRId64 " of a pool of %" PRId64, bytes, offset,
                   pool->bytes);
}

mm_status mm_pool_pattern_fill(mm_pool *pool, int64_t offset, int64_t bytes) {
    MM_TRY(check_range(pool, offset, bytes));
    if (bytes == 0) return MM_OK;
    pattern_block block;
    block_init(&block);
    if (!cpu_reaches(pool)) return through_pinned(pool, &block, offset, bytes, NULL);
    fill_pattern(&block, (uint8_t *)pool->base + offset, offset, bytes);
    return MM_OK;
}

mm_status mm_pool_pattern_count(mm_pool *pool, int64_t offset, int64_t bytes, int64_t *touched_out) {
    MM_TRY(check_range(pool, offset, bytes));
    pattern_block block;
    block_init(&block);
    int64_t touched = 0;
    if (bytes > 0 && cpu_reaches(pool)) {
        touched = count_pattern(&block, (const uint8_t *)pool->base + offset, offset, bytes);
    } else if (bytes > 0) {
        MM_TRY(through_pinned(pool, &block, offset, bytes, &touched));
    }
    *touched_out = touched;
    return MM_OK;
}

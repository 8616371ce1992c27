/* SPDX-License-Identifier: MIT */
#include "pipeline/codec/chunk/deflate_chunk.h"

#include <stdalign.h>
#include <stddef.h>
#include <string.h>
#include <zlib.h>

/* A window of 2^12 bytes (a chunk), and hash table and list of symbols for as many. deflateInit needs 2^(window + 2) +
 * 2^(memory + 9) bytes and its struct (zconf.h), inflateInit fewer. */
enum { WINDOW_BITS = 12, MEMORY_LEVEL = 7, ARENA_BYTES = 112 << 10 };

/* Memory for zlib: allocations follow one another, and nothing is freed. */
typedef struct arena {
    alignas(max_align_t) char bytes[ARENA_BYTES];
    size_t used;
} arena;

static void *take(void *ctx, uInt items, uInt size) {
    arena *a = ctx;
    const size_t align = alignof(max_align_t), bytes = ((size_t)items * size + align - 1) / align * align;
    if (bytes > sizeof a->bytes - a->used) return Z_NULL;
    void *at = a->bytes + a->used;
    a->used += bytes;
    return at;
}

static void leave(void *ctx, void *at) { (void)ctx, (void)at; }

int mm_deflate_encode(int level, const void *src, int bytes, void *dst, int room) {
    arena a;
    a.used = 0;
    z_stream z = {.next_in = (Bytef *)src,
                  .avail_in = (uInt)bytes,
                  .next_out = dst,
                  .avail_out = (uInt)(room > 0 ? room : 0),
                  .zalloc = take,
                  .zfree = leave,
                  .opaque = &a};
    if (deflateInit2(&z, level, Z_DEFLATED, WINDOW_BITS, MEMORY_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK) return -1;
    const bool ended = deflate(&z, Z_FINISH) == Z_STREAM_END;
    return ended ? (int)z.total_out : -1;
}

bool mm_deflate_decode(const void *src, int count, void *dst, int bytes) {
    static const char zeros[3];
    arena a;
    a.used = 0;
    z_stream z = {.next_in = (Bytef *)src,
                  .avail_in = (uInt)count,
                  .next_out = dst,
                  .avail_out = (uInt)bytes,
                  .zalloc = take,
                  .zfree = leave,
                  .opaque = &a};
    if (inflateInit2(&z, WINDOW_BITS) != Z_OK) return false;
    return inflate(&z, Z_FINISH) == Z_STREAM_END && z.total_out == (uLong)bytes && z.avail_in <= sizeof zeros &&
           memcmp(z.next_in, zeros, z.avail_in) == 0;
}

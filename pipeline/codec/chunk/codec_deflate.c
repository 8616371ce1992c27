/* SPDX-License-Identifier: MIT */
/* deflate on the host device: deflate_chunk.h has its format. */
#include "pipeline/codec/chunk/chunk_host.h"
#include "pipeline/codec/chunk/deflate_chunk.h"

#include <string.h>

static int encode(const mm_chunk_params *params, const float *src, int n, uint32_t *words) {
    const int level = params->level ? params->level : MM_DEFLATE_LEVEL;
    const int bytes = mm_deflate_encode(level, src, 4 * n, words, 4 * (n - 1)), count = (bytes + 3) / 4;
    if (bytes < 0) {
        memcpy(words, src, (size_t)n * sizeof *words);
        return n;
    }
    memset((uint8_t *)words + bytes, 0, (size_t)(4 * count - bytes));
    return count;
}

static bool decode(const mm_chunk_params *params, const uint32_t *words, int count, int n, float *dst) {
    (void)params;
    return mm_deflate_decode(words, 4 * count, dst, 4 * n);
}

/* zlib chooses the instruction set itself. */
#if defined(__x86_64__)
#define EACH_ISA(function)                                                                                             \
    { function, function, function }
#else
#define EACH_ISA(function)                                                                                             \
    { function }
#endif

static const mm_chunk_host deflate_host = {&mm_deflate_kind, EACH_ISA(encode), EACH_ISA(decode)};
const mm_codec_ops mm_codec_deflate_host_ops =
    MM_CHUNK_HOST_OPS("deflate", MM_DEFLATE_SUMMARY, &deflate_host, .lossless = true);

/* SPDX-License-Identifier: MIT */
/* zvc on the host device. zvc_chunk.h has its format. */
#include "pipeline/codec/chunk/chunk_host.h"
#include "pipeline/codec/chunk/zvc_chunk.h"

static int encode_portable(const mm_chunk_params *params, const float *src, int n, uint32_t *words) {
    (void)params;
    const int count = mm_zvc_encode((const uint32_t *)src, n, words);
    return count < n ? count : mm_chunk_raw(src, n, words);
}

static bool decode_portable(const mm_chunk_params *params, const uint32_t *words, int count, int n, float *dst) {
    (void)params;
    return mm_zvc_decode(words, count, n, (uint32_t *)dst);
}

#if defined(__x86_64__)
MM_CHUNK_AVX512 static int encode_avx512(const mm_chunk_params *params, const float *src, int n, uint32_t *words) {
    uint32_t *value = words + mm_zvc_masks(n);
    (void)params;
    for (int i = 0; i < n; i += 32) {
        uint32_t mask = 0;
        for (int half = 0; half < 32 && i + half < n; half += 16) {
            const __m512i x = _mm512_maskz_loadu_epi32(mm_chunk_lanes(n - i - half), src + i + half);
            const __mmask16 kept = _mm512_test_epi32_mask(x, x);
            _mm512_storeu_si512(value, _mm512_maskz_compress_epi32(kept, x));
            value += __builtin_popcount(kept);
            mask |= (uint32_t)kept << half;
        }
        words[i / 32] = mask;
    }
    return value - words < n ? (int)(value - words) : mm_chunk_raw(src, n, words);
}

MM_CHUNK_AVX512 static bool decode_avx512(const mm_chunk_params *params, const uint32_t *words, int count, int n,
                                          float *dst) {
    (void)params;
    if (!mm_zvc_possible(words, count, n)) return false;
    mm_chunk_spread_avx512(words + mm_zvc_masks(n), n, words, dst);
    return true;
}
#endif

static const mm_chunk_host zvc_host = {&mm_zvc_kind, MM_CHUNK_ISA_LIST(encode), MM_CHUNK_ISA_LIST(decode)};
const mm_codec_ops mm_codec_zvc_host_ops =
    MM_CHUNK_HOST_OPS("zvc", MM_ZVC_SUMMARY, &zvc_host, .lossless = true, .drops_zeros = true);

/* zvc on the host device. zvc_chunk.h says what it is. */
#include "pipeline/codec/chunk_host.h"
#include "pipeline/codec/zvc_chunk.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static int raw(const float *src, int n, uint32_t *words) {
    memcpy(words, src, (size_t)n * sizeof *words);
    return n;
}

static int encode_portable(const mm_chunk_params *params, const float *src, int n, uint32_t *words) {
    (void)params;
    const int count = mm_zvc_encode((const uint32_t *)src, n, words);
    return count < n ? count : raw(src, n, words);
}

static bool decode_portable(const mm_chunk_params *params, const uint32_t *words, int count, int n, float *dst) {
    (void)params;
    return mm_zvc_decode(words, count, n, (uint32_t *)dst);
}

#if defined(__x86_64__)
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,popcnt")))

AVX512 static int encode_avx512(const mm_chunk_params *params, const float *src, int n, uint32_t *words) {
    uint32_t *value = words + mm_zvc_masks(n);
    (void)params;
    for (int i = 0; i < n; i += 32) {
        uint32_t mask = 0;
        for (int half = 0; half < 32 && i + half < n; half += 16) {
            const int left = n - i - half;
            const __mmask16 inside = left < 16 ? (__mmask16)((1u << left) - 1) : (__mmask16)0xffff;
            const __m512i x = _mm512_maskz_loadu_epi32(inside, src + i + half);
            const __mmask16 kept = _mm512_test_epi32_mask(x, x);
            _mm512_storeu_si512(value, _mm512_maskz_compress_epi32(kept, x));
            value += __builtin_popcount(kept);
            mask |= (uint32_t)kept << half;
        }
        words[i / 32] = mask;
    }
    return value - words < n ? (int)(value - words) : raw(src, n, words);
}

AVX512 static bool decode_avx512(const mm_chunk_params *params, const uint32_t *words, int count, int n, float *dst) {
    (void)params;
    if (!mm_zvc_possible(words, count, n)) return false;
    const uint32_t *value = words + mm_zvc_masks(n);
    for (int i = 0; i < n; i += 16) {
        const __mmask16 kept = (__mmask16)(words[i / 32] >> i % 32);
        const __mmask16 inside = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
        _mm512_mask_storeu_epi32(dst + i, inside, _mm512_maskz_expandloadu_epi32(kept, value));
        value += __builtin_popcount(kept);
    }
    return true;
}
#define EACH_ISA(direction)                                                                                            \
    { direction##_avx512, direction##_portable, direction##_portable }
#else
#define EACH_ISA(direction)                                                                                            \
    { direction##_portable }
#endif

static const mm_chunk_host zvc_host = {&mm_zvc_kind, EACH_ISA(encode), EACH_ISA(decode)};
const mm_codec_ops mm_codec_zvc_host_ops = MM_CHUNK_HOST_OPS("zvc", MM_ZVC_SUMMARY, &zvc_host, .lossless = true);

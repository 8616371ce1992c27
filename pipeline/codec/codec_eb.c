/* eb on the host device. eb_chunk.h says what it is. */
#include "pipeline/codec/chunk_host.h"
#include "pipeline/codec/eb_chunk.h"

static int raw(mm_eb_quantiser z, const uint32_t *src, int n, uint32_t *words) {
    for (int i = 0; i < n; i++) words[i] = mm_eb_raw(z, src[i]);
    return n;
}

static int encode_portable(const mm_chunk_params *params, const float *src, int n, uint32_t *words) {
    const mm_eb_quantiser z = mm_eb_quantiser_of(params->bound);
    const int count = mm_eb_encode(z, (const uint32_t *)src, n, words);
    return count < n ? count : raw(z, (const uint32_t *)src, n, words);
}

static bool decode_portable(const mm_chunk_params *params, const uint32_t *words, int count, int n, float *dst) {
    return mm_eb_decode(mm_eb_quantiser_of(params->bound), words, count, n, (uint32_t *)dst);
}

#if defined(__x86_64__)
#define AVX512_INLINE MM_CHUNK_AVX512 static inline __attribute__((always_inline))

enum { LANES = 16 };

/* What mm_eb_numbers finds; numbers as if there were negatives, of k elements and zeros for the rest of a group. */
typedef struct found {
    uint32_t masks[32], numbers[MM_CHUNK_ELEMS + MM_EB_GROUP + LANES];
    int k;
    bool negatives, too_large;
} found;

AVX512_INLINE void find(mm_eb_quantiser z, const uint32_t *src, int n, found *f) {
    const __m512i one = _mm512_set1_epi32(1), magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512 bound = _mm512_set1_ps(z.bound), inverse = _mm512_set1_ps(z.inverse), half = _mm512_set1_ps(0.5f);
    __m512i most = _mm512_setzero_si512(), any = most;
    f->k = 0;
    for (int i = 0; i < n; i += LANES) {
        const __m512i bits = _mm512_maskz_loadu_epi32(mm_chunk_lanes(n - i), src + i);
        const __m512 x = _mm512_castsi512_ps(_mm512_and_si512(bits, magnitude));
        const __mmask16 kept = _mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ);
        const __m512i q = _mm512_cvttps_epi32(_mm512_add_ps(_mm512_mul_ps(x, inverse), half));
        const __m512i twice = _mm512_slli_epi32(_mm512_sub_epi32(q, one), 1);
        const __m512i number = _mm512_or_si512(twice, _mm512_srli_epi32(bits, 31));
        _mm512_storeu_si512(f->numbers + f->k, _mm512_maskz_compress_epi32(kept, number));
        f->k += __builtin_popcount(kept);
        most = _mm512_mask_max_epu32(most, kept, most, q); /* what is no int32 is converted to 2^31 */
        any = _mm512_mask_or_epi32(any, kept, any, bits);
        uint32_t *mask = &f->masks[i / 32];
        *mask = (i % 32 ? *mask : 0) | (uint32_t)kept << i % 32;
    }
    memset(f->numbers + f->k, 0, MM_EB_GROUP * sizeof *f->numbers);
    f->negatives = _mm512_reduce_or_epi32(any) < 0;
    f->too_large = _mm512_reduce_max_epu32(most) > MM_EB_Q_MOST;
}

MM_CHUNK_AVX512 static int encode_avx512(const mm_chunk_params *params, const float *src, int n, uint32_t *words) {
    const mm_eb_quantiser z = mm_eb_quantiser_of(params->bound);
    found f;
    if (z.bound == 0) return raw(z, (const uint32_t *)src, n, words);
    find(z, (const uint32_t *)src, n, &f);
    if (f.too_large) return raw(z, (const uint32_t *)src, n, words);
    if (f.k == 0) return 0;
    const int groups = (f.k + MM_EB_GROUP - 1) / MM_EB_GROUP, shift = !f.negatives;
    uint32_t blocks = 0, *next = words + 1;
    for (int i = 0; i < (n + 31) / 32; i++) {
        *next = f.masks[i];
        next += f.masks[i] != 0;
        blocks |= (uint32_t)(f.masks[i] != 0) << i;
    }
    words[0] = blocks;
    uint32_t *const nibbles = next, *const planes = next + (groups + 8) / 8;
    memset(nibbles, 0, (size_t)(planes - nibbles) * sizeof *nibbles);
    nibbles[0] = f.negatives;
    next = planes;
    for (int g = 0; g < groups && next - words < n; g++) {
        const uint32_t *of = f.numbers + g * MM_EB_GROUP;
        const __m512i low = _mm512_srli_epi32(_mm512_loadu_si512(of), (unsigned)shift);
        const __m512i high = _mm512_srli_epi32(_mm512_loadu_si512(of + LANES), (unsigned)shift);
        const uint32_t all = (uint32_t)_mm512_reduce_or_epi32(_mm512_or_si512(low, high));
        const int width = all ? 32 - __builtin_clz(all) : 0;
        nibbles[(g + 1) / 8] |= (uint32_t)width << (g + 1) % 8 * 4;
        __m512i bit = _mm512_set1_epi32(1);
        for (int b = 0; b < width; b++, bit = _mm512_slli_epi32(bit, 1))
            *next++ = _mm512_test_epi32_mask(low, bit) | (uint32_t)_mm512_test_epi32_mask(high, bit) << LANES;
    }
    return next - words < n ? (int)(next - words) : raw(z, (const uint32_t *)src, n, words);
}

/* The elements of the k values, in order. */
AVX512_INLINE void read_values(mm_eb_quantiser z, const mm_eb_parts *parts, uint32_t *values) {
    const uint32_t *plane = parts->planes;
    const unsigned shift = parts->negatives;
    const __m512i one = _mm512_set1_epi32(1), sign = _mm512_set1_epi32(parts->negatives ? INT32_MIN : 0);
    const __m512 step = _mm512_set1_ps(z.step);
    for (int g = 0; g < parts->groups; g++) {
        __m512i u[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()}, bit = one;
        for (int b = mm_eb_group_width(parts->nibbles, g); b > 0; b--, plane++, bit = _mm512_slli_epi32(bit, 1)) {
            u[0] = _mm512_mask_or_epi32(u[0], (__mmask16)*plane, u[0], bit);
            u[1] = _mm512_mask_or_epi32(u[1], (__mmask16)(*plane >> LANES), u[1], bit);
        }
        for (int i = 0; i < 2; i++) {
            const __m512i q = _mm512_add_epi32(_mm512_srli_epi32(u[i], shift), one);
            const __m512i value = _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(q), step));
            const __m512i negative = _mm512_and_si512(_mm512_slli_epi32(u[i], 31), sign);
            _mm512_storeu_si512(values + g * MM_EB_GROUP + i * LANES, _mm512_or_si512(value, negative));
        }
    }
}

MM_CHUNK_AVX512 static bool decode_avx512(const mm_chunk_params *params, const uint32_t *words, int count, int n,
                                          float *dst) {
    const mm_eb_quantiser z = mm_eb_quantiser_of(params->bound);
    uint32_t values[MM_CHUNK_ELEMS + MM_EB_GROUP], masks[MM_CHUNK_ELEMS / 32];
    mm_eb_parts parts;
    if (count == 0) {
        memset(dst, 0, (size_t)n * sizeof *dst);
        return true;
    }
    if (z.bound == 0 || !mm_eb_parts_of(words, count, n, &parts)) return false;
    read_values(z, &parts, values);
    for (int i = 0; 32 * i < n; i++) masks[i] = words[0] >> i & 1 ? *parts.mask++ : 0;
    mm_chunk_spread_avx512(values, n, masks, dst);
    return true;
}
#endif

static const mm_chunk_host eb_host = {&mm_eb_kind, MM_CHUNK_ISA_LIST(encode), MM_CHUNK_ISA_LIST(decode)};
const mm_codec_ops mm_codec_eb_host_ops = MM_CHUNK_HOST_OPS("eb", MM_EB_SUMMARY, &eb_host, .reads_bound = true);

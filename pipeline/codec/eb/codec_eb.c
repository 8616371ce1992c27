/* SPDX-License-Identifier: MIT */
/* eb on the host device. eb_chunk.h has its format. Functions named as those there, without mm_eb_, compute the
 * same. */
#include "pipeline/codec/chunk/chunk_host.h"
#include "pipeline/codec/eb/eb_chunk.h"

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

/* Results of mm_eb_numbers. `numbers` are always 2 (q - 1) + sign; zeros follow the k numbers. */
typedef struct found {
    uint32_t blocks[2 * MM_EB_BLOCKS]; /* zeros, then the masks (masks_of); zeros beyond the elements */
    uint32_t numbers[MM_CHUNK_ELEMS + 2 * LANES];
    __m512i sum; /* to be summed over lanes */
    uint32_t most;
    int k;
    bool negatives, too_large;
} found;

AVX512_INLINE const uint32_t *masks_of(const found *f) { return f->blocks + MM_EB_BLOCKS; }

AVX512_INLINE void find(mm_eb_quantiser z, const uint32_t *src, int n, found *f) {
    const __m512i one = _mm512_set1_epi32(1), magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512 bound = _mm512_set1_ps(z.bound), inverse = _mm512_set1_ps(z.inverse), half = _mm512_set1_ps(0.5f);
    __m512i most = _mm512_setzero_si512(), any = most, sum = most;
    f->k = 0;
    memset(f->blocks, 0, sizeof f->blocks);
    for (int i = 0; i < n; i += LANES) {
        const __m512i bits = _mm512_maskz_loadu_epi32(mm_chunk_lanes(n - i), src + i);
        const __m512 x = _mm512_castsi512_ps(_mm512_and_si512(bits, magnitude));
        const __mmask16 kept = _mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ);
        const __m512i q = _mm512_cvttps_epi32(_mm512_add_ps(_mm512_mul_ps(x, inverse), half));
        const __m512i twice = _mm512_slli_epi32(_mm512_sub_epi32(q, one), 1);
        const __m512i number = _mm512_or_si512(twice, _mm512_srli_epi32(bits, 31));
        _mm512_storeu_si512(f->numbers + f->k, _mm512_maskz_compress_epi32(kept, number));
        f->k += __builtin_popcount(kept);
        sum = _mm512_mask_add_epi32(sum, kept, sum, number);
        most = _mm512_mask_max_epu32(most, kept, most, number); /* a float beyond int32 is converted to 2^31 */
        any = _mm512_mask_or_epi32(any, kept, any, bits);
        memcpy((uint8_t *)(f->blocks + MM_EB_BLOCKS) + i / 8, &kept, sizeof kept);
    }
    memset(f->numbers + f->k, 0, 2 * LANES * sizeof *f->numbers);
    f->negatives = _mm512_reduce_or_epi32(any) < 0;
    f->sum = sum;
    f->most = _mm512_reduce_max_epu32(most);
    f->too_large = f->most > 2 * MM_EB_Q_MOST - 1;
}

AVX512_INLINE mm_eb_prefix choose(const found *f) {
    const unsigned shift = !f->negatives;
    /* The sum is below 2^25: there are at most 2^10 numbers, each below 2^15, because none is too large. */
    const uint32_t sum = (uint32_t)_mm512_reduce_add_epi32(f->sum);
    mm_eb_prefix p = {.negatives = f->negatives};
    p.low = mm_eb_low_least(sum >> shift, f->most >> shift, (uint32_t)f->k);
    for (;; p.low++) {
        __m512i halves = _mm512_setzero_si512();
        for (int i = 0; i < f->k; i += LANES) {
            const __m512i high = _mm512_srli_epi32(_mm512_loadu_si512(f->numbers + i), shift + (unsigned)p.low);
            halves = _mm512_add_epi32(halves, _mm512_srli_epi32(_mm512_add_epi32(high, _mm512_set1_epi32(1)), 1));
        }
        if (_mm512_reduce_add_epi32(halves) <= f->k) break;
    }
    p.layers = (int)(f->most >> shift >> p.low);
    return p;
}

AVX512_INLINE uint32_t gather(uint32_t bits, uint32_t mask) { return _pext_u32(bits, mask); }
AVX512_INLINE uint32_t scatter(uint32_t bits, uint32_t mask) { return _pdep_u32(bits, mask); }

/* Number of ones in each byte. */
AVX512_INLINE __m512i ones_by_byte(__m512i bits) {
    const __m512i ones = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4)),
                  low = _mm512_set1_epi8(15), high = _mm512_and_si512(_mm512_srli_epi16(bits, 4), low);
    return _mm512_add_epi8(_mm512_shuffle_epi8(ones, _mm512_and_si512(bits, low)), _mm512_shuffle_epi8(ones, high));
}

/* mm_eb_elements of the 16 blocks from `block` on. */
AVX512_INLINE __m512i elements_of(int n, int block) {
    const __m512i iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i beyond = _mm512_sub_epi32(_mm512_slli_epi32(iota, 5), _mm512_set1_epi32(n - 32 * block - 32));
    const __m512i bits = _mm512_max_epi32(beyond, _mm512_setzero_si512());
    return _mm512_srlv_epi32(_mm512_set1_epi32(-1), bits); /* shifts by 32 or more give 0 */
}

AVX512_INLINE void choose_before(const found *f, int n, mm_eb_prefix *p) {
    const __m512i elements[2] = {elements_of(n, 0), elements_of(n, LANES)};
    __m512i changes[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()}; /* sums, in 16 bits for each distance */
    uint64_t sums[2];
    uint32_t least = MM_EB_NO_TRY, firsts = 0;
    int next = 0;
#pragma GCC unroll 6
    for (int before = 1; before <= MM_EB_BEFORES; before++) {
        __m512i ones[2];
        for (int i = 0; i < 2; i++) {
            const uint32_t *at = masks_of(f) + LANES * i;
            const __m512i same = _mm512_loadu_si512(at - mm_eb_distance(before));
            ones[i] = ones_by_byte(_mm512_and_si512(_mm512_xor_si512(_mm512_loadu_si512(at), same), elements[i]));
        }
        const __m512i sum = _mm512_sad_epu8(_mm512_add_epi8(ones[0], ones[1]), _mm512_setzero_si512());
        changes[before / 4] = _mm512_or_si512(_mm512_slli_epi64(changes[before / 4], 16), sum);
    }
    for (int i = 0; i < 2; i++) sums[i] = (uint64_t)_mm512_reduce_add_epi64(changes[i]);
#pragma GCC unroll 6
    for (int before = 1; before <= MM_EB_BEFORES; before++) {
        const int behind = before < 4 ? 3 - before : MM_EB_BEFORES - before;
        for (; next < mm_eb_distance(before); next++) firsts += (uint32_t)__builtin_popcount(masks_of(f)[next]);
        least = mm_eb_try_before(least, before, sums[before / 4] >> 16 * behind & 0xffff, firsts, n);
    }
    mm_eb_take_before(p, least, n);
}

AVX512_INLINE void changes_of(const found *f, int n, mm_eb_prefix p, uint32_t *changes) {
    const int distance = mm_eb_distance(p.before);
    const uint32_t firsts = distance < MM_EB_BLOCKS ? (1u << distance) - 1 : 0xffffffff;
    for (int i = 0; i < MM_EB_BLOCKS; i += LANES) {
        const __m512i ones = _mm512_maskz_set1_epi32((__mmask16)(firsts >> i), -(int)p.ones);
        const __m512i same = _mm512_or_si512(_mm512_loadu_si512(masks_of(f) + i - distance), ones);
        const __m512i changed = _mm512_xor_si512(_mm512_loadu_si512(masks_of(f) + i), same);
        _mm512_storeu_si512(changes + i, _mm512_and_si512(changed, elements_of(n, i)));
    }
    changes[MM_EB_BLOCKS] = 0;
}

/* A word of the same bit of 32 numbers. */
AVX512_INLINE uint32_t plane_of(const uint32_t *numbers, __m512i bit) {
    return _mm512_test_epi32_mask(_mm512_loadu_si512(numbers), bit) |
           (uint32_t)_mm512_test_epi32_mask(_mm512_loadu_si512(numbers + LANES), bit) << LANES;
}

AVX512_INLINE void put_numbers(mm_eb_bit_writer *out, mm_eb_prefix p, found *f) {
    uint32_t *const numbers = f->numbers;
    const int shift = !p.negatives;
    for (int b = 0; b < p.low; b++) {
        const __m512i bit = _mm512_set1_epi32(1 << (b + shift));
        for (int i = 0; i < f->k; i += 32) mm_eb_put(out, plane_of(numbers + i, bit), f->k - i < 32 ? f->k - i : 32);
    }
    for (int layer = 1, left = f->k; layer <= p.layers; layer++) {
        const __m512i least = _mm512_set1_epi32(layer << (p.low + shift));
        int next = 0;
        for (int i = 0; i < left; i += 32) { /* the last load may reach beyond the numbers: zeros follow */
            const __m512i number[2] = {_mm512_loadu_si512(numbers + i), _mm512_loadu_si512(numbers + i + LANES)};
            uint32_t ones = 0;
            for (int j = 0; j < 2; j++) {
                const __mmask16 one = _mm512_cmpge_epu32_mask(number[j], least);
                _mm512_storeu_si512(numbers + next, _mm512_maskz_compress_epi32(one, number[j]));
                next += __builtin_popcount(one);
                ones |= (uint32_t)one << LANES * j;
            }
            mm_eb_put(out, ones, left - i < 32 ? left - i : 32);
        }
        memset(numbers + next, 0, 2 * LANES * sizeof *numbers);
        left = next;
    }
}

MM_CHUNK_AVX512 static int encode_avx512(const mm_chunk_params *params, const float *src, int n, uint32_t *words) {
    const mm_eb_quantiser z = mm_eb_quantiser_of(params->bound);
    found f;
    if (z.bound == 0) return raw(z, (const uint32_t *)src, n, words);
    find(z, (const uint32_t *)src, n, &f);
    if (f.too_large) return raw(z, (const uint32_t *)src, n, words);
    if (f.k == 0) return 0;
    uint32_t changes[MM_EB_BLOCKS + 1];
    mm_eb_three threes[MM_EB_THREES];
    mm_eb_bit_writer out = {words, 0, 0};
    mm_eb_prefix p = choose(&f);
    choose_before(&f, n, &p);
    if (p.before) {
        changes_of(&f, n, p, changes);
        mm_eb_threes_of(changes, threes);
    }
    mm_eb_put(&out, mm_eb_prefix_bits(p), MM_EB_PREFIX_BITS);
    mm_eb_put_masks(&out, p, masks_of(&f), n, threes, gather);
    put_numbers(&out, p, &f);
    const int count = (int)(mm_eb_put_rest(&out) - words);
    return count < n ? count : raw(z, (const uint32_t *)src, n, words);
}

/* Room for a chunk's elements, and for what may be read or written beyond them. */
typedef uint32_t padded[MM_CHUNK_ELEMS + 2 * LANES];

/* The 32 bits from position `at` on. */
AVX512_INLINE uint32_t bits_at(const uint32_t *string, int at) {
    uint64_t bits;
    memcpy(&bits, string + (unsigned)at / 32, sizeof bits);
    return (uint32_t)(bits >> (unsigned)at % 32);
}

/* Number of ones among the `count` bits from position `at` on. */
AVX512_INLINE int ones_of(const uint32_t *string, int at, int count) {
    int ones = 0;
    for (; count >= 32; count -= 32, at += 32) ones += __builtin_popcount(bits_at(string, at));
    return ones + __builtin_popcount(bits_at(string, at) & ((1u << count) - 1));
}

/* Of 16 values: number of ones in this layer and those after it. layer: their bits in this layer; higher: number of
 * ones in later layers, for each value with a one in this layer. */
AVX512_INLINE __m512i ones_from(__mmask16 layer, const uint32_t *higher) {
    return _mm512_mask_add_epi32(_mm512_setzero_si512(), layer,
                                 _mm512_maskz_expand_epi32(layer, _mm512_loadu_si512(higher)), _mm512_set1_epi32(1));
}

AVX512_INLINE bool parts_of(const uint32_t *string, int count, int n, mm_eb_parts *parts) {
    uint32_t changes[MM_EB_BLOCKS + 1] = {0};
    const mm_eb_prefix p = mm_eb_prefix_of(string[0]);
    *parts = (mm_eb_parts){.string = string, .bits = 32 * count, .prefix = p};
    if (!mm_eb_read_changes(parts, n, changes, scatter)) return false;
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i elements[2] = {elements_of(n, 0), elements_of(n, LANES)}, ones = _mm512_set1_epi32(-(int)p.ones);
    __m512i masks[2] = {_mm512_loadu_si512(changes), _mm512_loadu_si512(changes + LANES)};
    const __mmask16 outside =
        _mm512_test_epi32_mask(_mm512_andnot_si512(elements[0], masks[0]), _mm512_set1_epi32(-1)) |
        _mm512_test_epi32_mask(_mm512_andnot_si512(elements[1], masks[1]), _mm512_set1_epi32(-1));
    const int distance = p.before ? mm_eb_distance(p.before) : MM_EB_BLOCKS;
    for (int by = distance; by < LANES; by *= 2) {
        const __m512i from = _mm512_sub_epi32(lane, _mm512_set1_epi32(by));
        for (int i = 0; i < 2; i++)
            masks[i] =
                _mm512_xor_si512(masks[i], _mm512_maskz_permutexvar_epi32((__mmask16)(0xffff << by), from, masks[i]));
    }
    if (distance <= LANES) { /* masks 16 to 31 depend on those of 0 to 15, `distance` before */
        const __m512i from = _mm512_or_si512(lane, _mm512_set1_epi32(LANES - distance));
        masks[1] = _mm512_xor_si512(masks[1], _mm512_permutexvar_epi32(from, masks[0]));
    }
    __m512i counts = _mm512_setzero_si512();
    for (int i = 0; i < 2; i++) {
        masks[i] = _mm512_and_si512(_mm512_xor_si512(masks[i], ones), elements[i]);
        counts = _mm512_add_epi8(counts, ones_by_byte(masks[i]));
        _mm512_storeu_si512(parts->masks + LANES * i, masks[i]);
    }
    parts->k = (int)_mm512_reduce_add_epi64(_mm512_sad_epu8(counts, _mm512_setzero_si512()));
    return !outside && changes[MM_EB_BLOCKS] == 0 && parts->k > 0 && parts->planes + p.low * parts->k <= parts->bits;
}

/* For each value with a one in layer 1: its number of ones in all later layers; then zeros. from: where layers 1 to
 * p.layers begin, and where the last ends. Returns one of the two buffers. */
AVX512_INLINE const uint32_t *read_layers(mm_eb_prefix p, const uint32_t *string, const int *from, padded buffers[2]) {
    const int last = from[p.layers] - from[p.layers - 1];
    uint32_t *higher = buffers[0], *here = buffers[1];
    memset(higher, 0, (size_t)(last + LANES) * sizeof *higher);
    for (int layer = p.layers - 1; layer > 0; layer--) {
        const int at = from[layer], values = from[layer + 1] - at;
        const uint32_t *next = higher;
        for (int i = 0; i < values; i += LANES) {
            const __mmask16 ones = (__mmask16)bits_at(string, at + i);
            _mm512_storeu_si512(here + i, ones_from(ones, next));
            next += __builtin_popcount(ones);
        }
        uint32_t *const other = higher;
        higher = here;
        here = other;
    }
    return higher;
}

/* The same as mm_eb_value. */
AVX512_INLINE __m512i values_of(__m512 step, __m512i u, bool negatives) {
    const __m512i q = _mm512_add_epi32(_mm512_srli_epi32(u, negatives), _mm512_set1_epi32(1));
    const __m512i sign = _mm512_and_si512(_mm512_slli_epi32(u, 31), _mm512_set1_epi32(negatives ? INT32_MIN : 0));
    return _mm512_or_si512(_mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(q), step)), sign);
}

/* Decodes the k values, in order. Returns false if the layers do not end with the string. */
AVX512_INLINE bool read_values(mm_eb_quantiser z, const mm_eb_parts *parts, uint32_t *values) {
    const mm_eb_prefix p = parts->prefix;
    const uint32_t *const string = parts->string;
    const int k = parts->k, planes = parts->planes;
    int from[MM_EB_LAYERS_MOST + 2] = {planes + p.low * k}, left = k;
    padded buffers[2];
    for (int layer = 0; layer < p.layers; layer++) {
        from[layer + 1] = from[layer] + left;
        if (from[layer + 1] > parts->bits) return false;
        left = ones_of(string, from[layer], left);
    }
    if (!mm_eb_ends(parts, from[p.layers])) return false;
    const uint32_t *higher = p.layers > 0 ? read_layers(p, string, from, buffers) : buffers[0];
    const __m512 step = _mm512_set1_ps(z.step);
    for (int i = 0; i < k; i += 2 * LANES) {
        __m512i low = _mm512_setzero_si512(), bit = _mm512_set1_epi16(1);
        for (int at = planes + i; at < from[0]; at += k, bit = _mm512_slli_epi16(bit, 1))
            low = _mm512_mask_add_epi16(low, bits_at(string, at), low, bit);
        const uint32_t ones = p.layers > 0 ? bits_at(string, from[0] + i) : 0;
        const __m256i lows[2] = {_mm512_castsi512_si256(low), _mm512_extracti64x4_epi64(low, 1)};
        for (int j = 0; j < 2; j++) {
            const __mmask16 layer = (__mmask16)(ones >> LANES * j);
            const __m512i high = _mm512_slli_epi32(ones_from(layer, higher), (unsigned)p.low);
            const __m512i u = _mm512_or_si512(high, _mm512_cvtepu16_epi32(lows[j]));
            _mm512_storeu_si512(values + i + LANES * j, values_of(step, u, p.negatives));
            higher += __builtin_popcount(layer);
        }
    }
    return true;
}

MM_CHUNK_AVX512 static bool decode_avx512(const mm_chunk_params *params, const uint32_t *words, int count, int n,
                                          float *dst) {
    const mm_eb_quantiser z = mm_eb_quantiser_of(params->bound);
    padded string, values;
    mm_eb_parts parts;
    if (count == 0) {
        memset(dst, 0, (size_t)n * sizeof *dst);
        return true;
    }
    memcpy(string, words, (size_t)count * sizeof *string);
    memset(string + count, 0, 2 * sizeof *string);
    if (z.bound == 0 || !parts_of(string, count, n, &parts) || !read_values(z, &parts, values)) return false;
    mm_chunk_spread_avx512(values, n, parts.masks, dst);
    return true;
}
#endif

static const mm_chunk_host eb_host = {&mm_eb_kind, MM_CHUNK_ISA_LIST(encode), MM_CHUNK_ISA_LIST(decode)};
const mm_codec_ops mm_codec_eb_host_ops = MM_CHUNK_HOST_OPS("eb", MM_EB_SUMMARY, &eb_host, .reads_bound = true);

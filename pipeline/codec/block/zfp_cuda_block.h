/* SPDX-License-Identifier: MIT */
/* Encodes and decodes a block of zfp in a thread's registers: for the kernels of zfp_cuda_*.cu, and for other kernels
 * that have blocks in registers (code_blocks_cuda.h). zfp_cuda_kernel.h says what limits its speed.
 *
 * A code of few words (WORDS) is a queue: bits enter at the upper end and leave at the lower one, and all words are
 * shifted, with one funnel shift for each. So no index of a word depends on data. For .cu files. */
#ifndef PIPELINE_CODEC_BLOCK_ZFP_CUDA_BLOCK_H
#define PIPELINE_CODEC_BLOCK_ZFP_CUDA_BLOCK_H

#include <stdint.h>

#include "mm/device/cuda/cuda_launch.h"

#define MM_HD                       __device__ __forceinline__
#define MM_HD_CONSTEXPR             constexpr __host__ __device__ __forceinline__
#define MM_UNROLL                   _Pragma("unroll")
#define MM_LENGTH32(x)              (32 - __clz((int)(x)))
#define MM_ABOVE32(x)               __clz((int)(x))
#define MM_CONSTANT(x)              opaque(x)
#define MM_POPC32(x)                __popc(x)
#define MM_POPC64(x)                __popcll(x)
#define MM_DOUBLE_ONES(x)           doubled_ones(x)
#define MM_UNDOUBLE(code)           undoubled(code)
#define MM_SHIFT_RIGHT(x, by)       __funnelshift_r(x, 0, by)
#define MM_SHIFT_LEFT(x, by)        __funnelshift_l(0, x, (unsigned)(by))
#define MM_DROP(x, above)           __funnelshift_lc(x, 0, (unsigned)(above))
#define MM_SPLICE(low, high, above) spliced(low, high, (unsigned)(above))
#define MM_BYTES(a, b, i, j, k, l)  __byte_perm(a, b, (i) | (j) << 4 | (k) << 8 | (l) << 12)
#define MM_INTEGER(value, scale, infinite)                                                                             \
    (uint32_t) __float2int_rz(__fmaf_rn(value, scale, (infinite) ? -4294967296.0f : 0.0f))

namespace {

/* x, hidden from the compiler's optimisation. */
MM_HD uint32_t opaque(uint32_t x) {
    asm("" : "+r"(x));
    return x;
}

/* Tables of the functions of zfp_plane.h, for all bytes (lower, upper) and for all parts (undouble). Neighbouring
 * threads have planes with few and with many ones: loops over ones take as long as the longest, lookups do not. A
 * kernel has either the tables for encoding (lower, upper) or the table for decoding (undouble). */
struct tables_of_block {
    union {
        /* lower: the doubled byte at the upper end of the word; in the low bits, the shift that appends the code of the
         * upper byte. */
        struct {
            uint32_t lower[256];
            uint32_t upper[256];
        };
        alignas(sizeof(uint4)) uint32_t undouble[1024];
    };
};

MM_HD tables_of_block &tables() {
    __shared__ tables_of_block of;
    return of;
}

/* mm_zfp_double_ones of x < 2^16. */
MM_HD uint32_t doubled_ones(uint32_t x) {
    const uint32_t lower = tables().lower[opaque(x & 0xff)];
    return __funnelshift_r(lower, tables().upper[opaque(x >> 8)], lower);
}

/* 2 * mm_zfp_double_ones(x) + 1 of x < 2^15, if the table was made with after_one. */
MM_HD uint32_t doubled_ones_after_one(uint32_t x) { return doubled_ones(x); }

MM_HD uint32_t undoubled(uint32_t code) { return tables().undouble[opaque(code & 0x3ff)]; }

/* The larger magnitude, or a NaN if one of the values is. */
MM_HD float largest_or_nan(float a, float b) {
#ifdef __CUDA_ARCH__
    float largest;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(fabsf(a)), "f"(fabsf(b)));
    return largest;
#else
    return b != b || fabsf(a) < fabsf(b) ? fabsf(b) : fabsf(a);
#endif
}

/* MM_SPLICE: the low 32 - above bits of `low`, then `high`. */
MM_HD uint32_t spliced(uint32_t low, uint32_t high, unsigned above) {
    return __funnelshift_rc(__funnelshift_lc(0, low, above), high, above);
}

} // namespace

#include "pipeline/codec/block/zfp_block.h"

namespace {

constexpr unsigned WARP = 32, ALL = 0xffffffff;

/* Makes a table. All `threads` threads of a block call tables_make_doubled or tables_make_undouble before anything
 * else. after_one: for doubled_ones_after_one. */
MM_HD void tables_make_doubled(bool after_one, uint32_t thread, uint32_t threads) {
    for (uint32_t i = thread; i < 256; i += threads) {
        const uint32_t doubled = mm_zfp_double_ones(i), above = (after_one ? 23 : 24) - (uint32_t)__popc(i);
        tables().lower[i] = (after_one ? 2 * doubled + 1 : doubled) << above | above;
        tables().upper[i] = doubled;
    }
    __syncthreads();
}

/* The compiler computes this table: a kernel would need as much time to do so as to process a small map. */
struct table_of_parts {
    alignas(sizeof(uint4)) uint32_t at[1 << MM_ZFP_PART_BITS];

    __host__ __device__ constexpr table_of_parts() : at() {
        for (uint32_t i = 0; i < 1 << MM_ZFP_PART_BITS; i++) at[i] = mm_zfp_undouble(i);
    }
};
__device__ constexpr table_of_parts parts;

MM_HD void tables_make_undouble(uint32_t thread, uint32_t threads) {
    static_assert(sizeof tables().undouble == sizeof parts, "one for each");
    const uint4 *from = reinterpret_cast<const uint4 *>(parts.at);
    uint4 *to = reinterpret_cast<uint4 *>(tables().undouble);
    for (uint32_t i = thread; i < sizeof parts / sizeof *to; i += threads) to[i] = from[i];
    __syncthreads();
}

/* ---------------------------------------------------------------- where a line's values are */

/* Offsets of the 4 values of a line. For values outside the map: the offset of the value that replaces them, as zfp
 * pads lines. */
struct line {
    int inside, offset[4];
};

MM_HD line line_within(uint32_t left, uint32_t stride) {
    line l;
    l.inside = left < 4 ? (int)left : 4;
    l.offset[0] = 0;
    l.offset[1] = l.inside > 1 ? (int)stride : 0;
    l.offset[2] = l.inside > 2 ? (int)(2 * stride) : l.offset[1];
    l.offset[3] = l.inside > 3 ? (int)(3 * stride) : 0;
    return l;
}

/* ---------------------------------------------------------------- where a warp's codes are */

__host__ __device__ inline int words_of(int maxbits) { return (maxbits + 31) / 32; }

/* Position of a lane's code of WORDS words (at least 2; the last may not be full) among the warp's words: the word and
 * bit where it begins, whether it extends into one more word (over), and whether the next lane's code begins in its
 * last word. */
template <int WORDS> struct code_place {
    uint32_t word, shift;
    bool over, shares_last;

    MM_HD code_place(uint32_t lane, int maxbits)
        : word(lane * (uint32_t)maxbits / 32), shift(lane * (uint32_t)maxbits % 32),
          over(shift + (uint32_t)maxbits > 32 * WORDS), shares_last((shift + (uint32_t)maxbits) % 32 != 0) {}
};

/* ---------------------------------------------------------------- encoding in registers */

template <int WORDS> struct queue {
    uint32_t word[WORDS];
    int left; /* number of bits that still fit */
};

/* Puts the low `length` < 32 bits of `bits`; they must fit. */
template <int WORDS> MM_HD void queue_put(queue<WORDS> &q, uint32_t bits, int length) {
    MM_UNROLL for (int j = 0; j < WORDS; j++) q.word[j] =
        __funnelshift_r(q.word[j], j + 1 < WORDS ? q.word[j + 1] : bits, (unsigned)length);
    q.left -= length;
}

/* What the code of a plane depends on: `seen` has the bits set in higher planes; above is 32 less the length of
 * `seen`. */
struct planes_state {
    uint32_t seen;
    int above;
};

/* The code of a plane, as mm_zfp_plane_encode makes it. The upper bits of x may be another plane's. The code's last bit
 * is the inserted one, not yet made zero, unless the last coefficient is significant: then *last_out has a one at the
 * upper end. */
template <int VALUES>
MM_HD uint32_t plane_encode(uint32_t x, planes_state *state, int *length_out, uint32_t *last_out) {
    const uint32_t rest = MM_DROP(x & mm_zfp_ones(VALUES - 1), state->above);
    const uint32_t code = MM_SPLICE(x, doubled_ones_after_one(rest), state->above);
    state->seen |= x & mm_zfp_ones(VALUES);
    state->above = MM_ABOVE32(state->seen);
    *last_out = state->seen << (32 - VALUES);
    *length_out = 33 - state->above + MM_POPC32(rest) + ((int)*last_out >> 31);
    return code;
}

/* Puts the bits of a finite, non-zero block of exponent e, except the last q->left (< 32) bits, which it returns (or
 * zeros).
 *
 * The code of the plane that fills the queue is returned instead of put, so that no other plane has to check how much
 * room is left. plane_encode leaves a one where the code ends with an inserted zero; that one is made zero once the
 * code is in the queue, where its position is known. The highest plane is zero in most blocks, and its bit is then put
 * with the header: if this holds for all blocks of a warp, the warp skips the plane. */
template <int DIMS, int WORDS> MM_HD uint32_t planes_put(const float *values, int e, queue<WORDS> *q) {
    constexpr int VALUES = 1 << 2 * DIMS;
    constexpr uint32_t TOP = UINT32_C(1) << 31;
    uint32_t coefficients[16], planes[8], last;
    planes_state state = {0, 32};
    int length;
    mm_zfp_coefficients(values, DIMS, e, coefficients);
    MM_UNROLL for (int half = 1; half >= 0; half--) {
        mm_zfp_halves(coefficients, DIMS, half, planes);
        mm_zfp_planes(DIMS, planes);
        MM_UNROLL for (int j = 1; j < 8; j += 2) planes[j] = MM_CONSTANT(planes[j]); /* flipped now, not at each use */
        const bool skips = half == 1 && q->left > MM_ZFP_HEADER_BITS && (planes[7] & 0xffff) == 0;
        if (half == 1) queue_put(*q, 2 * (uint32_t)e + 1, MM_ZFP_HEADER_BITS + skips);
        MM_UNROLL for (int j = 15; j >= 0; j--) {
            if (j == 15 && skips) continue;
            const uint32_t code =
                plane_encode<VALUES>(j >= 8 ? planes[j & 7] : planes[j & 7] >> 16, &state, &length, &last);
            if (length >= q->left) return code ^ (~last & TOP) >> (32 - length);
            queue_put(*q, code, length);
            q->word[WORDS - 1] ^= ~last & TOP;
        }
    }
    while (q->left > 31) queue_put(*q, 0, 31);
    return 0;
}

/* Encodes a finite block to maxbits bits, with zeros above. */
template <int DIMS, int WORDS> MM_HD void encode_words(const float *values, int e, int maxbits, uint32_t *words) {
    MM_UNROLL for (int j = 0; j < WORDS; j++) words[j] = 0;
    if (e == 0) return;
    queue<WORDS> q = {{}, maxbits};
    const uint32_t rest = planes_put<DIMS>(values, e, &q);
    queue_put(q, rest, q.left);
    MM_UNROLL for (int j = 0; j < WORDS; j++) words[j] =
        __funnelshift_r(q.word[j], j + 1 < WORDS ? q.word[j + 1] : 0, (unsigned)(32 * WORDS - maxbits));
}

/* Encodes any block. e: its exponent_of, or 0 to encode zeros. */
template <int DIMS, int WORDS> MM_HD void block_encode(const float *values, int e, int maxbits, uint32_t *words) {
    if (e != MM_ZFP_NONFINITE) {
        encode_words<DIMS, WORDS>(values, e, maxbits, words);
    } else {
        MM_UNROLL for (int j = 0; j < WORDS; j++) words[j] = mm_zfp_nonfinite_word(values, DIMS, maxbits, j);
    }
}

template <int WORDS> MM_HD void words_store(const uint32_t *words, uint64_t block, uint32_t *dst) {
    if constexpr (WORDS == 1) dst[block] = words[0];
    if constexpr (WORDS == 2) reinterpret_cast<uint2 *>(dst)[block] = make_uint2(words[0], words[1]);
    if constexpr (WORDS == 4)
        reinterpret_cast<uint4 *>(dst)[block] = make_uint4(words[0], words[1], words[2], words[3]);
}

/* Stores the codes of all lanes to the warp's `count` words. A lane writes each word whose lowest bit is its own. */
template <int WORDS>
MM_HD void words_store_shifted(int maxbits, const uint32_t *words, uint32_t count, uint32_t lane, uint32_t *dst) {
    const code_place<WORDS> at(lane, maxbits);
    uint32_t shifted[WORDS + 1];
    MM_UNROLL for (int j = 0; j <= WORDS; j++) shifted[j] =
        __funnelshift_l(j > 0 ? words[j - 1] : 0, j < WORDS ? words[j] : 0, at.shift);
    const uint32_t next = __shfl_down_sync(ALL, shifted[0], 1), shared = at.shares_last ? next : 0;
    if (at.over)
        shifted[WORDS] |= shared;
    else
        shifted[WORDS - 1] |= shared;

    uint32_t *const to = dst + at.word;
    MM_UNROLL for (int j = 0; j <= WORDS; j++) {
        if ((j == 0 && at.shift > 0) || (j == WORDS && !at.over)) continue;
        if (at.word + j < count) to[j] = shifted[j];
    }
    if (lane == WARP - 1 && count > (uint32_t)maxbits) dst[count - 1] = 0; /* padding */
}

/* The same as mm_zfp_exponent, from the largest magnitude, or a NaN. */
template <int DIMS> MM_HD int exponent_of(const float *values) {
    float top = 0;
    MM_UNROLL for (int i = 0; i < 1 << 2 * DIMS; i++) top = largest_or_nan(top, values[i]);
    const uint32_t bits = mm_float_bits(top);
    return (int)(bits >> 23) + (bits != 0);
}

/* ---------------------------------------------------------------- decoding in registers */

/* The same as mm_zfp_plane_decode, but with bits at their position in the plane, not in its rest. *past: position after
 * the code less the block's end (negative inside the block); updated. */
template <int VALUES> MM_HD uint32_t plane_decode(uint32_t window, int *past, int *n, int *length_out) {
    const uint32_t verbatim = UINT32_MAX << *n;
    uint32_t code = window >> *n, part = MM_UNDOUBLE(code), rest = part << *n; /* and bits beyond the plane's last */
    int behind = *n + mm_zfp_part_count(part);
    while (behind < VALUES - 1 - MM_ZFP_GOES_ON) {
        code = MM_SHIFT_RIGHT(code, part >> 16) | 1;
        part = MM_UNDOUBLE(code);
        rest |= MM_SHIFT_LEFT(part, behind);
        behind += mm_zfp_part_count(part) + MM_ZFP_GOES_ON;
    }
    rest &= mm_zfp_ones(VALUES - 1);
    const int next = mm_zfp_least(behind, VALUES), length = mm_zfp_least(behind, VALUES - 1) + MM_POPC32(rest) + 1;
    *past += length;
    const int cut = *past > 0 ? *past : 0;
    if (next == VALUES) rest |= UINT32_C(1) << (VALUES - 1) >> cut; /* the implied one; none if the rest is empty */
    *n = next;
    *length_out = length;
    return (window & ~verbatim) | (rest & verbatim);
}

/* Decodes a block for which mm_zfp_is_nonfinite is false. Bits past maxbits must be zero. Overwrites `words`. A block
 * of zeros takes the same path: it decodes one plane, which is zero. */
template <int DIMS, int WORDS> MM_HD void decode_words(uint32_t *words, int maxbits, float *values) {
    uint32_t planes[2][8];
    const int e = (int)(words[0] >> 1 & 255);
    int past = words[0] & 1 ? MM_ZFP_HEADER_BITS - maxbits : -1, n = 0, length = MM_ZFP_HEADER_BITS;
    MM_UNROLL for (int half = 1; half >= 0; half--) {
        if (half == 0 && past >= 0) {
            mm_zfp_unplanes(DIMS, false, planes[half]);
            continue;
        }
        MM_UNROLL for (int i = 0; i < 8; i++) planes[half][i] = MM_CONSTANT(0);
        MM_UNROLL for (int j = 15; j >= 0; j--) {
            MM_UNROLL for (int i = 0; i < WORDS; i++) words[i] =
                __funnelshift_r(words[i], i + 1 < WORDS ? words[i + 1] : 0, (unsigned)length);
            const uint32_t plane = plane_decode<1 << 2 * DIMS>(words[0], &past, &n, &length);
            if (j >= 8)
                planes[half][j & 7] = plane;
            else
                planes[half][j & 7] += plane << 16;
            if (past >= 0) break;
        }
        mm_zfp_unplanes(DIMS, true, planes[half]);
    }
    mm_zfp_values_of(planes[0], planes[1], DIMS, e, values);
}

/* Number of words that hold the classes, and one more that is read. */
template <int DIMS> constexpr int class_words = 2 * (1 << 2 * DIMS) / 32 + 2;

/* Decodes any block. words: WORDS words, then class_words zeros. Overwrites `words`. */
template <int DIMS, int WORDS> MM_HD void block_decode(uint32_t *words, int maxbits, float *values) {
    if (mm_zfp_is_nonfinite(words, DIMS))
        mm_zfp_nonfinite_decode(words, DIMS, maxbits, values);
    else
        decode_words<DIMS, WORDS>(words, maxbits, values);
}

template <int WORDS> MM_HD void words_load(const uint32_t *src, uint64_t block, uint32_t *words) {
    if constexpr (WORDS == 1) words[0] = src[block];
    if constexpr (WORDS == 2) {
        const uint2 two = reinterpret_cast<const uint2 *>(src)[block];
        words[0] = two.x, words[1] = two.y;
    }
    if constexpr (WORDS == 4) {
        const uint4 four = reinterpret_cast<const uint4 *>(src)[block];
        words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    }
}

/* Loads a lane's code from the warp's `count` words; zeros past maxbits. */
template <int WORDS>
MM_HD void words_load_shifted(int maxbits, const uint32_t *src, uint32_t count, uint32_t lane, uint32_t *words) {
    const code_place<WORDS> at(lane, maxbits);
    const uint32_t *const from = src + at.word;
    uint32_t loaded[WORDS + 1];
    MM_UNROLL for (int j = 0; j <= WORDS; j++) loaded[j] = at.word + j < count ? from[j] : 0;
    MM_UNROLL for (int j = 0; j < WORDS; j++) words[j] = __funnelshift_r(loaded[j], loaded[j + 1], at.shift);
    words[WORDS - 1] &= UINT32_MAX >> (32 * WORDS - maxbits);
}

} // namespace

#endif

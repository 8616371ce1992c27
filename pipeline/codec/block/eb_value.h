/* SPDX-License-Identifier: MIT */
/* One value of the eb codec: plain C functions of its quantiser, the same on every device.
 *
 * E is the error bound, and s = 63/32 E a step. |x| < E becomes 0; else x becomes q = floor(|x| / s + 1/2) and a sign,
 * which is decoded to x' = q * s with that sign. As long as q <= 2^14, float arithmetic errs by less than 2^-8 of a
 * step in all: |x| / s by 2^-9, adding 1/2 by 2^-10, q * s by 2^-10. So |x - x'| <= s * (1/2 + 2^-8) < E. Each
 * operation is rounded once, to nearest: CUDA must not fuse two into one (MM_EB_MUL).
 *
 * A code has one number u < 2^15 for each value that is not 0 (eb_chunk.h): q - 1 if its chunk has no negative value,
 * else 2 (q - 1) + sign. */
#ifndef PIPELINE_CODEC_BLOCK_EB_VALUE_H
#define PIPELINE_CODEC_BLOCK_EB_VALUE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "pipeline/codec/block/float_bits.h"

#ifndef MM_HD
#define MM_HD static inline __attribute__((always_inline))
#endif

/* Products and quotients rounded once. */
#ifdef __CUDA_ARCH__
#define MM_EB_MUL(a, b)  __fmul_rn(a, b)
#define MM_EB_INVERSE(a) __frcp_rn(a)
#else
#define MM_EB_MUL(a, b)  ((a) * (b))
#define MM_EB_INVERSE(a) (1.0f / (a))
#endif

/* Limits of E, so that steps, their inverses and all decoded values are normal floats. */
#define MM_EB_LEAST 1e-30f
#define MM_EB_MOST  1e30f

enum { MM_EB_Q_MOST = 1 << 14, MM_EB_INFINITY = 0x7f800000 };

typedef struct mm_eb_quantiser {
    float bound, step, inverse; /* bound 0: there is no bound, and nothing is lost */
} mm_eb_quantiser;

MM_HD mm_eb_quantiser mm_eb_quantiser_of(float bound) {
    mm_eb_quantiser z = {0, 0, 0};
    if (!(bound >= MM_EB_LEAST && bound <= MM_EB_MOST)) return z;
    z.bound = bound;
    z.step = MM_EB_MUL(bound, 1.96875f);
    z.inverse = MM_EB_INVERSE(z.step);
    return z;
}

/* Whether the float with these bits is decoded as 0. */
MM_HD bool mm_eb_is_below(mm_eb_quantiser z, uint32_t bits) { return mm_float_of(bits & 0x7fffffff) < z.bound; }

/* An element as it is stored in a raw chunk (eb_chunk.h). */
MM_HD uint32_t mm_eb_raw(mm_eb_quantiser z, uint32_t bits) { return mm_eb_is_below(z, bits) ? 0 : bits; }

MM_HD bool mm_eb_is_finite(uint32_t bits) { return (bits & 0x7fffffff) < MM_EB_INFINITY; }

/* q (at least 1) of an element that is not below the bound. If it is above MM_EB_Q_MOST, the chunk is stored raw. Of a
 * NaN: any number. */
MM_HD uint32_t mm_eb_quantise(mm_eb_quantiser z, uint32_t bits) {
    const float steps = MM_EB_MUL(mm_float_of(bits & 0x7fffffff), z.inverse);
    return steps < 2 * MM_EB_Q_MOST ? (uint32_t)(int32_t)(steps + 0.5f) : 2 * MM_EB_Q_MOST; /* NOLINT: halves go up */
}

/* The element that u stands for. */
MM_HD uint32_t mm_eb_value(mm_eb_quantiser z, uint32_t u, bool negatives) {
    const uint32_t q = (negatives ? u >> 1 : u) + 1, sign = negatives ? u << 31 : 0;
    return mm_float_bits(MM_EB_MUL((float)(int32_t)q, z.step)) | sign;
}

/* ---------------------------------------------------------------- a chunk's string of bits */

enum { MM_EB_LAYERS_MOST = 31, MM_EB_PREFIX_BITS = 14 };

/* Fields of its first MM_EB_PREFIX_BITS bits; eb_chunk.h says what they mean. */
typedef struct mm_eb_prefix {
    int low, layers; /* 0 to 15, 0 to MM_EB_LAYERS_MOST */
    int before;      /* 0: the masks themselves are coded; 1 to 7: their changes (eb_mask.h) */
    bool negatives, ones;
} mm_eb_prefix;

MM_HD uint32_t mm_eb_prefix_bits(mm_eb_prefix p) {
    return (uint32_t)p.negatives | (uint32_t)p.low << 1 | (uint32_t)p.layers << 5 | (uint32_t)p.before << 10 |
           (uint32_t)p.ones << 13;
}

MM_HD mm_eb_prefix mm_eb_prefix_of(uint32_t bits) {
    const mm_eb_prefix p = {(int)(bits >> 1 & 15), (int)(bits >> 5 & MM_EB_LAYERS_MOST), (int)(bits >> 10 & 7),
                            (bits & 1) != 0, (bits >> 13 & 1) != 0};
    return p;
}

/* One bit of a string. */
MM_HD uint32_t mm_eb_bit(const uint32_t *string, int at) { return string[at / 32] >> at % 32 & 1; }

/* `count` (0 to 32) bits of a string from bit `at` > 0 on. Reads only words that have one of these bits, or the bit
 * before them. */
MM_HD uint32_t mm_eb_bits(const uint32_t *string, int at, int count) {
    const unsigned last = (unsigned)(at + count - 1) / 32, first = (unsigned)at / 32 < last ? (unsigned)at / 32 : last;
    const uint64_t bits = string[first] | (uint64_t)string[last] << 32;
    return (uint32_t)(bits >> at % 32 & (((uint64_t)1 << count) - 1));
}

/* A lower bound of the prefix's `low` that encode chooses (eb_chunk.h), for numbers u of a given sum and maximum.
 * Proof: halves(low) <= kept means that the sum of all u >> low is at most 2 kept; each is above u / 2^low - 1; so sum
 * / 2^low < 3 kept. */
MM_HD int mm_eb_low_least(uint32_t sum, uint32_t most, uint32_t kept) {
    int low = 0;
    while (sum > 3 * kept << low || most >> low > MM_EB_LAYERS_MOST) low++;
    return low;
}

#endif

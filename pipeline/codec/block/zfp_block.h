/* SPDX-License-Identifier: MIT */
/* Encodes one block of floats to `maxbits` bits of fixed-rate ZFP, and decodes it. Plain C functions, the same on every
 * device. Bits of a finite block, and floats decoded from them, equal those of libzfp 1.0.
 *
 * A block has 4, 4x4 or 4x4x4 values (dims 1, 2, 3), x fastest. The format (P. Lindstrom, Fixed-Rate Compressed
 * Floating-Point Arrays, TVCG 2014, as in libzfp):
 *   - a zero bit alone means that all values are 0; else follow a one bit and the block's exponent e, in 8 bits;
 *   - the values become 32-bit integers of a common scale, are decorrelated along x, then y, then z, ordered by
 *     frequency and mapped to negabinary;
 *   - the bit planes follow, highest first (zfp_plane.h), until maxbits are used up.
 *
 * Our extension: a block with infinities or NaNs is a zero bit, then two bits for each value (MM_ZFP_CLASS_*), those of
 * value i at bits 1 + 2i and 2 + 2i, then zeros. If that does not fit, it is a zero bit and ones: all values are NaN.
 * libzfp decodes both as zeros.
 *
 * We keep a fault of libzfp, so that our bits equal libzfp's: if all values are below 2^-98, the scale overflows and
 * all integers become INT32_MIN, so decoded values have no correct digit, only a magnitude of at most 2^-95.
 *
 * Words are 32 bits; block bit i is bit i % 32 of word i / 32. Callers pass `dims` as a constant, so that loops are
 * unrolled and arrays become registers. */
#ifndef PIPELINE_CODEC_BLOCK_ZFP_BLOCK_H
#define PIPELINE_CODEC_BLOCK_ZFP_BLOCK_H

#include "pipeline/codec/block/zfp_plane.h" /* first: it defines MM_HD, and the other macros with it */

#include "pipeline/codec/block/float_bits.h"

enum {
    MM_ZFP_MIN_BITS = 1 + 8,
    MM_ZFP_HEADER_BITS = 1 + 8,
    MM_ZFP_BITS_PER_VALUE = 32,  /* the highest rate */
    MM_ZFP_SCALE_BIAS = 284,     /* 2^(30 - emax), emax = e - 127, has the exponent field 284 - e */
    MM_ZFP_NONFINITE = 256,      /* exponent of a block with infinities or NaNs */
    MM_ZFP_INT_MIN_EXPONENT = 29 /* highest e whose scale overflows */
};

/* 2-D blocks. */
enum {
    MM_ZFP_VALUES = 16,
    MM_ZFP_MAX_BITS = MM_ZFP_BITS_PER_VALUE * MM_ZFP_VALUES,
    MM_ZFP_MAX_WORDS = MM_ZFP_MAX_BITS / 32,
    MM_ZFP_CLASS_BITS = 1 + 2 * MM_ZFP_VALUES,
};

/* Blocks of any dimension. */
enum {
    MM_ZFP_MOST_VALUES = 64,
    MM_ZFP_MOST_WORDS = MM_ZFP_MOST_VALUES * MM_ZFP_BITS_PER_VALUE / 32,
    MM_ZFP_PAD_WORDS = 3, /* words after a block's last that are read; their content does not matter */
};

/* Two's complement becomes negabinary by adding this number, and then flipping these bits. */
#define MM_ZFP_NEGABINARY UINT32_C(0xaaaaaaaa)

/* Order of coefficients by frequency: the i-th lies at ORDER[i] in the block. */
#define MM_ZFP_ORDER                                                                                                   \
    { 0, 1, 4, 5, 2, 8, 6, 9, 3, 12, 10, 7, 13, 11, 14, 15 }
#define MM_ZFP_ORDER_3                                                                                                 \
    {                                                                                                                  \
        0, 1, 4, 16, 20, 17, 5, 2, 8, 32, 21, 6, 18, 24, 9, 33, 36, 3, 12, 48, 22, 25, 37, 40, 34, 10, 7, 19, 28, 13,  \
            49, 52, 41, 38, 26, 23, 29, 53, 11, 35, 44, 14, 50, 56, 42, 27, 39, 45, 30, 54, 57, 60, 51, 15, 43, 46,    \
            58, 61, 55, 31, 62, 59, 47, 63                                                                             \
    }

/* The two bits for each value of a block that is not finite. */
enum { MM_ZFP_CLASS_FINITE, MM_ZFP_CLASS_PLUS_INF, MM_ZFP_CLASS_MINUS_INF, MM_ZFP_CLASS_NAN };

MM_HD int mm_zfp_words(int maxbits) { return (maxbits + 31) / 32; }

/* Number of values in a block. */
MM_HD_CONSTEXPR int mm_zfp_values(int dims) { return 1 << 2 * dims; }

/* Number of groups of 16 coefficients in a block; a 1-D block fills a quarter of one. */
MM_HD int mm_zfp_groups(int dims) { return dims == 3 ? 4 : 1; }

/* ---------------------------------------------------------------- values and coefficients */

/* The block's exponent e; 0: all values are zero; MM_ZFP_NONFINITE. */
MM_HD int mm_zfp_exponent(const float *values, int dims) {
    uint32_t top = 0; /* largest magnitude: bits without the sign */
    MM_UNROLL for (int i = 0; i < mm_zfp_values(dims); i++) {
        const uint32_t magnitude = mm_float_bits(values[i]) << 1;
        top = magnitude > top ? magnitude : top;
    }
    return top ? (int)(top >> 24) + 1 : 0;
}

/* Half of a two's complement number, rounded down. */
MM_HD uint32_t mm_zfp_half(uint32_t x) { return (uint32_t)((int32_t)x >> 1); }

MM_HD void mm_zfp_lift(uint32_t *v, int stride) {
    uint32_t x = v[0], y = v[stride], z = v[2 * stride], w = v[3 * stride];
    x = mm_zfp_half(x + w), w -= x;
    z = mm_zfp_half(z + y), y -= z;
    x = mm_zfp_half(x + z), z -= x;
    w = mm_zfp_half(w + y), y -= w;
    w += mm_zfp_half(y), y -= mm_zfp_half(w);
    v[0] = x, v[stride] = y, v[2 * stride] = z, v[3 * stride] = w;
}

MM_HD void mm_zfp_unlift(uint32_t *v, int stride) {
    uint32_t x = v[0], y = v[stride], z = v[2 * stride], w = v[3 * stride];
    y += mm_zfp_half(w), w -= mm_zfp_half(y);
    y += w, w = 2 * w - y;
    z += x, x = 2 * x - z;
    y += z, z = 2 * z - y;
    w += x, x = 2 * x - w;
    v[0] = x, v[stride] = y, v[2 * stride] = z, v[3 * stride] = w;
}

/* Transforms all lines of the block along one dimension. */
MM_HD void mm_zfp_lift_lines(uint32_t *v, int dims, int stride) {
    MM_UNROLL for (int i = 0; i < mm_zfp_values(dims); i++) {
        if (i / stride % 4 == 0) mm_zfp_lift(v + i, stride);
    }
}

MM_HD void mm_zfp_unlift_lines(uint32_t *v, int dims, int stride) {
    MM_UNROLL for (int i = 0; i < mm_zfp_values(dims); i++) {
        if (i / stride % 4 == 0) mm_zfp_unlift(v + i, stride);
    }
}

/* Transposes 8x8 bits in place, in each byte of the words: bit j of word i becomes bit i of word j. */
MM_HD void mm_zfp_transpose(uint32_t words[8]) {
#define MM_ZFP_STAGE(step, mask)                                                                                       \
    MM_UNROLL for (int i = 0; i < 8; i++) {                                                                            \
        if (i & step) continue;                                                                                        \
        const uint32_t a = words[i], b = words[i + step], low = b << step, high = a >> step;                           \
        words[i] = low ^ ((low ^ a) & MM_CONSTANT(UINT32_C(mask)));                                                    \
        words[i + step] = b ^ ((b ^ high) & MM_CONSTANT(UINT32_C(mask)));                                              \
    }
    MM_ZFP_STAGE(4, 0x0f0f0f0f)
    MM_ZFP_STAGE(2, 0x33333333)
    MM_ZFP_STAGE(1, 0x55555555)
#undef MM_ZFP_STAGE
}

/* Flips every other plane, the second part of the conversion to negabinary. */
MM_HD void mm_zfp_flip(uint32_t planes[8]) { MM_UNROLL for (int j = 1; j < 8; j += 2) planes[j] = ~planes[j]; }

/* Index in the block of the i-th coefficient by frequency. */
MM_HD int mm_zfp_order(int dims, int i) {
    const int order_2[16] = MM_ZFP_ORDER, order_3[64] = MM_ZFP_ORDER_3;
    return dims == 1 ? i : dims == 2 ? order_2[i & 15] : order_3[i];
}

/* The coefficients by frequency, in mm_zfp_groups(dims) groups of 16, as integers that mm_zfp_planes converts to
 * negabinary. e: the block's exponent, neither 0 nor MM_ZFP_NONFINITE. */
MM_HD void mm_zfp_coefficients(const float *values, int dims, int e, uint32_t *coefficients) {
    uint32_t q[MM_ZFP_MOST_VALUES];
    const bool overflow = e <= MM_ZFP_INT_MIN_EXPONENT;
    const float scale = overflow ? 0 : mm_float_of((uint32_t)(MM_ZFP_SCALE_BIAS - e) << 23);
    MM_UNROLL for (int i = 0; i < mm_zfp_values(dims); i++) q[i] = MM_INTEGER(values[i], scale, overflow);
    MM_UNROLL for (int d = 0; d < dims; d++) mm_zfp_lift_lines(q, dims, 1 << 2 * d);
    MM_UNROLL for (int i = 0; i < 16 * mm_zfp_groups(dims); i++) {
        coefficients[i] = MM_ZFP_NEGABINARY;
        if (i < mm_zfp_values(dims)) coefficients[i] += q[mm_zfp_order(dims, i)];
    }
}

/* The upper or lower 16 bits of the coefficients, as input of mm_zfp_planes: 8 words for each group of 16. */
MM_HD void mm_zfp_halves(const uint32_t *coefficients, int dims, int half, uint32_t *halves) {
    MM_UNROLL for (int i = 0; i < 8 * mm_zfp_groups(dims); i++) {
        const uint32_t a = coefficients[i / 8 * 16 + i % 8], b = coefficients[i / 8 * 16 + i % 8 + 8];
        halves[i] = half ? MM_BYTES(a, b, 3, 7, 2, 6) : MM_BYTES(a, b, 1, 5, 0, 4);
    }
}

/* Converts a half of the coefficients to its 16 planes, in place. The j-th word of a group has plane j + 8 in its low
 * 16 bits and plane j in its high 16 bits, with coefficient i at bit i. Most blocks use up their bits before the planes
 * of the lower half, which are then not computed. */
MM_HD void mm_zfp_planes(int dims, uint32_t *halves) {
    MM_UNROLL for (int g = 0; g < mm_zfp_groups(dims); g++) {
        mm_zfp_transpose(halves + 8 * g);
        mm_zfp_flip(halves + 8 * g);
    }
}

/* 2^(emax - 30) with emax = e - 127, rounded to the nearest float: subnormal or 0 for small e. */
MM_HD float mm_zfp_unscale(int e) {
    return mm_float_of(e > 30 ? (uint32_t)(e - 30) << 23 : e >= 8 ? UINT32_C(1) << (e - 8) : 0);
}

/* The inverse of mm_zfp_planes, in place. reached: the code has planes of this half; else all its bits are zero. */
MM_HD void mm_zfp_unplanes(int dims, bool reached, uint32_t *planes) {
    if (!reached) {
        MM_UNROLL for (int i = 0; i < 8 * mm_zfp_groups(dims); i++) planes[i] = MM_ZFP_NEGABINARY;
        return;
    }
    MM_UNROLL for (int g = 0; g < mm_zfp_groups(dims); g++) {
        mm_zfp_flip(planes + 8 * g);
        mm_zfp_transpose(planes + 8 * g);
    }
}

/* The values, from both halves of the coefficients. */
MM_HD void mm_zfp_values_of(const uint32_t *low, const uint32_t *high, int dims, int e, float *values) {
    uint32_t q[MM_ZFP_MOST_VALUES];
    MM_UNROLL for (int i = 0; i < mm_zfp_values(dims); i++) {
        const uint32_t a = low[i / 16 * 8 + i % 8], b = high[i / 16 * 8 + i % 8];
        const uint32_t coefficient = i & 8 ? MM_BYTES(a, b, 3, 1, 7, 5) : MM_BYTES(a, b, 2, 0, 6, 4);
        q[mm_zfp_order(dims, i)] = coefficient - MM_ZFP_NEGABINARY;
    }
    MM_UNROLL for (int d = dims - 1; d >= 0; d--) mm_zfp_unlift_lines(q, dims, 1 << 2 * d);
    const float unscale = mm_zfp_unscale(e);
    MM_UNROLL for (int i = 0; i < mm_zfp_values(dims); i++) values[i] = unscale * (float)(int32_t)q[i];
}

/* Plane j of a half, with coefficient i at bit i. */
MM_HD uint32_t mm_zfp_plane(const uint32_t *planes, int j) { return planes[j & 7] >> 2 * (~j & 8) & 0xffff; }

MM_HD uint64_t mm_zfp_plane_3(const uint32_t *planes, int j) {
    const uint32_t low = mm_zfp_plane(planes, j) | mm_zfp_plane(planes + 8, j) << 16;
    const uint32_t high = mm_zfp_plane(planes + 16, j) | mm_zfp_plane(planes + 24, j) << 16;
    return low | (uint64_t)high << 32;
}

MM_HD void mm_zfp_set_plane(uint32_t *planes, int j, uint32_t bits) { planes[j & 7] |= bits << 2 * (~j & 8); }

/* ---------------------------------------------------------------- blocks */

/* Encodes any finite block; writes mm_zfp_words(maxbits) words. */
MM_HD void mm_zfp_block_encode(const float *values, int dims, int e, int maxbits, uint32_t *words) {
    mm_zfp_writer out = mm_zfp_writer_make(words, maxbits);
    if (e) {
        uint32_t coefficients[MM_ZFP_MOST_VALUES], seen = 0;
        uint32_t planes[MM_ZFP_MOST_VALUES / 2], lower[MM_ZFP_MOST_VALUES / 2];
        mm_zfp_coefficients(values, dims, e, coefficients);
        mm_zfp_halves(coefficients, dims, 1, planes);
        mm_zfp_halves(coefficients, dims, 0, lower); /* takes half the registers of `coefficients` */
        mm_zfp_put(&out, 2 * (uint32_t)e + 1, MM_ZFP_HEADER_BITS);
        int n = 0;
        for (int half = 1; half >= 0 && !mm_zfp_full(&out); half--) {
            MM_UNROLL for (int i = 0; i < 8 * mm_zfp_groups(dims) && !half; i++) planes[i] = lower[i];
            mm_zfp_planes(dims, planes);
            MM_UNROLL for (int j = 15; j >= 0; j--) {
                if (mm_zfp_full(&out)) break;
                if (dims == 3) {
                    mm_zfp_plane_put(&out, mm_zfp_plane_3(planes, j), &n);
                } else {
                    int length;
                    const uint32_t code =
                        mm_zfp_plane_encode(mm_zfp_plane(planes, j), mm_zfp_values(dims), &seen, &length);
                    mm_zfp_put(&out, code & mm_zfp_ones(length), length);
                }
            }
        }
    }
    mm_zfp_finish(&out);
}

/* Decodes a block from bit `start` of the words, unless mm_zfp_is_nonfinite holds for it. MM_ZFP_PAD_WORDS words after
 * the block's last must be readable. */
MM_HD void mm_zfp_block_decode(const uint32_t *words, int start, int dims, int maxbits, float *values) {
    uint32_t planes[2][MM_ZFP_MOST_VALUES / 2];
    const uint32_t header = mm_zfp_peek(words, start);
    const int end = start + (header & 1 ? maxbits : 0), e = header & 1 ? (int)(header >> 1 & 255) : 0;
    int position = start + MM_ZFP_HEADER_BITS, n = 0;
    MM_UNROLL for (int half = 1; half >= 0; half--) {
        const bool reached = position < end;
        MM_UNROLL for (int i = 0; i < 8 * mm_zfp_groups(dims); i++) planes[half][i] = MM_CONSTANT(0);
        MM_UNROLL for (int j = 15; j >= 0; j--) {
            if (position >= end) break;
            if (dims == 3) {
                const uint64_t x = mm_zfp_plane_get(words, end, &position, &n);
                MM_UNROLL for (int g = 0; g < 4; g++) {
                    mm_zfp_set_plane(planes[half] + 8 * g, j, (uint32_t)(x >> 16 * g) & 0xffff);
                }
            } else {
                int length;
                const int left = end - position;
                const uint32_t window = mm_zfp_peek(words, position) & (left < 32 ? mm_zfp_ones(left) : UINT32_MAX);
                mm_zfp_set_plane(planes[half], j, mm_zfp_plane_decode(window, left, mm_zfp_values(dims), &n, &length));
                position += length;
            }
        }
        mm_zfp_unplanes(dims, reached, planes[half]);
    }
    mm_zfp_values_of(planes[0], planes[1], dims, e, values);
}

/* ---------------------------------------------------------------- blocks that are not finite */

MM_HD uint32_t mm_zfp_class(float value) {
    const uint32_t bits = mm_float_bits(value), magnitude = bits & UINT32_C(0x7fffffff);
    if (magnitude < UINT32_C(0x7f800000)) return MM_ZFP_CLASS_FINITE;
    if (magnitude > UINT32_C(0x7f800000)) return MM_ZFP_CLASS_NAN;
    return bits >> 31 ? MM_ZFP_CLASS_MINUS_INF : MM_ZFP_CLASS_PLUS_INF;
}

/* Word j of the code of a block that is not finite. */
MM_HD uint32_t mm_zfp_nonfinite_word(const float *values, int dims, int maxbits, int j) {
    if (maxbits < 1 + 2 * mm_zfp_values(dims)) {
        const int left = maxbits - 32 * j;
        return (left < 32 ? mm_zfp_ones(left) : UINT32_MAX) & (j == 0 ? ~UINT32_C(1) : UINT32_MAX);
    }
    uint32_t word = 0;
    MM_UNROLL for (int i = 0; i < mm_zfp_values(dims); i++) {
        const uint32_t class_ = mm_zfp_class(values[i]);
        const int low = 1 + 2 * i - 32 * j; /* position of the class in this word */
        if (low >= 0 && low < 32) word |= class_ << low;
        if (low == -1) word |= class_ >> 1;
    }
    return word;
}

/* Whether a code is that of a block with infinities or NaNs. words: as many as the classes take, with zeros past
 * maxbits. */
MM_HD bool mm_zfp_is_nonfinite(const uint32_t *words, int dims) {
    uint32_t any = words[0];
    MM_UNROLL for (int j = 1; j <= 2 * mm_zfp_values(dims) / 32; j++) any |= words[j];
    return !(words[0] & 1) && any != 0;
}

MM_HD void mm_zfp_nonfinite_decode(const uint32_t *words, int dims, int maxbits, float *values) {
    const bool classes = maxbits >= 1 + 2 * mm_zfp_values(dims);
    MM_UNROLL for (int i = 0; i < mm_zfp_values(dims); i++) {
        const int low = 1 + 2 * i;
        uint32_t class_ = words[low / 32] >> low % 32 & 3;
        if (low % 32 == 31) class_ |= (words[low / 32 + 1] & 1) << 1;
        if (!classes) class_ = MM_ZFP_CLASS_NAN;
        values[i] = mm_float_of(class_ == MM_ZFP_CLASS_FINITE      ? 0
                                : class_ == MM_ZFP_CLASS_PLUS_INF  ? UINT32_C(0x7f800000)
                                : class_ == MM_ZFP_CLASS_MINUS_INF ? UINT32_C(0xff800000)
                                                                   : UINT32_C(0x7fc00000));
    }
}

#endif

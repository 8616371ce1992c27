/* One 4x4 block of floats to its `maxbits` bits of fixed-rate ZFP and back: plain C functions of the format, the same
 * on every device. A finite block's bits, and the floats made of them, are libzfp 1.0's, each one.
 *
 * The format (P. Lindstrom, Fixed-Rate Compressed Floating-Point Arrays, TVCG 2014, as libzfp has it):
 *   - a zero bit alone: all values are 0. Else a one bit and the block's exponent e, 8 bits;
 *   - the values become 32-bit integers of a common scale, are decorrelated along x, then y, ordered by frequency and
 *     mapped to negabinary;
 *   - the bit planes follow, highest first, each as one code of at most 31 bits, until maxbits are spent: the bits of
 *     the first n coefficients, where n counts those up to the last one seen set so far; then, as long as any
 *     coefficient from n on has its bit set, a one and the bits from n up to the next that is set; then a zero. What is
 *     implied at the 16th coefficient is left out.
 *
 * Ours: a block with infinities or NaNs is a zero bit, then two bits for each value (MM_ZFP_CLASSES). Where these do
 * not fit it is a zero bit and ones: all NaN. libzfp reads both as zeros.
 *
 * Not ours: where all values are below 2^-98 libzfp's scale overflows and every integer becomes INT32_MIN, so that what
 * is decoded has no digit right, only a magnitude of at most 2^-95. We keep its bits there too.
 *
 * Words are 32 bits, block bit i is bit i % 32 of word i / 32. An includer for another compiler may define MM_HD and
 * the three bit counts itself. */
#ifndef PIPELINE_CODEC_ZFP_BLOCK_H
#define PIPELINE_CODEC_ZFP_BLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef MM_HD
#define MM_HD        static inline
#define MM_CTZ32(x)  __builtin_ctz(x)
#define MM_CLZ32(x)  __builtin_clz(x)
#define MM_POPC32(x) __builtin_popcount(x)
#endif

enum {
    MM_ZFP_VALUES = 16,
    MM_ZFP_MIN_BITS = 1 + 8,
    MM_ZFP_MAX_BITS = 512,
    MM_ZFP_MAX_WORDS = MM_ZFP_MAX_BITS / 32,
    MM_ZFP_HEADER_BITS = 1 + 8,
    MM_ZFP_CLASS_BITS = 1 + 2 * MM_ZFP_VALUES,
    MM_ZFP_SCALE_BIAS = 284,     /* 2^(30 - emax), emax = e - 127, has the exponent field 284 - e */
    MM_ZFP_NONFINITE = 256,      /* in place of an exponent */
    MM_ZFP_INT_MIN_EXPONENT = 29 /* highest e whose scale overflows */
};

#define MM_ZFP_NEGABINARY UINT32_C(0xaaaaaaaa)

/* Coefficients by frequency: the i-th is at ORDER[i] in the block. */
#define MM_ZFP_ORDER                                                                                                   \
    { 0, 1, 4, 5, 2, 8, 6, 9, 3, 12, 10, 7, 13, 11, 14, 15 }

/* What two bits a value say of a block that is not finite. */
enum { MM_ZFP_CLASS_FINITE, MM_ZFP_CLASS_PLUS_INF, MM_ZFP_CLASS_MINUS_INF, MM_ZFP_CLASS_NAN };

MM_HD uint32_t mm_zfp_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

MM_HD float mm_zfp_float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* `count` < 32 ones. */
MM_HD uint32_t mm_zfp_ones(int count) { return (UINT32_C(1) << count) - 1; }

MM_HD int mm_zfp_words(int maxbits) { return (maxbits + 31) / 32; }

/* ---------------------------------------------------------------- values and coefficients */

/* e, 0 for zeros, MM_ZFP_NONFINITE. */
MM_HD int mm_zfp_exponent(const float values[MM_ZFP_VALUES]) {
    uint32_t top = 0;
    for (int i = 0; i < MM_ZFP_VALUES; i++) {
        const uint32_t magnitude = mm_zfp_float_bits(values[i]) & UINT32_C(0x7fffffff);
        if (magnitude > top) top = magnitude;
    }
    return top ? (int)(top >> 23) + 1 : 0;
}

/* Two's complement halves, rounded down. */
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

/* In place: bit j of word i becomes bit i of word j, separately in the low and the high halves of the words. So 16
 * coefficients become 32 planes, k in the low half of word k and k + 16 in its high half, and back. */
MM_HD void mm_zfp_transpose(uint32_t words[MM_ZFP_VALUES]) {
    const uint32_t masks[4] = {0x00ff00ff, 0x0f0f0f0f, 0x33333333, 0x55555555};
    for (int stage = 0; stage < 4; stage++) {
        const int step = 8 >> stage;
        for (int i = 0; i < MM_ZFP_VALUES; i++) {
            if (i & step) continue;
            const uint32_t swap = (words[i] >> step ^ words[i + step]) & masks[stage];
            words[i] ^= swap << step;
            words[i + step] ^= swap;
        }
    }
}

/* Of a block of exponent e, which is neither 0 nor MM_ZFP_NONFINITE. */
MM_HD void mm_zfp_planes(const float values[MM_ZFP_VALUES], int e, uint32_t planes[MM_ZFP_VALUES]) {
    const int order[MM_ZFP_VALUES] = MM_ZFP_ORDER;
    uint32_t q[MM_ZFP_VALUES];
    if (e <= MM_ZFP_INT_MIN_EXPONENT) {
        for (int i = 0; i < MM_ZFP_VALUES; i++) q[i] = (uint32_t)INT32_MIN;
    } else {
        const float scale = mm_zfp_float_of((uint32_t)(MM_ZFP_SCALE_BIAS - e) << 23);
        for (int i = 0; i < MM_ZFP_VALUES; i++) q[i] = (uint32_t)(int32_t)(values[i] * scale);
    }
    for (int y = 0; y < 4; y++) mm_zfp_lift(q + 4 * y, 1);
    for (int x = 0; x < 4; x++) mm_zfp_lift(q + x, 4);
    for (int i = 0; i < MM_ZFP_VALUES; i++) planes[i] = (q[order[i]] + MM_ZFP_NEGABINARY) ^ MM_ZFP_NEGABINARY;
    mm_zfp_transpose(planes);
}

/* 2^(emax - 30), emax = e - 127, to the nearest float: subnormal or 0 for small e. */
MM_HD float mm_zfp_unscale(int e) {
    return mm_zfp_float_of(e > 30 ? (uint32_t)(e - 30) << 23 : e >= 8 ? UINT32_C(1) << (e - 8) : 0);
}

MM_HD void mm_zfp_unplanes(uint32_t planes[MM_ZFP_VALUES], int e, float values[MM_ZFP_VALUES]) {
    const int order[MM_ZFP_VALUES] = MM_ZFP_ORDER;
    uint32_t q[MM_ZFP_VALUES];
    mm_zfp_transpose(planes);
    for (int i = 0; i < MM_ZFP_VALUES; i++) q[order[i]] = (planes[i] ^ MM_ZFP_NEGABINARY) - MM_ZFP_NEGABINARY;
    for (int x = 0; x < 4; x++) mm_zfp_unlift(q + x, 4);
    for (int y = 0; y < 4; y++) mm_zfp_unlift(q + 4 * y, 1);
    const float unscale = mm_zfp_unscale(e);
    for (int i = 0; i < MM_ZFP_VALUES; i++) values[i] = unscale * (float)(int32_t)q[i];
}

/* ---------------------------------------------------------------- the code of a plane */

/* The code of plane `x` where n coefficients are sent verbatim; n and the code's length are updated. */
MM_HD uint32_t mm_zfp_plane_encode(uint32_t x, int *n, int *length_out) {
    uint32_t code = x & mm_zfp_ones(*n), rest = x >> *n;
    int length = *n;
    if (*n == MM_ZFP_VALUES) {
        *length_out = length;
        return code;
    }
    while (rest) {
        const int zeros = MM_CTZ32(rest);
        code |= UINT32_C(1) << length; /* there is another one */
        length += 1 + zeros;
        *n += zeros + 1;
        rest >>= zeros + 1;
        if (*n == MM_ZFP_VALUES) { /* the last coefficient's bit is implied */
            *length_out = length;
            return code;
        }
        code |= UINT32_C(1) << length++;
    }
    *length_out = length + 1;
    return code;
}

/* The plane whose code begins `window`; of it `left` > 0 bits are the block's, and zeros follow them. n is updated and
 * the code's length set (beyond `left` if the code is cut off there: then it means what libzfp makes of it, a one at
 * the coefficient that was being read). */
MM_HD uint32_t mm_zfp_plane_decode(uint32_t window, int left, int *n, int *length_out) {
    uint32_t x = window & mm_zfp_ones(*n);
    const uint32_t cut = left < 32 ? UINT32_C(1) << left : 0;
    int length = *n;
    while (*n < MM_ZFP_VALUES && length < left) {
        if (!(window >> length++ & 1)) break;
        const int most = MM_ZFP_VALUES - 1 - *n;
        const uint32_t bits = length < 32 ? (window | cut) >> length : 0;
        const int zeros = MM_CTZ32(bits | UINT32_C(1) << most);
        *n += zeros + 1;
        x |= UINT32_C(1) << (*n - 1);
        length += zeros + (zeros < most); /* the last coefficient's bit is implied */
    }
    *length_out = length;
    return x;
}

/* ---------------------------------------------------------------- blocks */

/* Takes any finite block, writes mm_zfp_words(maxbits) words. */
MM_HD void mm_zfp_block_encode(const float values[MM_ZFP_VALUES], int e, int maxbits, uint32_t *words) {
    const int count = mm_zfp_words(maxbits);
    uint64_t pending = 0;
    int fill = 0, word = 0;
    if (e) {
        uint32_t planes[MM_ZFP_VALUES];
        mm_zfp_planes(values, e, planes);
        pending = 2 * (uint64_t)e + 1;
        fill = MM_ZFP_HEADER_BITS;
        for (int k = 31, n = 0; k >= 0 && 32 * word + fill < maxbits; k--) {
            int length;
            pending |= (uint64_t)mm_zfp_plane_encode(planes[k & 15] >> (k & 16) & 0xffff, &n, &length) << fill;
            fill += length;
            if (fill < 32) continue;
            words[word++] = (uint32_t)pending;
            pending >>= 32;
            fill -= 32;
        }
    }
    for (; word < count; word++, pending >>= 32) words[word] = (uint32_t)pending;
    if (maxbits % 32) words[count - 1] &= mm_zfp_ones(maxbits % 32);
}

/* Takes any block but those of mm_zfp_is_nonfinite. Bits past maxbits are zero. */
MM_HD void mm_zfp_block_decode(const uint32_t *words, int maxbits, float values[MM_ZFP_VALUES]) {
    const int count = mm_zfp_words(maxbits);
    uint32_t planes[MM_ZFP_VALUES] = {0};
    const bool zero = !(words[0] & 1);
    int position = MM_ZFP_HEADER_BITS;
    for (int k = 31, n = 0; k >= 0 && position < maxbits && !zero; k--) {
        const int word = position / 32;
        const uint64_t pair = words[word] | (uint64_t)(word + 1 < count ? words[word + 1] : 0) << 32;
        int length;
        planes[k & 15] |= mm_zfp_plane_decode((uint32_t)(pair >> position % 32), maxbits - position, &n, &length)
                          << (k & 16);
        position += length;
    }
    mm_zfp_unplanes(planes, zero ? 0 : (int)(words[0] >> 1 & 255), values);
}

/* ---------------------------------------------------------------- blocks that are not finite */

MM_HD uint32_t mm_zfp_class(float value) {
    const uint32_t bits = mm_zfp_float_bits(value), magnitude = bits & UINT32_C(0x7fffffff);
    if (magnitude < UINT32_C(0x7f800000)) return MM_ZFP_CLASS_FINITE;
    if (magnitude > UINT32_C(0x7f800000)) return MM_ZFP_CLASS_NAN;
    return bits >> 31 ? MM_ZFP_CLASS_MINUS_INF : MM_ZFP_CLASS_PLUS_INF;
}

MM_HD void mm_zfp_nonfinite_encode(const float values[MM_ZFP_VALUES], int maxbits, uint32_t *words) {
    const int count = mm_zfp_words(maxbits);
    for (int word = 0; word < count; word++) words[word] = 0;
    if (maxbits < MM_ZFP_CLASS_BITS) {
        words[0] = (maxbits < 32 ? mm_zfp_ones(maxbits) : UINT32_MAX) & ~UINT32_C(1);
        return;
    }
    uint32_t classes = 0;
    for (int i = 0; i < MM_ZFP_VALUES; i++) classes |= mm_zfp_class(values[i]) << 2 * i;
    words[0] = classes << 1;
    words[1] = classes >> 31;
}

/* Of a block's first two words (the second 0 if there is none). */
MM_HD bool mm_zfp_is_nonfinite(uint32_t first, uint32_t second) { return !(first & 1) && (first | second) != 0; }

MM_HD void mm_zfp_nonfinite_decode(uint32_t first, uint32_t second, int maxbits, float values[MM_ZFP_VALUES]) {
    const uint32_t of_class[4] = {0, 0x7f800000, 0xff800000, 0x7fc00000};
    const uint32_t classes = maxbits < MM_ZFP_CLASS_BITS ? UINT32_MAX : first >> 1 | second << 31;
    for (int i = 0; i < MM_ZFP_VALUES; i++) values[i] = mm_zfp_float_of(of_class[classes >> 2 * i & 3]);
}

#endif

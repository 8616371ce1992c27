/* SPDX-License-Identifier: MIT */
/* One block of the mx codec: plain C functions of the formats, the same on every device.
 *
 * The OCP Microscaling Formats (MX) Specification 1.0: 32 elements share a scale X, a power of two in one byte (E8M0:
 * 2^(byte - 127), 255 is NaN), and each is X times a small number:
 *      fp8     MXFP8 of E4M3   1 sign, 4 exponent, 3 mantissa bits    largest 448
 *      fp6     MXFP6 of E2M3   1, 2, 3                                7.5
 *      fp4     MXFP4 of E2M1   1, 2, 1                                6
 *      int8    MXINT8          two's complement, in 64ths             127/64
 * (The standard's E5M2 and E3M2 are not offered: they have more range within a block and less precision, which a
 * feature map needs.)
 *
 * The standard's conversion: X = 2^(floor(log2(largest magnitude)) - the exponent of the format's largest number), at
 * least 2^-127. Elements are value / X, rounded to nearest, ties to even, including denormals, and clamped to the
 * largest number. For int8 that is -127 and 127: -128, which the standard allows to leave out, would bias the mean.
 *
 * The standard leaves the encoding of infinities and NaNs to implementations. Here a block that has one gets the scale
 * NaN and elements of zero, and is decoded to NaNs. mm_codec_counters.nonfinite_blocks counts such blocks. Codes of
 * other encoders are decoded as the standard says: E4M3's NaN to a NaN, a product beyond the largest float to an
 * infinity.
 *
 * 32 consecutive elements in memory are a block, and eight blocks a group: their scales, then their elements, from the
 * lowest bit of each block's first byte on, without gaps.
 *      scales 0 to 7 | block 0 | block 1 | ... | block 7        264, 200 or 136 bytes
 * Eight elements are a unit, which takes whole bytes. */
#ifndef PIPELINE_CODEC_PACKED_MX_BLOCK_H
#define PIPELINE_CODEC_PACKED_MX_BLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "pipeline/codec/block/float_bits.h"

#ifndef MM_HD
#define MM_HD static inline __attribute__((always_inline))
#endif

enum {
    MM_MX_BLOCK = 32, /* elements, by the standard */
    MM_MX_UNIT = 8,
    MM_MX_GROUP_BLOCKS = 8,
    MM_MX_GROUP = MM_MX_BLOCK * MM_MX_GROUP_BLOCKS,
    MM_MX_UNITS = MM_MX_GROUP / MM_MX_UNIT,
    MM_MX_SCALE_NAN = 255,
};

/* A format's elements. It is a compile-time constant in every call. */
typedef struct mm_mx_element {
    int bits, mantissa;
    int least, most; /* exponents of the least normal number and of the largest number */
    uint32_t top;    /* the largest number's bits */
    bool integer;    /* int8: two's complement instead of a sign bit */
} mm_mx_element;

/* For each format: its name, and an mm_mx_element. */
#define MM_MX_FORMATS(X)                                                                                               \
    X(fp8, 8, 3, -6, 8, 0x7e, false)                                                                                   \
    X(fp6, 6, 3, 0, 2, 0x1f, false) X(fp4, 4, 1, 0, 2, 0x7, false) X(int8, 8, 6, 0, 0, 0x7f, true)

#define MM_MX_GROUP_BYTES(bits) (MM_MX_GROUP_BLOCKS + MM_MX_UNITS * (bits))
/* A format's mm_packed_format. */
#define MM_MX_PACKED(format, bits, ...) {#format, MM_MX_GROUP, MM_MX_GROUP_BYTES(bits)},
#define MM_MX_SUMMARY                                                                                                  \
    "OCP Microscaling: fp8 (the default; E4M3), fp6 (E2M3), fp4 (E2M1) or int8, and a scale for each 32 neighbours; "  \
    "sms=N as for zfp"

/* A block's scale. largest: the largest magnitude, as a float's bits. */
MM_HD uint32_t mm_mx_scale(uint32_t largest, mm_mx_element f) {
    const int scale = (int)(largest >> 23) - f.most;
    if (largest >= 0x7f800000) return MM_MX_SCALE_NAN;
    return scale < 0 ? 0 : (uint32_t)scale;
}

/* 2^(scale - 127), a denormal for scale 0. Not for MM_MX_SCALE_NAN. */
MM_HD float mm_mx_power(uint32_t scale) { return mm_float_of(scale == 0 ? 0x400000 : scale << 23); }

/* 1 / X; 0 for MM_MX_SCALE_NAN. */
MM_HD float mm_mx_inverse(uint32_t scale) { return scale == MM_MX_SCALE_NAN ? 0 : mm_mx_power(254 - scale); }

/* An element's code, from a float's bits and mm_mx_inverse. In a block that is not finite, `bits` must be 0, and the
 * code is 0. */
MM_HD uint32_t mm_mx_encode(uint32_t bits, float inverse, mm_mx_element f) {
    const int dropped = 23 - f.mantissa;
    const uint32_t least = (uint32_t)(127 + f.least) << 23;
    /* Adding a power of two whose last bit is the element's last bit rounds to the element. The product with a power of
     * two is exact, except where it is so small that it rounds to zero anyway. */
    const float size = mm_float_of(bits & 0x7fffffff) * inverse;
    const uint32_t exponent = mm_float_bits(size) & 0x7f800000, at = exponent > least ? exponent : least;
    const uint32_t digit = at + ((uint32_t)dropped << 23);
    uint32_t code = mm_float_bits(size + mm_float_of(digit)) - digit + ((at - least) >> dropped);
    code = code < f.top ? code : f.top;
    const uint32_t sign = bits >> 31;
    return f.integer ? (sign ? 0 - code : code) & 0xff : code | sign << (f.bits - 1);
}

/* The bits of the float that an element stands for. `power` is mm_mx_power of the block's scale; is_nan: the scale is
 * MM_MX_SCALE_NAN, and `power` is ignored. */
MM_HD uint32_t mm_mx_decode(uint32_t code, float power, bool is_nan, mm_mx_element f) {
    const uint32_t size = code & ((1u << (f.bits - 1)) - 1), sign = code >> (f.bits - 1) << 31;
    float value;
    if (f.integer) {
        value = (float)(int32_t)(size - (sign ? 128 : 0)) * 0x1p-6f;
    } else {
        /* A denormal is read with its hidden bit set, and the hidden bit's value is subtracted. */
        const uint32_t hidden = (uint32_t)(127 + f.least) << 23, off = size < 1u << f.mantissa ? hidden : 0;
        const uint32_t digits = (size << (23 - f.mantissa)) + hidden - (off ? 0 : 1u << 23);
        value = mm_float_of(mm_float_bits(mm_float_of(digits) - mm_float_of(off)) | sign);
    }
    /* NaN's bits are written out, because devices' NaNs differ. Only E4M3 has codes beyond the largest number's. */
    const uint32_t number = 0 - (uint32_t)(!is_nan & (size <= f.top)), nan = 0x7fc00000;
    return (mm_float_bits(value * power) & number) | (nan & ~number);
}

/* Packs eight elements, one in each byte, into `bits` bytes; mm_mx_spread is the inverse. */
#define MM_MX_FIELDS(k)                                                                                                \
    (((UINT64_C(1) << (bits << k)) - 1) * (k == 0   ? UINT64_C(0x1000100010001) /* every 16 bits */                    \
                                           : k == 1 ? UINT64_C(0x100000001)                                            \
                                                    : 1))
MM_HD uint64_t mm_mx_squeeze(uint64_t unit, int bits) {
    for (int k = 0; k < 3; k++)
        unit = (unit & MM_MX_FIELDS(k)) | (unit >> ((8 - bits) << k) & MM_MX_FIELDS(k) << (bits << k));
    return unit;
}

MM_HD uint64_t mm_mx_spread(uint64_t unit, int bits) {
    for (int k = 2; k >= 0; k--)
        unit = (unit & MM_MX_FIELDS(k)) | (unit & MM_MX_FIELDS(k) << (bits << k)) << ((8 - bits) << k);
    return unit;
}
#undef MM_MX_FIELDS

#endif

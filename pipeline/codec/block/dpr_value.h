/* SPDX-License-Identifier: MIT */
/* One value of the dpr codec: plain C functions of the formats, the same on every device.
 *
 * Gist's Delayed Precision Reduction (A. Jain et al., Gist, ISCA 2018) keeps maps in small floats between the passes,
 * as many as fit into a 32-bit word, the first in its lowest bits, and zeros above the last:
 *      fp16    1 sign, 5 exponent, 10 mantissa bits    2 a word    largest 65504
 *      fp10    1, 5, 4                                 3 a word    63488
 *      fp8     1, 4, 3                                 4 a word    240
 * Exponents are biased as in IEEE 754. A value is rounded to the bits of the mantissa, to nearest, ties to even. Then a
 * value beyond the largest finite number becomes that number, and one below the least normal number becomes zero: there
 * are no denormals. Zeros keep their signs.
 *
 * The paper does not say what becomes of infinities and NaNs. Here they stay what they are: an exponent of all ones
 * with a mantissa of zero is an infinity, with any other a NaN. A NaN keeps its sign, but not its payload.
 *
 * `exponent` and `mantissa` are numbers of bits, constants wherever these functions are called. */
#ifndef PIPELINE_CODEC_BLOCK_DPR_VALUE_H
#define PIPELINE_CODEC_BLOCK_DPR_VALUE_H

#include <stdint.h>

#ifndef MM_HD
#define MM_HD static inline __attribute__((always_inline))
#endif

/* For each format: its name, the bits of its exponent and mantissa, and how many values a word has. */
#define MM_DPR_FORMATS(X) X(fp16, 5, 10, 2) X(fp10, 5, 4, 3) X(fp8, 4, 3, 4)
/* A group has two words, so that it is a multiple of 8 bytes. */
enum { MM_DPR_GROUP_WORDS = 2 };
/* A format's mm_packed_format. */
#define MM_DPR_PACKED(format, exponent, mantissa, per_word)                                                            \
    {#format, MM_DPR_GROUP_WORDS * (per_word), MM_DPR_GROUP_WORDS * sizeof(uint32_t)},
#define MM_DPR_SUMMARY                                                                                                 \
    "Gist's small floats, fp16 (the default), fp10 or fp8: 1-5-10, 1-5-4 or 1-4-3 bits, two, three or four in 32 "     \
    "bits; sms=N as zfp has it"

/* The code of a float given by its bits; it is in the low bits. */
MM_HD uint32_t mm_dpr_encode(uint32_t bits, int exponent, int mantissa) {
    const int dropped = 23 - mantissa;
    const uint32_t rebias = (127u - ((1u << (exponent - 1)) - 1)) << mantissa, infinity = ((1u << exponent) - 1)
                                                                                          << mantissa;
    const uint32_t size = bits & 0x7fffffff, sign = bits >> 31 << (exponent + mantissa);
    const uint32_t rounded = (size + ((1u << (dropped - 1)) - 1) + (size >> dropped & 1)) >> dropped;
    uint32_t code = rounded < rebias + (1u << mantissa) ? 0 : rounded - rebias;
    code = code < infinity ? code : infinity - 1;
    const uint32_t special = size > 0x7f800000 ? infinity + (1u << (mantissa - 1)) : infinity;
    return (size < 0x7f800000 ? code : special) | sign;
}

/* The bits of the float that a code stands for. Bits above the code's are ignored; denormals, which no encoder makes,
 * read as zero. */
MM_HD uint32_t mm_dpr_decode(uint32_t code, int exponent, int mantissa) {
    const int dropped = 23 - mantissa;
    const uint32_t rebias = (127u - ((1u << (exponent - 1)) - 1)) << 23, infinity = ((1u << exponent) - 1) << mantissa;
    const uint32_t size = code & ((1u << (exponent + mantissa)) - 1), sign = code >> (exponent + mantissa) << 31;
    const uint32_t finite = size < 1u << mantissa ? 0 : (size << dropped) + rebias;
    return (size < infinity ? finite : size << dropped | 0x7f800000) | sign;
}

#endif

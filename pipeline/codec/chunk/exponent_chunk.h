/* SPDX-License-Identifier: MIT */
/* One chunk of the exponent codec: plain C functions of its format, the same on every device.
 *
 * Floats of one map have few different exponents, whatever their mantissas: of values from a bell curve, 97 % have one
 * of seven. So each exponent becomes a code of `bits` bits, its distance from the chunk's smallest usual exponent, and
 * the unusual ones are listed: patched frame-of-reference coding (M. Zukowski et al., Super-Scalar RAM-CPU Cache
 * Compression, ICDE 2006). Signs and mantissas are kept as they are.
 *
 * Turned to the left by one bit, an element has its exponent at the top, and then its `rest`: mantissa and sign. Less
 * base << rest bits, it is a field: a code, and the rest. A chunk of n elements (at most 1024) becomes, in words of 32
 * bits:
 *
 *      1 word        bits 0-7: base; 8-11: bits (0 to 5); 16-26: number of escapes; all others 0
 *      the fields    of bits + rest bits each, in 32 lanes. Lane l has elements l, 32 + l, 64 + l, ... one after the
 *                    other, lowest bits first, and zeros at the end. Word j of lane l is word 32 j + l of this part
 *      the escapes   if there are any: the highest code stands for all exponents that have no code. These follow, a
 *                    byte each: those of lane 0 in order, then those of lane 1, and so on. Zeros fill the last word
 *
 *      element   | sign | exponent | mantissa |        field   | code | mantissa | sign |
 *
 * So a warp's lanes, or a vector's, pack and unpack without knowing of each other. */
#ifndef PIPELINE_CODEC_CHUNK_EXPONENT_CHUNK_H
#define PIPELINE_CODEC_CHUNK_EXPONENT_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "mm/mm_base.h"

#ifndef MM_HD
#define MM_HD static inline __attribute__((always_inline))
#endif

/* Most bits of a code: with 6, a bf16 would still take 14 bits. Exponents of f16 have 5. */
enum { MM_EXPONENT_LANES = 32, MM_EXPONENT_BITS_MOST = 5, MM_EXPONENTS = 256 };

/* Bits of an element but its exponent: mantissa and sign. */
MM_HD int mm_exponent_rest(mm_dtype type) { return type == MM_F32 ? 24 : type == MM_BF16 ? 8 : 11; }

/* Moves an element's sign to its end; and back. whole: bits of the element. */
MM_HD uint32_t mm_exponent_turn(uint32_t element, int whole) {
    const uint32_t turned = element << 1 | element >> (whole - 1);
    return whole == 32 ? turned : turned & 0xffff;
}
MM_HD uint32_t mm_exponent_turn_back(uint32_t turned, int whole) {
    const uint32_t element = turned >> 1 | turned << (whole - 1);
    return whole == 32 ? element : element & 0xffff;
}

/* How a chunk is coded: its first word. */
typedef struct mm_exponent_form {
    int base, bits, escapes;
} mm_exponent_form;

/* Number of exponents that have a code: base, base + 1, ... */
MM_HD int mm_exponent_codes(mm_exponent_form form) { return (1 << form.bits) - (form.escapes > 0); }

/* Words of the fields of n elements, and of the whole code. width: bits of a field. */
MM_HD int mm_exponent_field_words(int n, int width) {
    const int rows = (n + MM_EXPONENT_LANES - 1) / MM_EXPONENT_LANES;
    return (rows * width + 31) / 32 * MM_EXPONENT_LANES;
}
MM_HD int mm_exponent_words(int n, int rest, mm_exponent_form form) {
    return 1 + mm_exponent_field_words(n, form.bits + rest) + (form.escapes + 3) / 4;
}

MM_HD uint32_t mm_exponent_head(mm_exponent_form form) {
    return (uint32_t)form.base | (uint32_t)form.bits << 8 | (uint32_t)form.escapes << 16;
}

/* Reads the first word of a code of `count` (1 or more) words. False: no code of n elements begins so. */
MM_HD bool mm_exponent_read_head(uint32_t head, int count, int n, int rest, mm_exponent_form *form_out) {
    const mm_exponent_form form = {(int)(head & 0xff), (int)(head >> 8 & 0xf), (int)(head >> 16)};
    if (head >> 12 & 0xf || form.bits > MM_EXPONENT_BITS_MOST || form.escapes > (form.bits > 0 ? n : 0)) return false;
    *form_out = form;
    return mm_exponent_words(n, rest, form) == count;
}

#endif

/* SPDX-License-Identifier: MIT */
/* One element of the signs codec: a plain C function, the same on every device.
 *
 * The mask corrects an element that a lossy codec has decoded, so that it is above zero exactly if the original was:
 *
 *      mask    decoded          becomes
 *      0       a NaN            itself, which is not above zero
 *      0       anything else    0
 *      1       above zero       itself
 *      1       a NaN            +Inf: above zero, and still not finite
 *      1       anything else    the least number above zero that its type has, a denormal */
#ifndef PIPELINE_CODEC_BLOCK_SIGNS_VALUE_H
#define PIPELINE_CODEC_BLOCK_SIGNS_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#ifndef MM_HD
#define MM_HD static inline __attribute__((always_inline))
#endif

/* bits: a decoded element of a type whose highest bit is `sign` and whose +Inf is `infinity`. positive: its bit in the
 * mask. */
MM_HD uint32_t mm_signs_value(uint32_t bits, bool positive, uint32_t sign, uint32_t infinity) {
    const bool is_nan = (bits & (sign - 1)) > infinity;
    const uint32_t above = bits & sign || bits == 0 ? 1 : bits;
    return positive ? (is_nan ? infinity : above) : (is_nan ? bits : 0);
}

#endif

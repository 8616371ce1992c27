/* SPDX-License-Identifier: MIT */
/* Floats rounded to bf16, in bits: to nearest, ties to even. What is beyond the largest finite number becomes infinity;
 * a NaN stays one. All devices compile this text. */
#ifndef NETS_BF16_H
#define NETS_BF16_H

#include <stdint.h>

#ifndef NETS_BF16_FUNCTION
#define NETS_BF16_FUNCTION static inline /* .cu files define it with __device__ */
#endif

NETS_BF16_FUNCTION uint16_t nets_bf16_of(uint32_t bits) {
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

#endif

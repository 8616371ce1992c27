/* SPDX-License-Identifier: MIT */
/* Rounds a float to bf16, both given as bits: to nearest, ties to even. A value beyond the largest finite bf16 becomes
 * infinity; a NaN stays a NaN. Host and CUDA code both include this file. */
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

/* SPDX-License-Identifier: MIT */
/* f16 and bf16 as floats and back, in bits: plain C functions, the same on every device. Codecs that compute with
 * floats read maps of such elements through them.
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even; a finite value beyond the largest finite number becomes
 * that number, so that the error of a lossy codec makes no infinity. Infinities stay, and a NaN stays a NaN with its
 * sign. */
#ifndef PIPELINE_CODEC_BLOCK_HALF_VALUE_H
#define PIPELINE_CODEC_BLOCK_HALF_VALUE_H

#include "mm/mm_base.h"
#include "pipeline/codec/block/float_bits.h"

MM_HD uint32_t mm_f16_widen(uint32_t half) {
    const uint32_t size = half & 0x7fff, sign = (half & 0x8000) << 16;
    const uint32_t denormal = mm_float_bits((float)(int32_t)size * 0x1p-24f);
    const uint32_t normal = (size << 13) + (size < 0x7c00 ? 0x38000000u : 0x70000000u);
    return (size < 0x400 ? denormal : normal) | sign;
}

MM_HD uint32_t mm_f16_narrow(uint32_t bits) {
    const uint32_t size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    const uint32_t least = size < 0x38800000 ? size : 0x38800000; /* 2^-14, the least normal number */
    /* The sum has the denormal in its lowest bits. The product is exact, so a fused multiply-add gives the same. */
    const uint32_t denormal = mm_float_bits(mm_float_of(least) * 0x1p24f + 0x1p23f) - mm_float_bits(0x1p23f);
    const uint32_t normal = (size - 0x38000000u + 0xfff + (size >> 13 & 1)) >> 13;
    uint32_t half = size < 0x38800000 ? denormal : normal;
    half = size < 0x477ff000 ? half : 0x7bff;
    half = size < 0x7f800000 ? half : size == 0x7f800000 ? 0x7c00 : 0x7e00;
    return half | sign;
}

MM_HD uint32_t mm_bf16_narrow(uint32_t bits) {
    const uint32_t size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    const uint32_t rounded = (size + 0x7fff + (size >> 16 & 1)) >> 16;
    uint32_t half = rounded < 0x7f80 ? rounded : 0x7f7f;
    half = size < 0x7f800000 ? half : size == 0x7f800000 ? 0x7f80 : 0x7fc0;
    return half | sign;
}

/* The bits of a float, from those of an f16 or a bf16. */
MM_HD uint32_t mm_half_widen(uint32_t half, mm_dtype type) { return type == MM_BF16 ? half << 16 : mm_f16_widen(half); }

MM_HD uint32_t mm_half_narrow(uint32_t bits, mm_dtype type) {
    return type == MM_BF16 ? mm_bf16_narrow(bits) : mm_f16_narrow(bits);
}

#endif

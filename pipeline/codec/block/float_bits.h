/* SPDX-License-Identifier: MIT */
/* Floats as bits, the same on every device. */
#ifndef PIPELINE_CODEC_BLOCK_FLOAT_BITS_H
#define PIPELINE_CODEC_BLOCK_FLOAT_BITS_H

#include <stdint.h>
#include <string.h>

#ifndef MM_HD
#define MM_HD static inline __attribute__((always_inline))
#endif

MM_HD uint32_t mm_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

MM_HD float mm_float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif

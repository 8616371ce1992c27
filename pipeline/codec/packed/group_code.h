/* SPDX-License-Identifier: MIT */
/* One group of the group codec: plain C functions of its format, the same on every device.
 *
 * As in ActNN (Chen et al., ICML 2021) and GACT (Liu et al., ICML 2022), 256 neighbours share a minimum and a scale,
 * and each element becomes one of 2^bits levels, minimum + level x scale. It is rounded at random to one of the two
 * nearest levels: to the upper one with a probability equal to its distance from the lower one, in scales. So the
 * expected decoded value is the element, and elements that are levels (a ReLU's zeros) are decoded exactly.
 *
 * Minimum and scale are IEEE binary16. The minimum is rounded down and the scale up, so the levels cover all elements,
 * and this rounding does not bias the mean. Finite elements beyond the largest binary16, 65504, are clamped to it;
 * their decoded values may be up to one scale above it. The smallest scale is 2^-24. A group that has an infinity or a
 * NaN gets the scale NaN and levels of zero: all its elements are decoded as NaN. mm_codec_counters.nonfinite_blocks
 * counts these groups.
 *
 * Each element has 16 random bits of Philox, with key (seed, tensor) and counter (number of the lane, iteration). Lane
 * j of a group has its elements j, j + 32, ..., j + 224; element k of the lane takes half k mod 2 of word k / 2.
 *
 * Two groups make a pack, of 136, 264 or 520 bytes. A lane's code has its levels one after the other: 16 bits, one
 * word, or two words; then all lanes' first words precede the second words:
 *      scale, minimum of group 0 | those of group 1 | codes of group 0's lanes 0 to 31 | codes of group 1's
 * An incomplete last pack is padded with the map's last element. */
#ifndef PIPELINE_CODEC_PACKED_GROUP_CODE_H
#define PIPELINE_CODEC_PACKED_GROUP_CODE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "pipeline/codec/block/float_bits.h"

#ifndef MM_HD
#define MM_HD static inline __attribute__((always_inline))
#endif

enum {
    MM_GROUP_LANES = 32,
    MM_GROUP_EACH = 8, /* elements of a lane */
    MM_GROUP = MM_GROUP_LANES * MM_GROUP_EACH,
    MM_GROUP_PACK = 2 * MM_GROUP,
    MM_GROUP_HEADS = 8, /* bytes of a pack's scales and minimums */
    MM_GROUP_HALF_NAN = 0x7e00,
};

/* For each format: its bits. */
#define MM_GROUP_FORMATS(X)   X(8) X(4) X(2)
#define MM_GROUP_BYTES(bits)  (MM_GROUP_LANES * (bits)) /* bytes of a group's codes */
#define MM_GROUP_PACKED(bits) {"bits=" #bits, MM_GROUP_PACK, MM_GROUP_HEADS + 2 * MM_GROUP_BYTES(bits)},
#define MM_GROUP_SUMMARY                                                                                               \
    "bits=8 (the default), 4 or 2 for each element, a scale and a minimum for each 256; rounded at random without "    \
    "bias, from seed=N (0); sms=N as for zfp"

/* A float's rank in the order of all floats, from its bits. The function is its own inverse: it also gives the bits
 * from the rank. */
MM_HD int32_t mm_group_place(uint32_t bits) { return (int32_t)(bits ^ (uint32_t)((int32_t)bits >> 31) >> 1); }

/* Rounds a magnitude up to 65504, given as a float's bits, to binary16, towards zero. *rest_out: it was not exact. */
MM_HD uint32_t mm_group_half_cut(uint32_t size, bool *rest_out) {
    const float units = mm_float_of(size) * 0x1p24f; /* in units of the smallest denormal */
    const bool normal = size >= 0x38800000;
    const uint32_t half = normal ? (size - 0x38000000) >> 13 : (uint32_t)units;
    *rest_out = normal ? (size & 0x1fff) != 0 : (float)half != units;
    return half;
}

MM_HD float mm_group_half_float(uint32_t half) {
    const uint32_t size = half & 0x7fff;
    const float value = size < 0x400 ? (float)size * 0x1p-24f : mm_float_of((size << 13) + 0x38000000);
    return mm_float_of(mm_float_bits(value) | (half & 0x8000) << 16);
}

/* Parameters of a group's elements. */
typedef struct mm_group_head {
    uint32_t halves;    /* the scale in the low 16 bits, the minimum above */
    float minimum, per; /* per: 2^17 / scale */
    uint32_t kept;      /* a mask of elements' bits: 0 in a group that is not finite */
} mm_group_head;

/* Makes a group's head from the ranks (mm_group_place) of its least and greatest element. levels: the highest level,
 * 2^bits - 1. */
MM_HD mm_group_head mm_group_head_of(int32_t least, int32_t most, uint32_t levels) {
    const int32_t top = 0x477fe000, infinity = 0x7f800000; /* 65504 */
    mm_group_head head = {MM_GROUP_HALF_NAN | (uint32_t)MM_GROUP_HALF_NAN << 16, 0, 0, 0};
    if (most >= infinity || least <= -infinity - 1) return head;
    least = least > top ? top : least < -top - 1 ? -top - 1 : least;
    most = most > top ? top : most < -top - 1 ? -top - 1 : most;

    bool rest;
    const uint32_t low = (uint32_t)mm_group_place((uint32_t)least);
    uint32_t minimum = mm_group_half_cut(low & 0x7fffffff, &rest) | (low >> 31 << 15);
    minimum += rest && low >> 31;
    head.minimum = mm_group_half_float(minimum);
    const float spread = mm_float_of((uint32_t)mm_group_place((uint32_t)most)) - head.minimum;
    uint32_t scale = mm_group_half_cut(mm_float_bits(spread / (float)levels) & 0x7fffffff, &rest);
    scale += rest || (spread > 0 && scale == 0);

    head.halves = scale | minimum << 16;
    head.per = scale ? 0x1p17f / mm_group_half_float(scale) : 0;
    head.kept = 0xffffffff;
    return head;
}

/* An element's level, from its bits and 16 random bits. */
MM_HD uint32_t mm_group_level(uint32_t bits, mm_group_head head, uint32_t random, uint32_t levels) {
    const float most = (float)(levels << 17);
    /* No product followed by a sum, which compilers might fuse into one rounding. */
    float place = (mm_float_of(bits & head.kept) - head.minimum) * head.per;
    place = place > 0 ? place : 0;
    place = place < most ? place : most;
    /* The + 1 is half a unit of `random`: on average it makes up for the fraction that the conversion cuts off. */
    return ((uint32_t)(int32_t)place + 2 * random + 1) >> 17;
}

/* The bits of the float that a level stands for. */
MM_HD uint32_t mm_group_value(uint32_t level, float minimum, float scale, uint32_t number) {
    /* The product is exact, so a fused multiply-add gives the same. */
    return (mm_float_bits(minimum + (float)(int32_t)level * scale) & number) | (0x7fc00000 & ~number);
}

/* The mask `number` of mm_group_value: 0 if the group is decoded as NaN. */
MM_HD uint32_t mm_group_number(uint32_t halves) { return (halves & 0x7fff) < 0x7c00 ? 0xffffffff : 0; }

#endif

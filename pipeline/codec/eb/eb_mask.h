/* SPDX-License-Identifier: MIT */
/* The code of a chunk's masks in the eb codec (eb_chunk.h): plain C functions, the same on every device.
 *
 * A mask says which of a block of 32 elements are kept. In maps that are channels-last, blocks that are a few apart
 * have the same channels of neighbouring pixels, and mostly agree. So the code has the differences: the changes of
 * block i are its mask ^ the mask of block i - distance. Blocks before the first count as all zeros, or as all ones.
 *
 * Three t (0 to 10) has the changes a, b, c of blocks 3 t, 3 t + 1 and 3 t + 2; zeros beyond the last block. At each of
 * the 32 places, the bits of a, b and c get a Huffman code, for bits that are mostly zero. The first bits of the 32
 * codes are a word, the second bits another, and so on:
 *
 *      c b a     any   which[0..1]   rest[0..1]
 *      0 0 0      0
 *      0 0 1      1       0 0
 *      0 1 0      1       1 0
 *      1 0 0      1       0 1
 *      0 1 1      1       1 1           0 0
 *      1 0 1      1       1 1           1 0
 *      1 1 0      1       1 1           0 1
 *      1 1 1      1       1 1           1 1
 *
 * As a string of bits:
 *
 *      11 bits                 bit t: three t has changes
 *      32 bits for each        any
 *      2 popcount(any) each    which[0], then which[1], at the places of any
 *      2 popcount(more) each   rest[0], then rest[1], at the places of more (where which[0] and which[1] are 1)
 *
 * If many bits change, the masks themselves are written, 32 bits for each block. */
#ifndef PIPELINE_CODEC_EB_EB_MASK_H
#define PIPELINE_CODEC_EB_EB_MASK_H

#include "pipeline/codec/block/eb_value.h"

enum { MM_EB_BLOCKS = 32, MM_EB_THREES = 11, MM_EB_BEFORES = 6, MM_EB_NO_TRY = 1 << 20 };

#ifdef __CUDA_ARCH__
#define MM_EB_COUNT(bits) __popc(bits)
#else
#define MM_EB_COUNT(bits) __builtin_popcount(bits)
#endif

/* Distance in blocks to the block that a block is compared with; 32: it is compared with none. before: at least 1. */
MM_HD int mm_eb_distance(int before) { return 1 << (before - 1); }

MM_HD int mm_eb_blocks(int n) { return (n + 31) / 32; }

/* Mask of the elements of a block that exist in a chunk of n. */
MM_HD uint32_t mm_eb_elements(int n, int block) {
    const int left = n - 32 * block;
    return left >= 32 ? 0xffffffff : left > 0 ? (1u << left) - 1 : 0;
}

/* The smaller of `least` (at first MM_EB_NO_TRY) and the results for one distance, each as a number made of changes,
 * before and ones, the most significant first. changes: if blocks before the first are zeros; firsts: ones in the masks
 * of the first `distance` blocks. */
MM_HD uint32_t mm_eb_try_before(uint32_t least, int before, uint32_t changes, uint32_t firsts, int n) {
    const uint32_t distance = 1u << (before - 1), elements = 32 * distance < (uint32_t)n ? 32 * distance : (uint32_t)n;
    const uint32_t zeros = changes << 4 | (uint32_t)before << 1, ones = zeros + ((elements - 2 * firsts) << 4) + 1;
    least = zeros < least ? zeros : least;
    return ones < least ? ones : least;
}

/* Sets before and ones after all tries. If 11 of 32 bits change independently, the code of the threes is as long as the
 * masks. */
MM_HD void mm_eb_take_before(mm_eb_prefix *p, uint32_t least, int n) {
    const bool few = 32 * (least >> 4) < 11 * (uint32_t)n;
    p->before = few ? (int)(least >> 1 & 7) : 0;
    p->ones = few && (least & 1);
}

/* ---------------------------------------------------------------- threes */

typedef struct mm_eb_three {
    uint32_t any, which[2], more, rest[2];
} mm_eb_three;

MM_HD mm_eb_three mm_eb_three_of(uint32_t a, uint32_t b, uint32_t c) {
    const uint32_t more = (a & b) | (c & (a | b));
    const mm_eb_three three = {a | b | c, {b | more, c | more}, more, {a & c, b & c}};
    return three;
}

/* The inverse: computes the changes from the words of a three. `which` must be 0 where `any` is 0, and `rest` must be 0
 * where `more` is 0. */
MM_HD void mm_eb_three_changes(const mm_eb_three *t, uint32_t *a, uint32_t *b, uint32_t *c) {
    *a = (t->any & ~(t->which[0] | t->which[1])) | (t->more & (t->rest[0] | ~t->rest[1]));
    *b = (t->which[0] & ~t->which[1]) | (t->more & (~t->rest[0] | t->rest[1]));
    *c = (t->which[1] & ~t->which[0]) | (t->more & (t->rest[0] | t->rest[1]));
}

/* Number of bits that the three takes in the string, apart from its bit among the first 11. */
MM_HD int mm_eb_three_bits(const mm_eb_three *t) {
    return t->any ? 32 + 2 * MM_EB_COUNT(t->any) + 2 * MM_EB_COUNT(t->more) : 0;
}

/* Packs the bits at the mask's places into the lowest bits. */
MM_HD uint32_t mm_eb_gather(uint32_t bits, uint32_t mask) {
    uint32_t gathered = 0;
    for (uint32_t to = 1; mask; mask &= mask - 1, to <<= 1)
        if (bits & mask & (0 - mask)) gathered |= to;
    return gathered;
}

/* The inverse of mm_eb_gather. */
MM_HD uint32_t mm_eb_scatter(uint32_t bits, uint32_t mask) {
    uint32_t scattered = 0;
    for (; mask; mask &= mask - 1, bits >>= 1)
        if (bits & 1) scattered |= mask & (0 - mask);
    return scattered;
}

#endif

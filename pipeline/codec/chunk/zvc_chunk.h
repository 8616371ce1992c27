/* SPDX-License-Identifier: MIT */
/* One chunk of the zvc codec: plain C functions of its format, the same on every device.
 *
 * Zero-value compression (M. Rhu et al., Compressing DMA Engine, HPCA 2018): 32 elements become a mask of the
 * non-zeros, and the non-zeros themselves. A zero is an element whose bits are all 0; -0 is not one. A chunk of n
 * elements (at most 1024) becomes, in 32-bit words:
 *
 *      (n + 31) / 32 masks    bit j of mask i: element 32 i + j is not zero. Bits beyond the last element are 0
 *      the rest               the non-zeros, in order
 *
 * The paper puts each mask before its non-zeros. Here all masks lie together, so a warp reads them at once, and a
 * prefix sum of their popcounts finds each non-zero. The sizes are equal. */
#ifndef PIPELINE_CODEC_CHUNK_ZVC_CHUNK_H
#define PIPELINE_CODEC_CHUNK_ZVC_CHUNK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef MM_HD
#define MM_HD static inline __attribute__((always_inline))
#endif

MM_HD int mm_zvc_masks(int n) { return (n + 31) / 32; }

/* Words of a code before its non-zeros. */
MM_HD int mm_zvc_head(const uint32_t *words, int n) {
    (void)words;
    return mm_zvc_masks(n);
}

/* Encodes the bits of n floats. Returns the words of the code, all of which are written, or n if the code would not be
 * smaller. words: has room for mm_zvc_masks(n) + n, all of which may be written. */
MM_HD int mm_zvc_encode(const uint32_t *src, int n, uint32_t *words) {
    uint32_t *value = words + mm_zvc_masks(n);
    for (int i = 0; i < n; i += 32) {
        const int to = n - i < 32 ? n - i : 32;
        uint32_t mask = 0;
        for (int j = 0; j < to; j++) {
            const uint32_t kept = src[i + j] != 0; /* no branch, because zeros are unpredictable */
            *value = src[i + j];
            value += kept;
            mask |= kept << j;
        }
        words[i / 32] = mask;
    }
    return value - words < n ? (int)(value - words) : n;
}

/* Whether `count` words, fewer than n, can be the code of n elements. */
MM_HD bool mm_zvc_possible(const uint32_t *words, int count, int n) {
    const int masks = mm_zvc_masks(n);
    if (count < masks) return false;
    int total = masks;
    for (int i = 0; i < masks; i++) total += __builtin_popcount(words[i]);
    return total == count && (n % 32 == 0 || words[masks - 1] >> n % 32 == 0);
}

/* Decodes a code of `count` words, fewer than n, to the bits of n floats. Returns false if it is no code of n elements.
 * Reads and writes nothing outside. */
MM_HD bool mm_zvc_decode(const uint32_t *words, int count, int n, uint32_t *dst) {
    if (!mm_zvc_possible(words, count, n)) return false;
    const uint32_t *value = words + mm_zvc_masks(n);
    memset(dst, 0, (size_t)n * sizeof *dst);
    for (int i = 0; i < n; i += 32)
        for (uint32_t mask = words[i / 32]; mask; mask &= mask - 1) dst[i + __builtin_ctz(mask)] = *value++;
    return true;
}

#endif

/* One chunk of the eb codec: plain C functions of its format. eb_value.h says what becomes of a value.
 *
 * Error-bounded: each value comes back within a bound E (|x - x'| <= E), and what is below E (|x| < E) as 0, as S. Jin et
 * al. ask for training (A Novel Memory-Efficient Deep Learning Training Framework via Error-Bounded Lossy Compression,
 * PPoPP 2021): zeros stay zeros, so that errors do not spread where nothing was. In place of their prediction and
 * Huffman table there is a width for each 32 values: one pass, no table.
 *
 * The code of a chunk of n elements (at most 1024), of which k are not below E, in 32-bit words:
 *
 *      nothing          if k is 0; else
 *      1                blocks: bit i: of elements 32 i to 32 i + 31, some are not below E
 *      blocks' count    masks: bit j of a block's: element 32 i + j is not below E
 *      (G + 8) / 8      nibbles, the first in the lowest bits; G = (k + 31) / 32 groups, of 32 values that follow one
 *                       another among the k. Nibble 0: 1 if one of the k is negative, else 0. Nibble 1 + g: the width w
 *                       of group g. Then 0
 *      w of each group  planes: bit j of a group's b-th word: bit b of the number u of its j-th value. Then 0
 *
 * u is q - 1 where none of the k is negative, else 2 (q - 1) + sign; w is what the group's largest u takes, 0 to 15 bits.
 *
 * Stored raw (chunk_code.h; elements below E are 0): a chunk whose code would not be smaller; one with q > 2^14; and one
 * with an infinity or a NaN, which come back as they are (mm_codec_counters.nonfinite_blocks counts these). With a bound
 * that is none (not from MM_EB_LEAST to MM_EB_MOST), each chunk is stored raw, with all its bits. */
#ifndef PIPELINE_CODEC_EB_CHUNK_H
#define PIPELINE_CODEC_EB_CHUNK_H

#include "pipeline/codec/eb_value.h"

/* Words before the planes. */
MM_HD int mm_eb_words_before(int blocks, int groups) { return 1 + blocks + (groups + 8) / 8; }

/* The number u of each of the k elements that are not below the bound; the masks of all blocks. False: to be stored raw. */
MM_HD bool mm_eb_numbers(mm_eb_quantiser z, const uint32_t *src, int n, uint32_t *masks, uint32_t *numbers, int *k_out,
                         bool *negatives_out) {
    uint32_t most = 0, any = 0;
    int k = 0;
    for (int i = 0; i < n; i += 32) {
        masks[i / 32] = 0;
        for (int j = i; j < n && j < i + 32; j++) {
            const uint32_t kept = !mm_eb_is_below(z, src[j]), q = mm_eb_quantise(z, src[j]);
            masks[i / 32] |= kept << (j - i);
            numbers[k] = 2 * (q - 1) + (src[j] >> 31);
            most = kept && q > most ? q : most;
            any |= kept ? src[j] : 0;
            k += (int)kept;
        }
    }
    *k_out = k;
    *negatives_out = any >> 31;
    if (!*negatives_out)
        for (int i = 0; i < k; i++) numbers[i] >>= 1;
    return most <= MM_EB_Q_MOST && z.bound > 0;
}

/* Encodes the bits of n floats. Returns the words of the code, all of which are written; or n, with nothing written, if
 * the chunk is to be stored raw. */
MM_HD int mm_eb_encode(mm_eb_quantiser z, const uint32_t *src, int n, uint32_t *words) {
    uint32_t masks[32], numbers[1024], blocks = 0;
    int k;
    bool negatives;
    if (!mm_eb_numbers(z, src, n, masks, numbers, &k, &negatives)) return n;
    if (k == 0) return 0;
    for (int i = 0; i < (n + 31) / 32; i++) blocks |= (uint32_t)(masks[i] != 0) << i;
    const int groups = (k + MM_EB_GROUP - 1) / MM_EB_GROUP;
    int widths[32], total = mm_eb_words_before(__builtin_popcount(blocks), groups);
    for (int g = 0; g < groups; g++) {
        uint32_t bits = 0;
        for (int j = g * MM_EB_GROUP; j < k && j < (g + 1) * MM_EB_GROUP; j++) bits |= numbers[j];
        total += widths[g] = mm_eb_width(bits);
    }
    if (total >= n) return n;
    memset(words, 0, (size_t)total * sizeof *words);
    *words++ = blocks;
    for (int i = 0; i < (n + 31) / 32; i++)
        if (masks[i]) *words++ = masks[i];
    words[0] = negatives;
    for (int g = 0; g < groups; g++) words[(g + 1) / 8] |= (uint32_t)widths[g] << (g + 1) % 8 * 4;
    words += (groups + 8) / 8;
    for (int g = 0; g < groups; words += widths[g++])
        for (int j = g * MM_EB_GROUP; j < k && j < (g + 1) * MM_EB_GROUP; j++)
            for (int b = 0; b < widths[g]; b++) words[b] |= (numbers[j] >> b & 1) << j % MM_EB_GROUP;
    return total;
}

/* What a code says of itself. */
typedef struct mm_eb_parts {
    int masks, k, groups;
    bool negatives;
    const uint32_t *mask, *nibbles, *planes;
} mm_eb_parts;

/* Width of group g. */
MM_HD int mm_eb_group_width(const uint32_t *nibbles, int g) {
    return (int)(nibbles[(g + 1) / 8] >> (g + 1) % 8 * 4 & 15);
}

/* Reads the parts of a code of `count` words, from 1 to n - 1. False: it is no code of n elements. */
MM_HD bool mm_eb_parts_of(const uint32_t *words, int count, int n, mm_eb_parts *parts) {
    const int blocks = (n + 31) / 32;
    if (words[0] == 0 || (blocks < 32 && words[0] >> blocks)) return false;
    parts->masks = __builtin_popcount(words[0]);
    parts->mask = words + 1;
    parts->nibbles = parts->mask + parts->masks;
    if (parts->masks + 2 > count) return false;
    parts->k = 0;
    for (int i = 0; i < parts->masks; i++) parts->k += __builtin_popcount(parts->mask[i]);
    const uint32_t last = words[0] >> (blocks - 1) ? parts->mask[parts->masks - 1] : 0;
    parts->groups = (parts->k + MM_EB_GROUP - 1) / MM_EB_GROUP;
    int total = mm_eb_words_before(parts->masks, parts->groups);
    if ((n % 32 && last >> n % 32) || total > count) return false;
    parts->planes = words + total;
    parts->negatives = parts->nibbles[0] & 1;
    for (int g = 0; g < parts->groups; g++) total += mm_eb_group_width(parts->nibbles, g);
    return total == count;
}

/* Decodes a code of `count` words, fewer than n, to the bits of n floats. False: it is no code of n elements, or the
 * bound is none. Reads and writes nothing outside. */
MM_HD bool mm_eb_decode(mm_eb_quantiser z, const uint32_t *words, int count, int n, uint32_t *dst) {
    mm_eb_parts parts;
    memset(dst, 0, (size_t)n * sizeof *dst);
    if (count == 0) return true;
    if (z.bound == 0 || !mm_eb_parts_of(words, count, n, &parts)) return false;
    int at = 0;
    for (int i = 0; i < (n + 31) / 32; i++) {
        if (!(words[0] >> i & 1)) continue;
        for (uint32_t mask = *parts.mask++; mask; mask &= mask - 1, at++) {
            const int g = at / MM_EB_GROUP, width = mm_eb_group_width(parts.nibbles, g);
            uint32_t u = 0;
            for (int b = 0; b < width; b++) u |= (parts.planes[b] >> at % MM_EB_GROUP & 1) << b;
            dst[32 * i + __builtin_ctz(mask)] = mm_eb_value(z, u, parts.negatives);
            if (at % MM_EB_GROUP == MM_EB_GROUP - 1) parts.planes += width;
        }
    }
    return true;
}

#endif

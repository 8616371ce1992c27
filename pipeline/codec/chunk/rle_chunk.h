/* SPDX-License-Identifier: MIT */
/* One chunk of the rle codec: plain C functions of its format, the same on every device.
 *
 * Run-length encoding of zeros, with which cDMA compares itself (M. Rhu et al., Compressing DMA Engine, HPCA 2018). A
 * zero is an element whose bits are all 0; -0 is not one. A chunk of n elements (at most 1024) becomes, in 32-bit
 * words:
 *
 *      word 0         r, the number of runs of non-zeros
 *      words 1 to r   one run each, in order: first element in bits 0 to 15, the one after its last in bits 16 to 31
 *      the rest       the non-zeros, in order
 *
 * Runs are as long as possible: there is at least one zero between two. So a chunk of zeros takes one word, and a chunk
 * without zeros n + 2.
 *
 * Runs have positions rather than lengths, so that 32 lanes can write and read them in parallel. To encode, a lane
 * takes 32 elements that follow one another, and makes a mask m of its non-zeros (32 ballots, of which lane i keeps the
 * i-th). With c, the bit before its first (0 for lane 0), the starts of runs are the bits of m & ~(m << 1 | c), and the
 * ends those of ~m & (m << 1 | c); a run that reaches the chunk's last element ends at n. Prefix sums over lanes of
 * popcounts number the starts, the ends and the non-zeros; the i-th start and the i-th end make run i. To decode, both
 * are toggled in a bit array of 1024 bits, of which a prefix xor is the mask; from there on it is as in zvc: a prefix
 * sum of popcounts finds each non-zero. */
#ifndef PIPELINE_CODEC_CHUNK_RLE_CHUNK_H
#define PIPELINE_CODEC_CHUNK_RLE_CHUNK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef MM_HD
#define MM_HD static inline __attribute__((always_inline))
#endif

/* Words of a code before its non-zeros. */
MM_HD int mm_rle_head(const uint32_t *words, int n) {
    (void)n;
    return words[0] < 1024 ? 1 + (int)words[0] : 1024; /* 1024: the code is damaged */
}

/* Number of words of the code of n elements. *runs_out: number of runs. */
MM_HD int mm_rle_words(const uint32_t *src, int n, int *runs_out) {
    int runs = 0, kept = 0;
    for (int i = 0; i < n; i++) {
        kept += src[i] != 0;
        runs += src[i] != 0 && (i == 0 || src[i - 1] == 0);
    }
    *runs_out = runs;
    return 1 + runs + kept;
}

/* Encodes the bits of n floats. Returns the words of the code, all of which are written; or n, with nothing written, if
 * the code would not be smaller. */
MM_HD int mm_rle_encode(const uint32_t *src, int n, uint32_t *words) {
    int runs;
    const int total = mm_rle_words(src, n, &runs);
    if (total >= n) return n;
    uint32_t *run = words, *value = words + 1 + runs;
    *run++ = (uint32_t)runs;
    for (int i = 0; i < n;) {
        const int first = i;
        while (i < n && src[i] != 0) *value++ = src[i++];
        if (i > first) *run++ = (uint32_t)first | (uint32_t)i << 16;
        while (i < n && src[i] == 0) i++;
    }
    return total;
}

/* Decodes a code of `count` words, fewer than n, to the bits of n floats. Returns false if it is no code of n elements;
 * dst is then undefined. Reads and writes nothing outside. */
MM_HD bool mm_rle_decode(const uint32_t *words, int count, int n, uint32_t *dst) {
    if (count < 1 || words[0] > (uint32_t)(count - 1)) return false;
    const int runs = (int)words[0];
    int kept = count - 1 - runs, i = 0;
    const uint32_t *value = words + 1 + runs;
    for (int r = 0; r < runs; r++) {
        const int first = (int)(words[1 + r] & 0xffff), end = (int)(words[1 + r] >> 16);
        if (first < i + (r > 0) || end <= first || end > n || end - first > kept) return false;
        while (i < first) dst[i++] = 0;
        kept -= end - first;
        while (i < end) dst[i++] = *value++;
    }
    while (i < n) dst[i++] = 0;
    return kept == 0;
}

#endif

/* SPDX-License-Identifier: MIT */
/* One chunk of the csr codec: plain C functions of its format, the same on every device.
 *
 * Gist's Sparse Storage and Dense Compute (A. Jain et al., Gist, ISCA 2018): compressed sparse rows of 256 columns, so
 * that a column takes one byte. A zero is an element whose bits are all 0; -0 is not one. A chunk has at most 1024
 * elements, which are four rows. With k non-zeros in it, its code is, in 32-bit words:
 *
 *      words 0, 1    where each row's non-zeros end among all of them: row 0 in bits 0 to 15 of word 0, row 1 in bits
 *                    16 to 31, rows 2 and 3 in word 1. Row 3 ends at k, even if the chunk has fewer rows
 *      (k + 3) / 4   columns: one byte for each non-zero, the first in a word's lowest bits, zeros after the last
 *      the rest      values: k words that are the non-zeros; or their codes as dpr packs them (dpr_value.h), 2, 3 or 4
 *                    in a word, the first in its lowest bits, zeros after the last
 *
 * With values in a dpr format the codec is lossy: a small value becomes a zero, with its sign, and keeps its entry.
 *
 * 32 lanes encode it as in zvc: a lane takes 32 elements and the mask of their non-zeros; prefix sums of popcounts
 * number them. To decode, lanes take non-zeros in turn: non-zero j lies in row r if r ends are <= j. */
#ifndef PIPELINE_CODEC_CHUNK_CSR_CHUNK_H
#define PIPELINE_CODEC_CHUNK_CSR_CHUNK_H

#include "pipeline/codec/block/dpr_value.h"

#include <stdbool.h>
#include <string.h>

enum { MM_CSR_ROW = 256, MM_CSR_ROWS = 4, MM_CSR_HEAD_WORDS = 2 };

/* Format of the values: unchanged (all members 0), or a format of dpr. */
typedef struct mm_csr_values {
    int exponent, mantissa; /* bits */
    int per_word;           /* values in a word; 0: unchanged */
} mm_csr_values;

/* Words of a code before its non-zeros. */
MM_HD int mm_csr_head(const uint32_t *words, int n) {
    (void)n;
    return MM_CSR_HEAD_WORDS + ((int)(words[1] >> 16) + 3) / 4;
}

/* Words that k values take. */
MM_HD int mm_csr_value_words(mm_csr_values v, int k) { return v.per_word ? (k + v.per_word - 1) / v.per_word : k; }

/* Words of a code with k non-zeros. */
MM_HD int mm_csr_words(mm_csr_values v, int k) { return MM_CSR_HEAD_WORDS + (k + 3) / 4 + mm_csr_value_words(v, k); }

/* Encodes the bits of n floats. Returns the words of the code, all of which are written; or n, with nothing written, if
 * the code would not be smaller. */
MM_HD int mm_csr_encode(mm_csr_values v, const uint32_t *src, int n, uint32_t *words) {
    int kept = 0;
    for (int i = 0; i < n; i++) kept += src[i] != 0;
    const int total = mm_csr_words(v, kept), bits = 1 + v.exponent + v.mantissa;
    if (total >= n) return n;
    uint32_t *columns = words + MM_CSR_HEAD_WORDS, *values = columns + (kept + 3) / 4;
    memset(words, 0, (size_t)total * sizeof *words);
    int k = 0;
    for (int row = 0; row < MM_CSR_ROWS; row++) {
        const int from = row * MM_CSR_ROW, to = from + MM_CSR_ROW < n ? from + MM_CSR_ROW : n;
        for (int i = from; i < to; i++) {
            if (src[i] == 0) continue;
            columns[k / 4] |= (uint32_t)(i - from) << k % 4 * 8;
            if (v.per_word)
                values[k / v.per_word] |= mm_dpr_encode(src[i], v.exponent, v.mantissa) << k % v.per_word * bits;
            else
                values[k] = src[i];
            k++;
        }
        words[row / 2] |= (uint32_t)k << row % 2 * 16;
    }
    return total;
}

/* Decodes a code of `count` words, fewer than n, to the bits of n floats. Returns false if it is no code of n elements;
 * dst is then undefined. Reads and writes nothing outside. Does not check bits that the encoder leaves zero. */
MM_HD bool mm_csr_decode(mm_csr_values v, const uint32_t *words, int count, int n, uint32_t *dst) {
    if (count < MM_CSR_HEAD_WORDS) return false;
    const int kept = (int)(words[1] >> 16), bits = 1 + v.exponent + v.mantissa;
    if (kept > n || mm_csr_words(v, kept) != count) return false;
    const uint32_t *columns = words + MM_CSR_HEAD_WORDS, *values = columns + (kept + 3) / 4;
    memset(dst, 0, (size_t)n * sizeof *dst);
    int k = 0;
    for (int row = 0; row < MM_CSR_ROWS; row++) {
        const int end = (int)(words[row / 2] >> row % 2 * 16 & 0xffff);
        if (end < k || end > kept) return false;
        for (int before = -1; k < end; k++) {
            const int column = (int)(columns[k / 4] >> k % 4 * 8 & 0xff), i = row * MM_CSR_ROW + column;
            if (column <= before || i >= n) return false;
            before = column;
            dst[i] = v.per_word ? mm_dpr_decode(values[k / v.per_word] >> k % v.per_word * bits, v.exponent, v.mantissa)
                                : values[k];
        }
    }
    return true;
}

#endif

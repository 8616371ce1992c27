/* SPDX-License-Identifier: MIT */
/* Layout of codes of variable size, which consist of chunks. Plain C functions, the same on every device.
 *
 * A chunk is 1024 consecutive elements of the map (4 KiB of f32, the window of cDMA: Rhu et al., HPCA 2018); the last
 * may be shorter.
 *
 *   head   | int64 begin | uint32 at[0], at[1], ... at[chunks] | padding to 8 bytes |
 *   body   | chunk 0 | chunk 1 | ... |
 *
 * begin: the body's first position in its pool's range, aligned to 256. at[i]: where chunk i begins in the body, in
 * words of 4 bytes; at[chunks]: the body's words. The padding is zeros. All is little-endian.
 *
 * A chunk's code has at most as many words as the chunk's elements fill. If it has exactly as many, it is the elements
 * themselves ("raw"). So a body is never larger than the map.
 *
 * Codecs process elements of 32 bits. Elements of 16 bits (f16, bf16) are passed to them thus:
 *
 *      lossy       widened to floats; decoded floats are rounded back (half_value.h)
 *      lossless    their bits, zero-extended. The code has the non-zeros last, a word each; then two share a word:
 *                  | masks, runs or columns | value 0, value 1 | value 2, value 3 | ... |, zeros after the last
 *      deflate     two elements as one of 32 bits
 *      exponent    their bits, zero-extended; the code has what is left of each element (exponent_chunk.h) */
#ifndef PIPELINE_CODEC_CHUNK_CHUNK_CODE_H
#define PIPELINE_CODEC_CHUNK_CHUNK_CODE_H

#include <stdbool.h>
#include <stddef.h>

#include "pipeline/codec/code_body.h"

#ifndef MM_HD
#define MM_HD static inline __attribute__((always_inline))
#endif
/* MM_HD of functions that host code calls, too. */
#ifndef MM_HD_CONSTEXPR
#define MM_HD_CONSTEXPR MM_HD
#endif

enum {
    MM_CHUNK_ELEMS = 1024,
    MM_CHUNK_MOST_BYTES = 4 * MM_CHUNK_ELEMS,
    MM_BODY_ALIGN = 256, /* alignment of `begin` */
};
/* The most elements of a map: at[] counts the body's words in 32 bits. */
#define MM_CHUNK_MAP_ELEMS_MOST ((int64_t)UINT32_MAX)

MM_HD_CONSTEXPR int64_t mm_chunks(int64_t elems) { return (elems + MM_CHUNK_ELEMS - 1) / MM_CHUNK_ELEMS; }

/* Words that n elements fill. */
MM_HD int mm_chunk_raw_words(int n, bool halves) { return halves ? (n + 1) / 2 : n; }

/* Elements of chunk i. */
MM_HD int mm_chunk_elems(int64_t elems, int64_t i) {
    const int64_t left = elems - i * MM_CHUNK_ELEMS;
    return left < MM_CHUNK_ELEMS ? (int)left : (int)MM_CHUNK_ELEMS;
}

/* Bytes of the head, padding included. */
MM_HD int64_t mm_chunk_head_bytes(int64_t elems) { return 8 + (4 * (mm_chunks(elems) + 1) + 7) / 8 * 8; }

MM_HD int64_t mm_body_begin(int64_t end_of_last) {
    return (end_of_last + MM_BODY_ALIGN - 1) / MM_BODY_ALIGN * MM_BODY_ALIGN;
}

/* Whether a body may begin at this position; if not, the head is damaged. */
MM_HD bool mm_body_begin_is_possible(const mm_code_body *body, int64_t begin) {
    return begin >= 0 && begin % MM_BODY_ALIGN == 0 && begin <= body->pool_bytes + body->spill_bytes;
}

/* Whether at[i] = from and at[i + 1] = to are possible for a chunk whose elements fill `raw` words; if not, the head is
 * damaged. */
MM_HD bool mm_chunk_words_are_possible(uint32_t from, uint32_t to, int raw) {
    return from <= to && to - from <= (uint32_t)raw;
}

/* Number of 16-bit non-zeros in a code of `count` words, in which they begin after the first `head` words; -1: the code
 * is damaged. */
MM_HD int mm_chunk_half_values(const uint32_t *words, int count, int head) {
    if (head > count) return -1;
    return 2 * (count - head) - (count > head && words[count - 1] >> 16 == 0);
}

/* Whether a chunk's code lies in the spill. */
MM_HD bool mm_chunk_spills(const mm_code_body *body, int64_t position, int64_t bytes) {
    return position + bytes > body->pool_bytes;
}

/* Address of a chunk's code of `bytes` (at most MM_CHUNK_MOST_BYTES) at a position. A code that does not end in the
 * pool lies wholly in the spill; so the spill must be one chunk larger than what the pool lacks:
 *      pool  |....[chunk][chun|        spill  |  chunk [chunk][chunk]....|
 * NULL: there is no room in either. position: `begin` or later; `begin` must be possible as above. */
MM_HD uint8_t *mm_chunk_place(const mm_code_body *body, int64_t position, int64_t bytes) {
    if (!mm_chunk_spills(body, position, bytes)) return (uint8_t *)body->pool + position;
    const int64_t at = position - body->pool_bytes + MM_CHUNK_MOST_BYTES;
    return at + bytes <= body->spill_bytes ? (uint8_t *)body->spill + at : NULL;
}

#endif

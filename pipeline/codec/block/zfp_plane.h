/* SPDX-License-Identifier: MIT */
/* The code of one bit plane of a ZFP block, and the bits of a block in memory. A part of zfp_block.h.
 *
 * A plane has 4, 16 or 64 bits, one for each coefficient. A coefficient is significant if its bit is set in some higher
 * plane; n is the number of coefficients up to the last significant one. The code of a plane is:
 *   - the bits of the first n coefficients, verbatim;
 *   - while a coefficient from n on is set: a one, the bits from n up to and including the next one that is set; n is
 *     then the coefficient after it;
 *   - a zero, when no further coefficient is set.
 * At the last coefficient its one and the final zero are implied, and left out.
 *
 * Equivalently: after the n bits come a one and the rest of the plane, up to its last one, with a one inserted after
 * each one, except after the last, where a zero is inserted; or just a zero, if the rest is zero.
 *
 * A file for another compiler (CUDA) defines MM_HD and all the macros below itself, before it includes this one. */
#ifndef PIPELINE_CODEC_BLOCK_ZFP_PLANE_H
#define PIPELINE_CODEC_BLOCK_ZFP_PLANE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef MM_UNROLL
#undef MM_HD /* headers such as dpr_value.h define it, too */
#undef MM_HD_CONSTEXPR
#define MM_HD           static inline
#define MM_HD_CONSTEXPR MM_HD
#define MM_UNROLL
/* shift by the low five bits of `by` */
#define MM_SHIFT_RIGHT(x, by) ((x) >> ((by)&31))
#define MM_SHIFT_LEFT(x, by)  ((x) << ((by)&31))
/* bit length of x (0 for 0); and 32 less that length */
#define MM_LENGTH32(x)    (32 - MM_ABOVE32(x))
#define MM_ABOVE32(x)     ((x) ? __builtin_clz(x) : 32)
#define MM_POPC32(x)      __builtin_popcount(x)
#define MM_POPC64(x)      __builtin_popcountll(x)
#define MM_DOUBLE_ONES(x) mm_zfp_double_ones(x)
#define MM_UNDOUBLE(code) mm_zfp_undouble(code)
/* DROP: x without its low 32 - above bits (above: 1 to 32). SPLICE: these low bits of `low`, then `high` */
#define MM_DROP(x, above)           ((x) >> (32 - (above)))
#define MM_SPLICE(low, high, above) (((low)&mm_zfp_ones(32 - (above))) | (high) << (32 - (above)))
/* four of the bytes 0 to 3 of a and 4 to 7 of b, the lowest first */
#define MM_BYTES(a, b, i, j, k, l)                                                                                     \
    (mm_zfp_byte(a, b, i) | mm_zfp_byte(a, b, j) << 8 | mm_zfp_byte(a, b, k) << 16 | mm_zfp_byte(a, b, l) << 24)
/* A constant, hidden from a compiler that would make slower code of it. */
#define MM_CONSTANT(x) (x)
/* value * scale as an integer. infinite: the scale is infinite (and passed as 0); the result is libzfp's, INT32_MIN. */
#define MM_INTEGER(value, scale, infinite) ((infinite) ? (uint32_t)INT32_MIN : (uint32_t)(int32_t)((value) * (scale)))
#endif

/* The i-th byte of MM_BYTES: of a for i < 4, else of b. */
MM_HD uint32_t mm_zfp_byte(uint32_t a, uint32_t b, int i) { return (i < 4 ? a : b) >> i % 4 * 8 & 0xff; }

/* The smaller of two, as unsigned numbers. */
MM_HD int mm_zfp_least(int a, int b) { return (uint32_t)a < (uint32_t)b ? a : b; }

/* `count` < 32 ones. */
MM_HD uint32_t mm_zfp_ones(int count) { return (UINT32_C(1) << count) - 1; }

/* The bits of x < 2^16 with a one inserted after each one. MM_DOUBLE_ONES is this function, or a table of it. */
MM_HD uint32_t mm_zfp_double_ones(uint32_t x) {
    uint32_t doubled = x;
    while (x) {
        const uint32_t up_to_first = x ^ (x - 1), beyond = doubled & ~up_to_first;
        doubled += beyond + up_to_first + 1;
        x = (x & ~up_to_first) << 1;
    }
    return doubled;
}

enum { MM_ZFP_PART_BITS = 10, MM_ZFP_GOES_ON = 64 };

/* Decodes the low MM_ZFP_PART_BITS bits of `code`, which follows the n verbatim bits of a plane. If the first bit is
 * zero, the rest of the plane is zero. Else the plane's bits follow, up to a one that is followed by a zero, where the
 * code ends, or up to the last of these bits. If they end with a one, without its inserted bit, that one is left for
 * the next part. The result has
 *      bits 0 to 15    the bits of the plane
 *      bits 16 to 20   the number of bits of the code that were used, less 1. If the code has not ended: shift it by
 *                      that number, set its first bit, and decode again
 *      bits 24 to 31   the number of bits used, less MM_ZFP_GOES_ON (so negative) if the code has not ended
 * MM_UNDOUBLE is this function, or a table of it. */
MM_HD_CONSTEXPR uint32_t mm_zfp_undouble(uint32_t code) {
    uint32_t bits = 0, count = 0, taken = 1, end = !(code & 1);
    while (taken < MM_ZFP_PART_BITS && !end) {
        const uint32_t one = code >> taken & 1;
        if (one && taken == MM_ZFP_PART_BITS - 1) break;
        bits |= one << count++;
        end = one && !(code >> (taken + 1) & 1);
        taken += 1 + one;
    }
    return bits | (taken - 1) << 16 | (end ? count : count - MM_ZFP_GOES_ON) << 24;
}

MM_HD int mm_zfp_part_count(uint32_t part) { return (int32_t)part >> 24; }
MM_HD uint32_t mm_zfp_part_bits(uint32_t part) { return part & 0xffff; }
MM_HD uint32_t mm_zfp_part_used(uint32_t part) { return part >> 16 & 31; }

/* ---------------------------------------------------------------- planes of 4 or 16 bits */

/* Encodes plane x of `values` coefficients. *seen: bits that were set in higher planes; its length is n; updated.
 * Returns the code, of *length_out <= 31 bits; the bits above are undefined. */
MM_HD uint32_t mm_zfp_plane_encode(uint32_t x, int values, uint32_t *seen, int *length_out) {
    const uint32_t last = UINT32_C(1) << (values - 1); /* the coefficient whose one is implied */
    const int above = MM_ABOVE32(*seen);
    const uint32_t rest = MM_DROP(x & ~last, above), all = *seen | x;
    const int zero = MM_LENGTH32(all) + MM_POPC32(rest); /* position of the final zero, unless the last is set */
    *seen = all;
    *length_out = zero + 1 - (int)(all >> (values - 1));
    return MM_SPLICE(x, MM_DOUBLE_ONES(rest) << 1 | 1, above) ^ (UINT32_C(1) << zero);
}

/* Decodes the plane whose code is at the start of `window`, of which `left` > 0 bits belong to the block, and zeros
 * follow. Updates n, and sets the length of the code. If the code is cut off, the length is above `left`, and the
 * plane is that of libzfp: it has a one at the coefficient that was being read. */
MM_HD uint32_t mm_zfp_plane_decode(uint32_t window, int left, int values, int *n, int *length_out) {
    const int first = *n, last = values - 1 - first; /* last: in the rest, the coefficient whose one is implied */
    uint32_t code = window >> first, part = MM_UNDOUBLE(code), rest = mm_zfp_part_bits(part);
    int count = mm_zfp_part_count(part);
    while (count < last - MM_ZFP_GOES_ON) {
        code = MM_SHIFT_RIGHT(code, mm_zfp_part_used(part)) | 1;
        part = MM_UNDOUBLE(code);
        rest |= MM_SHIFT_LEFT(mm_zfp_part_bits(part), count);
        count += mm_zfp_part_count(part) + MM_ZFP_GOES_ON;
    }
    rest &= mm_zfp_ones(values - 1) >> first;
    const int behind = first + count; /* negative if the code goes on, which as an unsigned number is beyond the last */
    const int next = mm_zfp_least(behind, values), length = mm_zfp_least(behind, values - 1) + MM_POPC32(rest) + 1;
    /* Sets the implied one, unless the code ended before it, or all coefficients are significant. If the code is cut
     * off, the one lies as many bits lower as are missing. */
    const int after = left - length, at = first > first - after ? first : first - after;
    if (next == values) rest |= UINT32_C(1) << (values - 1) >> at;
    *n = next;
    *length_out = length;
    return MM_SPLICE(window, rest, 32 - first);
}

/* ---------------------------------------------------------------- the bits of a block in memory */

/* Writes up to `maxbits` bits to words; further bits are dropped. */
typedef struct mm_zfp_writer {
    uint32_t *words;
    int maxbits, position; /* position: of the first pending bit, a multiple of 32 */
    uint64_t pending;      /* the last `fill` < 32 bits, zeros above */
    int fill;
} mm_zfp_writer;

MM_HD mm_zfp_writer mm_zfp_writer_make(uint32_t *words, int maxbits) {
    const mm_zfp_writer out = {words, maxbits, 0, 0, 0};
    return out;
}

MM_HD bool mm_zfp_full(const mm_zfp_writer *out) { return out->position + out->fill >= out->maxbits; }

/* Puts the low `count` (0 to 32) bits of `bits`, whose higher bits are zero. */
MM_HD void mm_zfp_put(mm_zfp_writer *out, uint32_t bits, int count) {
    out->pending |= (uint64_t)bits << out->fill;
    out->fill += count;
    if (out->fill < 32) return;
    if (out->position < out->maxbits) out->words[out->position / 32] = (uint32_t)out->pending;
    out->position += 32;
    out->pending >>= 32;
    out->fill -= 32;
}

/* Writes the pending bits, and pads with zeros. */
MM_HD void mm_zfp_finish(mm_zfp_writer *out) {
    for (; out->position < out->maxbits; out->position += 32, out->pending >>= 32)
        out->words[out->position / 32] = (uint32_t)out->pending;
    if (out->maxbits % 32) out->words[out->maxbits / 32] &= mm_zfp_ones(out->maxbits % 32);
}

/* The 32 bits from a position on. */
MM_HD uint32_t mm_zfp_peek(const uint32_t *words, int position) {
    const uint64_t pair = words[position / 32] | (uint64_t)words[position / 32 + 1] << 32;
    return (uint32_t)(pair >> position % 32);
}

MM_HD uint64_t mm_zfp_peek_64(const uint32_t *words, int position) {
    return mm_zfp_peek(words, position) | (uint64_t)mm_zfp_peek(words + 1, position) << 32;
}

/* ---------------------------------------------------------------- planes of 64 bits */

/* Puts the code of plane x, and updates n. */
MM_HD void mm_zfp_plane_put(mm_zfp_writer *out, uint64_t x, int *n) {
    const int first = *n;
    const uint32_t low = (uint32_t)x, high = (uint32_t)(x >> 32);
    if (first < 32) {
        mm_zfp_put(out, low & mm_zfp_ones(first), first);
    } else {
        mm_zfp_put(out, low, 32);
        mm_zfp_put(out, first < 64 ? high & mm_zfp_ones(first - 32) : high, first - 32);
    }
    if (first == 64) return;
    uint64_t rest = x >> first;
    mm_zfp_put(out, rest != 0, 1);
    for (int at = first; rest; at += 16) {
        const uint32_t part = (uint32_t)rest & 0xffff;
        rest >>= 16;
        uint32_t code = MM_DOUBLE_ONES(part);
        int length = 16 + MM_POPC32(part);
        if (!rest) { /* the last one is in this part */
            const int bits = MM_LENGTH32(part);
            length += bits - 16;
            code ^= UINT32_C(1) << (length - 1);
            *n = at + bits;
            if (*n == 64) {
                code ^= UINT32_C(1) << (length - 2);
                length -= 2;
            }
        }
        mm_zfp_put(out, code, length);
    }
}

/* Decodes the plane whose code is at *position, in a block that ends at `end`. Moves *position past the code, and
 * beyond `end` if the code is cut off, as in mm_zfp_plane_decode. */
MM_HD uint64_t mm_zfp_plane_get(const uint32_t *words, int end, int *position, int *n) {
    const int first = *n, last = 63 - first, verbatim = first < end - *position ? first : end - *position;
    uint64_t x = mm_zfp_peek_64(words, *position);
    int at = *position + verbatim;
    if (verbatim < 64) x &= (UINT64_C(1) << verbatim) - 1;
    if (last < 0 || at >= end) {
        *position = at + (last >= 0);
        return x;
    }
    const int group = at + 1;
    uint64_t rest = 0;
    uint32_t part, more = 0; /* 1: not the first part of the group */
    int count = 0;
    bool ended;
    do {
        const int left = end - at;
        const uint32_t code = left > 0 ? mm_zfp_peek(words, at) : 0;
        part = MM_UNDOUBLE((left < MM_ZFP_PART_BITS && left > 0 ? code & mm_zfp_ones(left) : code) | more);
        rest |= (uint64_t)mm_zfp_part_bits(part) << count;
        ended = mm_zfp_part_count(part) >= 0;
        count += mm_zfp_part_count(part) + (ended ? 0 : MM_ZFP_GOES_ON);
        at += (int)mm_zfp_part_used(part);
        more = 1;
    } while (!ended && count < last);

    ended = ended && count <= last;
    if (!ended) rest &= (UINT64_C(1) << last) - 1;
    const int ones = MM_POPC64(rest), cut = end - group - ones;
    if (!ended) {
        count = cut < last ? cut : last;
        rest |= UINT64_C(1) << count;
    }
    *position = group + count + ones;
    *n = first + count + !ended;
    return x | rest << first;
}

#endif

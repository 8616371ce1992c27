/* The code of one bit plane of a ZFP block, and the bits of a block. A part of zfp_block.h, in a file of its own.
 *
 * The code of a plane of 4, 16 or 64 bits, where coefficients up to the n-th have been seen set in higher planes: the bits
 * of those n; then, as long as any coefficient from n on has its bit set, a one and the bits from n up to the next that is
 * set, and n is behind that; then a zero. What is implied at the last coefficient is left out: its one and the zero.
 *
 * Said otherwise: after the n bits comes a one, and the rest of the plane with a one put after each one, up to its last
 * one, where a zero is put; or just a zero, if the rest is zero.
 *
 * An includer for another compiler may define MM_HD and all macros beside it itself. */
#ifndef PIPELINE_CODEC_ZFP_PLANE_H
#define PIPELINE_CODEC_ZFP_PLANE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifndef MM_HD
#define MM_HD static inline
#define MM_UNROLL
/* by the low five bits of `by` */
#define MM_SHIFT_RIGHT(x, by) ((x) >> ((by)&31))
/* how many bits x has: 0 for 0 */
#define MM_LENGTH32(x)    ((x) ? 32 - __builtin_clz(x) : 0)
#define MM_POPC64(x)      __builtin_popcountll(x)
#define MM_DOUBLE_ONES(x) mm_zfp_double_ones(x)
#define MM_UNDOUBLE(part) mm_zfp_undouble((part) >> 2 & 0x3ff)
#define MM_POPC32(x)      __builtin_popcount(x)
/* bytes 0 and 2 of a and of b, interleaved; bytes 1 and 3 */
#define MM_EVEN_BYTES(a, b) (((a)&UINT32_C(0x00ff00ff)) | ((b) << 8 & UINT32_C(0xff00ff00)))
#define MM_ODD_BYTES(a, b)  (((a) >> 8 & UINT32_C(0x00ff00ff)) | ((b)&UINT32_C(0xff00ff00)))
#endif

/* `count` < 32 ones. */
MM_HD uint32_t mm_zfp_ones(int count) { return (UINT32_C(1) << count) - 1; }

/* The bits of x < 2^16 with a one put after each one. Compilers that have tables for it: MM_DOUBLE_ONES. */
MM_HD uint32_t mm_zfp_double_ones(uint32_t x) {
    uint32_t doubled = x;
    while (x) {
        const uint32_t up_to_first = x ^ (x - 1), beyond = doubled & ~up_to_first;
        doubled += beyond + up_to_first + 1;
        x = (x & ~up_to_first) << 1;
    }
    return doubled;
}

enum { MM_ZFP_PART_BITS = 10 };

/* The inverse of MM_ZFP_PART_BITS of such bits, up to and without a last one whose one put after it is not among them; up
 * to and with a one that a zero follows, where a code ends:
 *      bits 0 to 9     the bits without those put in
 *      bits 16 to 23   how many they are
 *      bits 24 to 28   how many bits of the part that took
 *      bit 31          whether the code ends
 * Compilers that have a table for it: MM_UNDOUBLE, of the part that is at bits 2 to 11 of a word. */
MM_HD uint32_t mm_zfp_undouble(uint32_t part) {
    uint32_t bits = 0, count = 0, taken = 0, end = 0;
    while (taken < MM_ZFP_PART_BITS && !end) {
        const uint32_t one = part >> taken & 1;
        if (one && taken == MM_ZFP_PART_BITS - 1) break;
        bits |= one << count++;
        end = one && !(part >> (taken + 1) & 1);
        taken += 1 + one;
    }
    return bits | count << 16 | taken << 24 | end << 31;
}

/* ---------------------------------------------------------------- planes of 4 or 16 bits */

/* The code, at most 31 bits and anything above, of plane x of `values` coefficients; n and the code's length are
 * updated. */
MM_HD uint32_t mm_zfp_plane_encode(uint32_t x, int values, int *n, int *length_out) {
    const int first = *n;
    const uint32_t whole = x >> first, last = UINT32_C(1) << (values - 1) >> first, rest = whole & ~last;
    const bool whole_rest = whole >= last; /* up to the last coefficient, whose one is implied, or none are left */
    const int ones = MM_POPC32(rest), next = whole_rest ? values : first + MM_LENGTH32(rest);
    const uint32_t end = whole_rest ? 0 : UINT32_C(1) << (next - first + ones); /* the zero */
    *n = next;
    *length_out = next + ones + !whole_rest;
    return x ^ (whole ^ (MM_DOUBLE_ONES(rest) << 1 | 1) ^ end) << first;
}

/* The plane whose code begins `window`; of it `left` > 0 bits are the block's, and zeros follow them. n is updated and
 * the code's length set (beyond `left` if the code is cut off there: then it means what libzfp makes of it, a one at
 * the coefficient that was being read). */
MM_HD uint32_t mm_zfp_plane_decode(uint32_t window, int left, int values, int *n, int *length_out) {
    const int first = *n, last = values - 1 - first; /* of the rest, the coefficient whose one is implied */
    const uint32_t group = window >> first;
    uint32_t rest = 0;
    *length_out = first + (last >= 0);
    if (last >= 0 && group & 1) {
        uint32_t doubled = group << 1, part; /* from bit 2 on */
        int count = 0;
        do {
            part = MM_UNDOUBLE(doubled);
            rest |= (part & 0x3ff) << count;
            count += (int)(part >> 16 & 0xff);
            doubled = MM_SHIFT_RIGHT(doubled, part >> 24);
        } while (!(part >> 31) && count < last);

        const bool ended = part >> 31 && count <= last;
        if (!ended) rest &= mm_zfp_ones(last);
        const int ones = MM_POPC32(rest), cut = left - first - 1 - ones;
        if (!ended) {
            count = cut < last ? cut : last;
            rest |= UINT32_C(1) << count;
        }
        *length_out = first + 1 + count + ones;
        *n = first + count + !ended;
    }
    return window ^ (group ^ rest) << first;
}

/* ---------------------------------------------------------------- the bits of a block in memory */

/* Writes up to `maxbits` bits to words; drops what is put beyond. */
typedef struct mm_zfp_writer {
    uint32_t *words;
    int maxbits, position; /* of the first of the pending bits: a multiple of 32 */
    uint64_t pending;      /* `fill` < 32 bits, zeros above */
    int fill;
} mm_zfp_writer;

MM_HD mm_zfp_writer mm_zfp_writer_make(uint32_t *words, int maxbits) {
    const mm_zfp_writer out = {words, maxbits, 0, 0, 0};
    return out;
}

MM_HD bool mm_zfp_full(const mm_zfp_writer *out) { return out->position + out->fill >= out->maxbits; }

/* The low `count` (0 to 32) bits of `bits`, which has zeros above. */
MM_HD void mm_zfp_put(mm_zfp_writer *out, uint32_t bits, int count) {
    out->pending |= (uint64_t)bits << out->fill;
    out->fill += count;
    if (out->fill < 32) return;
    if (out->position < out->maxbits) out->words[out->position / 32] = (uint32_t)out->pending;
    out->position += 32;
    out->pending >>= 32;
    out->fill -= 32;
}

/* Pads with zeros. */
MM_HD void mm_zfp_finish(mm_zfp_writer *out) {
    for (; out->position < out->maxbits; out->position += 32, out->pending >>= 32)
        out->words[out->position / 32] = (uint32_t)out->pending;
    if (out->maxbits % 32) out->words[out->maxbits / 32] &= mm_zfp_ones(out->maxbits % 32);
}

/* 32 bits from a position on. */
MM_HD uint32_t mm_zfp_peek(const uint32_t *words, int position) {
    const uint64_t pair = words[position / 32] | (uint64_t)words[position / 32 + 1] << 32;
    return (uint32_t)(pair >> position % 32);
}

MM_HD uint64_t mm_zfp_peek_64(const uint32_t *words, int position) {
    return mm_zfp_peek(words, position) | (uint64_t)mm_zfp_peek(words + 1, position) << 32;
}

/* ---------------------------------------------------------------- planes of 64 bits */

/* Puts the code of plane x; n is updated. */
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

/* The plane whose code is at the position, in a block that ends at `end`; the position may end up beyond: as in
 * mm_zfp_plane_decode. */
MM_HD uint64_t mm_zfp_plane_get(const uint32_t *words, int end, int *position, int *n) {
    const int first = *n, last = 63 - first, verbatim = first < end - *position ? first : end - *position;
    uint64_t x = mm_zfp_peek_64(words, *position);
    int at = *position + verbatim;
    if (verbatim < 64) x &= (UINT64_C(1) << verbatim) - 1;
    if (last < 0 || at >= end || !(words[at / 32] >> at % 32 & 1)) {
        *position = at + (last >= 0);
        return x;
    }
    const int group = at + 1;
    uint64_t rest = 0;
    uint32_t part;
    int count = 0;
    at = group;
    do {
        const int left = end - at;
        const int some = left < 0 ? 0 : left < MM_ZFP_PART_BITS ? left : MM_ZFP_PART_BITS;
        part = MM_UNDOUBLE((some ? mm_zfp_peek(words, at) & mm_zfp_ones(some) : 0) << 2);
        rest |= (uint64_t)(part & 0x3ff) << count;
        count += (int)(part >> 16 & 0xff);
        at += (int)(part >> 24 & 31);
    } while (!(part >> 31) && count < last);

    const bool ended = part >> 31 && count <= last;
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

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
#define MM_CTZ64(x)  __builtin_ctzll(x)
#define MM_CLZ32(x)  __builtin_clz(x)
#define MM_POPC32(x) __builtin_popcount(x)
/* bytes 0 and 2 of a and of b, interleaved; bytes 1 and 3 */
#define MM_EVEN_BYTES(a, b) (((a)&UINT32_C(0x00ff00ff)) | ((b) << 8 & UINT32_C(0xff00ff00)))
#define MM_ODD_BYTES(a, b)  (((a) >> 8 & UINT32_C(0x00ff00ff)) | ((b)&UINT32_C(0xff00ff00)))
#endif

/* `count` < 32 ones. */
MM_HD uint32_t mm_zfp_ones(int count) { return (UINT32_C(1) << count) - 1; }

/* x > 0 has this many bits. */
MM_HD int mm_zfp_length(uint32_t x) { return 32 - MM_CLZ32(x); }

/* The bits of x < 2^16 with a one put after each one. */
MM_HD uint32_t mm_zfp_double_ones(uint32_t x) {
    uint32_t doubled = x;
    while (x) {
        const uint32_t up_to_first = x ^ (x - 1), beyond = doubled & ~up_to_first;
        doubled += beyond + up_to_first + 1;
        x = (x & ~up_to_first) << 1;
    }
    return doubled;
}

/* ---------------------------------------------------------------- planes of 4 or 16 bits */

/* The code, at most 31 bits, of plane x of `values` coefficients; n and the code's length are updated. */
MM_HD uint32_t mm_zfp_plane_encode(uint32_t x, int values, int *n, int *length_out) {
    const int first = *n;
    if (first == values) {
        *length_out = first;
        return x;
    }
    const uint32_t rest = x >> first;
    if (!rest) {
        *length_out = first + 1;
        return x;
    }
    const int length = mm_zfp_length(rest), both = length + MM_POPC32(rest);
    const bool last = first + length == values;
    const uint32_t group =
        (mm_zfp_double_ones(rest) << 1 | 1) ^ (last ? UINT32_C(3) << (both - 1) : UINT32_C(1) << both);
    *n = first + length;
    *length_out = first + both + (last ? -1 : 1);
    return x ^ (rest ^ group) << first;
}

/* x without the bits that `out` names, the others moved down. */
MM_HD uint32_t mm_zfp_without(uint32_t x, uint32_t out) {
    while (out) {
        const uint32_t below = ~out & (out - 1);
        x = (x & below) | (x >> 1 & ~below);
        out = (out & (out - 1)) >> 1;
    }
    return x;
}

/* The plane whose code begins `window`; of it `left` > 0 bits are the block's, and zeros follow them. n is updated and
 * the code's length set (beyond `left` if the code is cut off there: then it means what libzfp makes of it, a one at
 * the coefficient that was being read).
 *
 * After the n verbatim bits, which bits are the ones put in? The first, and each one after a bit of the plane that is
 * set. That is how a backslash escapes the next character, and is found like that, with one subtraction that ripples
 * through runs of ones (simdjson's find_escaped). The first of them that is zero ends the code. A one is put where the
 * block ends, as libzfp reads there, and one at the window's end, past any code, so that zeros behind the implied
 * last bit end too. */
MM_HD uint32_t mm_zfp_plane_decode(uint32_t window, int left, int values, int *n, int *length_out) {
    const int first = *n;
    if (first == values) {
        *length_out = first;
        return window & mm_zfp_ones(values);
    }
    const uint32_t odd = UINT32_C(0xaaaaaaaa), real = window >> first;
    if (!(real & 1) || left <= first) {
        *length_out = first + 1;
        return window & mm_zfp_ones(first);
    }
    const uint32_t end_of_block = left - first < 31 ? UINT32_C(1) << (left - first) : 0;
    const uint32_t bits = real | end_of_block | UINT32_C(1) << 31, escapes = bits & ~UINT32_C(1);
    const uint32_t put_in = ((escapes << 1 | odd) - escapes) ^ odd ^ (bits | 1);
    const uint32_t end = put_in & ~real, before = ~end & (end - 1);
    uint32_t rest = mm_zfp_without((bits & before) >> 1, (put_in & before) >> 1);

    const uint32_t top = UINT32_C(1) << (values - 1 - first);
    const bool last = rest >= top;
    if (last) rest = (rest & (top - 1)) | top;
    const int length = mm_zfp_length(rest);
    *n = first + length;
    *length_out = first + length + MM_POPC32(rest) + (last ? -1 : 1);
    return window ^ (real ^ rest) << first;
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
        uint32_t code = mm_zfp_double_ones(part);
        int length = 16 + MM_POPC32(part);
        if (!rest) { /* the last one is in this part */
            const int bits = mm_zfp_length(part);
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
    const int verbatim = *n < end - *position ? *n : end - *position;
    uint64_t x = mm_zfp_peek_64(words, *position);
    int at = *position + verbatim;
    if (verbatim < 64) x &= (UINT64_C(1) << verbatim) - 1;
    while (*n < 64 && at < end) {
        /* the one that says that there is another, then zeros up to it */
        if (!(words[at / 32] >> at % 32 & 1)) {
            at++;
            break;
        }
        const int most = 63 - *n, left = end - ++at;
        const uint64_t cut = left < 64 ? UINT64_C(1) << left : 0;
        const int zeros = MM_CTZ64(mm_zfp_peek_64(words, at) | cut | UINT64_C(1) << most);
        *n += zeros + 1;
        x |= UINT64_C(1) << (*n - 1);
        at += zeros + (zeros < most); /* the last coefficient's bit is implied */
    }
    *position = at;
    return x;
}

#endif

/* SPDX-License-Identifier: MIT */
/* One chunk of the eb codec: plain C functions of its format. eb_value.h has its quantiser.
 *
 * Error-bounded: each value is decoded within a bound E (|x - x'| <= E), and a value below E (|x| < E) as 0, as S. Jin
 * et al. require for training (A Novel Memory-Efficient Deep Learning Training Framework via Error-Bounded Lossy
 * Compression, PPoPP 2021): zeros stay zeros, so that errors do not spread to them. They use prediction and a Huffman
 * table; here each chunk has a Rice code, which needs one pass and no table.
 *
 * The code of a chunk of n elements (at most 1024), of which k are not below E: nothing if k is 0; else a string of
 * bits in 32-bit words, each word's lowest bit first, and then 0:
 *
 *      1 bit                   one of the k is negative
 *      4 bits                  low, 0 to 14
 *      5 bits                  layers, 0 to 31
 *      3 bits                  before, 0 to 6
 *      1 bit                   ones
 *      masks                   bit j of mask i: element 32 i + j is not below E. If before is 0: the masks, of 32 bits
 *                              each; else the bits in which mask i differs from mask i - 2^(before - 1), where masks
 *                              before the first consist of `ones` bits (eb_mask.h)
 *      low planes of k bits    plane b: bit b of the number u of each of the k values
 *      layers                  layer 1: a bit for each of the k values: u >> low >= 1; layer l: one for each value
 *                              that has a 1 in layer l - 1: u >> low >= l
 *
 * u is q - 1 if none of the k values is negative, else 2 (q - 1) + sign. The layers hold u >> low in unary: as many
 * ones, and a zero, which is left out if there is no further layer. This is Rice's code (R. F. Rice, Some Practical
 * Universal Noiseless Coding Techniques, 1979), with a layout in which a value's bits are found by counting ones.
 *
 *      u   5 0 9 2 12  with low = 2:  1 0 2 0 3      plane 0  1 0 1 0 0      layer 1  1 0 1 0 1      (u >= 4)
 *                                                    plane 1  0 0 0 1 0      layer 2  0   1   1      (u >= 8)
 *                                                                            layer 3      0   1      (u >= 12)
 *
 * layers is the largest u >> low. low is the smallest number for which `layers` is at most 31, and for which the sum of
 * ceil((u >> low) / 2) over all values is at most k: a low higher by one adds k bits of a plane, and saves as many ones
 * as this sum. So no other low makes planes and layers shorter, apart from the zeros that the last layer leaves out.
 *
 * before and ones are chosen for the fewest changes; of equals, the first (1 with zeros, 1 with ones, 2 with zeros,
 * ...). If 11/32 of the bits or more change, both are 0: coding changes would then not save bits.
 *
 * Stored raw (chunk_code.h; elements below E are 0): a chunk whose code would not be smaller; one with q > 2^14; and
 * one with an infinity or a NaN, which are decoded unchanged (mm_codec_counters.nonfinite_blocks counts these chunks).
 * If the bound is not from MM_EB_LEAST to MM_EB_MOST, it counts as none, and each chunk is stored raw, with all its
 * bits. */
#ifndef PIPELINE_CODEC_EB_EB_CHUNK_H
#define PIPELINE_CODEC_EB_EB_CHUNK_H

#include "pipeline/codec/eb/eb_mask.h"

/* ---------------------------------------------------------------- bits */

typedef struct mm_eb_bit_writer {
    uint32_t *next;
    uint64_t waiting; /* `fill` < 32 bits that are not written yet, then zeros */
    int fill;
} mm_eb_bit_writer;

/* Appends the low `count` (at most 32) bits of `bits`, whose higher bits must be 0. */
MM_HD void mm_eb_put(mm_eb_bit_writer *out, uint32_t bits, int count) {
    out->waiting |= (uint64_t)bits << out->fill;
    out->fill += count;
    if (out->fill < 32) return;
    *out->next++ = (uint32_t)out->waiting;
    out->waiting >>= 32;
    out->fill -= 32;
}

/* The same as mm_eb_put, but without a branch, for counts that are unpredictable. Also writes words that are not full
 * yet. */
MM_HD void mm_eb_put_some(mm_eb_bit_writer *out, uint32_t bits, int count) {
    const uint64_t waiting = out->waiting | (uint64_t)bits << out->fill;
    const unsigned fill = (unsigned)(out->fill + count), full = fill / 32;
    *out->next = (uint32_t)waiting;
    out->next += full;
    out->waiting = waiting >> 32 * full;
    out->fill = (int)(fill % 32);
}

/* Writes the last word. Returns where the string ends. */
MM_HD uint32_t *mm_eb_put_rest(mm_eb_bit_writer *out) {
    if (out->fill > 0) *out->next++ = (uint32_t)out->waiting;
    return out->next;
}

/* ---------------------------------------------------------------- encode */

/* Finds the number u of each of the k elements that are not below the bound, and the masks of all blocks. Returns false
 * if the chunk must be stored raw. */
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

/* Chooses low and layers. Returns the bits of planes and layers. */
MM_HD int mm_eb_choose(const uint32_t *numbers, int k, mm_eb_prefix *p) {
    uint32_t sum = 0, most = 0, halves;
    int bits;
    for (int i = 0; i < k; i++) {
        sum += numbers[i];
        most = numbers[i] > most ? numbers[i] : most;
    }
    p->low = mm_eb_low_least(sum, most, (uint32_t)k) - 1;
    do {
        p->low++;
        halves = 0;
        for (int i = 0; i < k; i++) halves += ((numbers[i] >> p->low) + 1) / 2;
    } while (halves > (uint32_t)k);
    p->layers = (int)(most >> p->low);
    bits = p->low * k;
    for (int i = 0; i < k; i++) {
        const int high = (int)(numbers[i] >> p->low);
        bits += high < p->layers ? high + 1 : p->layers;
    }
    return bits;
}

/* The changes of all blocks (eb_mask.h), and a zero. masks: zeros beyond n. */
MM_HD void mm_eb_changes_of(const uint32_t *masks, int n, mm_eb_prefix p, uint32_t *changes) {
    const int distance = mm_eb_distance(p.before);
    for (int i = 0; i < MM_EB_BLOCKS; i++) {
        const uint32_t before = i >= distance ? masks[i - distance] : 0 - (uint32_t)p.ones;
        changes[i] = (masks[i] ^ before) & mm_eb_elements(n, i);
    }
    changes[MM_EB_BLOCKS] = 0;
}

/* Chooses before and ones. */
MM_HD void mm_eb_choose_before(const uint32_t *masks, int n, mm_eb_prefix *p) {
    uint32_t changes[MM_EB_BLOCKS + 1], least = MM_EB_NO_TRY;
    mm_eb_prefix with = {0};
    for (with.before = 1; with.before <= MM_EB_BEFORES; with.before++) {
        int sum = 0, firsts = 0;
        mm_eb_changes_of(masks, n, with, changes);
        for (int i = 0; i < MM_EB_BLOCKS; i++) {
            sum += MM_EB_COUNT(changes[i]);
            firsts += i < mm_eb_distance(with.before) ? MM_EB_COUNT(masks[i]) : 0;
        }
        least = mm_eb_try_before(least, with.before, (uint32_t)sum, (uint32_t)firsts, n);
    }
    mm_eb_take_before(p, least, n);
}

/* The threes of the changes (eb_mask.h). */
MM_HD void mm_eb_threes_of(const uint32_t *changes, mm_eb_three *threes) {
    for (int t = 0; t < MM_EB_THREES; t++)
        threes[t] = mm_eb_three_of(changes[3 * t], changes[3 * t + 1], changes[3 * t + 2]);
}

/* Number of bits that mm_eb_put_masks writes. */
MM_HD int mm_eb_mask_bits(int n, mm_eb_prefix p, const mm_eb_three *threes) {
    int bits = MM_EB_THREES;
    if (!p.before) return 32 * mm_eb_blocks(n);
    for (int t = 0; t < MM_EB_THREES; t++) bits += mm_eb_three_bits(&threes[t]);
    return bits;
}

/* Writes the bits of two words at the mask's places. */
MM_HD void mm_eb_put_gathered(mm_eb_bit_writer *out, const uint32_t *bits, uint32_t mask,
                              uint32_t (*gather)(uint32_t bits, uint32_t mask)) {
    const int count = MM_EB_COUNT(mask);
    const uint32_t first = gather(bits[0], mask), second = gather(bits[1], mask);
    if (count <= 16) {
        mm_eb_put_some(out, first | second << count, 2 * count);
    } else {
        mm_eb_put_some(out, first, count);
        mm_eb_put_some(out, second, count);
    }
}

/* gather: mm_eb_gather, or an instruction that computes it. */
MM_HD void mm_eb_put_masks(mm_eb_bit_writer *out, mm_eb_prefix p, const uint32_t *masks, int n,
                           const mm_eb_three *threes, uint32_t (*gather)(uint32_t bits, uint32_t mask)) {
    uint32_t changed = 0;
    for (int i = 0; p.before == 0 && i < mm_eb_blocks(n); i++) mm_eb_put(out, masks[i], 32);
    if (p.before == 0) return;
    for (int t = 0; t < MM_EB_THREES; t++) changed |= (uint32_t)(threes[t].any != 0) << t;
    mm_eb_put(out, changed, MM_EB_THREES);
    if (!changed) return;
    for (int t = 0; t < MM_EB_THREES; t++)
        if (threes[t].any) mm_eb_put(out, threes[t].any, 32);
    for (int t = 0; t < MM_EB_THREES; t++) mm_eb_put_gathered(out, threes[t].which, threes[t].any, gather);
    for (int t = 0; t < MM_EB_THREES; t++) mm_eb_put_gathered(out, threes[t].rest, threes[t].more, gather);
}

/* Writes planes and layers; overwrites the numbers. */
MM_HD void mm_eb_put_numbers(mm_eb_bit_writer *out, mm_eb_prefix p, uint32_t *numbers, int k) {
    for (int b = 0; b < p.low; b++)
        for (int i = 0; i < k; i++) mm_eb_put(out, numbers[i] >> b & 1, 1);
    for (int layer = 1, left = k; layer <= p.layers; layer++) {
        int next = 0;
        for (int i = 0; i < left; i++) {
            const uint32_t number = numbers[i], one = (int)(number >> p.low) >= layer;
            mm_eb_put(out, one, 1);
            numbers[next] = number;
            next += (int)one;
        }
        left = next;
    }
}

/* Encodes the bits of n floats. Returns the words of the code, all of which are written; or n, with nothing written, if
 * the chunk must be stored raw. */
MM_HD int mm_eb_encode(mm_eb_quantiser z, const uint32_t *src, int n, uint32_t *words) {
    uint32_t masks[MM_EB_BLOCKS] = {0}, changes[MM_EB_BLOCKS + 1], numbers[1024];
    mm_eb_three threes[MM_EB_THREES];
    mm_eb_prefix p;
    int k, bits = MM_EB_PREFIX_BITS;
    if (!mm_eb_numbers(z, src, n, masks, numbers, &k, &p.negatives)) return n;
    if (k == 0) return 0;
    mm_eb_choose_before(masks, n, &p);
    if (p.before) {
        mm_eb_changes_of(masks, n, p, changes);
        mm_eb_threes_of(changes, threes);
    }
    bits += mm_eb_mask_bits(n, p, threes);
    bits += mm_eb_choose(numbers, k, &p);
    if ((bits + 31) / 32 >= n) return n;
    mm_eb_bit_writer out = {words, 0, 0};
    mm_eb_put(&out, mm_eb_prefix_bits(p), MM_EB_PREFIX_BITS);
    mm_eb_put_masks(&out, p, masks, n, threes, mm_eb_gather);
    mm_eb_put_numbers(&out, p, numbers, k);
    mm_eb_put_rest(&out);
    return (bits + 31) / 32;
}

/* ---------------------------------------------------------------- decode */

/* A parsed code, without its numbers. */
typedef struct mm_eb_parts {
    const uint32_t *string;
    int bits, k, planes; /* bits of the string's words; number of values; where the planes begin */
    mm_eb_prefix prefix;
    uint32_t masks[MM_EB_BLOCKS];
} mm_eb_parts;

/* Computes the masks from the changes, from the first block on. */
MM_HD void mm_eb_undo_changes(mm_eb_prefix p, const uint32_t *changes, uint32_t *masks) {
    const int distance = p.before ? mm_eb_distance(p.before) : MM_EB_BLOCKS;
    for (int i = 0; i < MM_EB_BLOCKS; i++)
        masks[i] = changes[i] ^ (i >= distance ? masks[i - distance] : 0 - (uint32_t)p.ones);
}

/* Reads the changes (or the masks themselves) of all blocks and one more; sets parts->planes to where they end. Returns
 * false if the string is too short. scatter: mm_eb_scatter, or an instruction that computes it. */
MM_HD bool mm_eb_read_changes(mm_eb_parts *parts, int n, uint32_t *changes,
                              uint32_t (*scatter)(uint32_t bits, uint32_t mask)) {
    const uint32_t *const string = parts->string;
    mm_eb_three threes[MM_EB_THREES];
    int at = MM_EB_PREFIX_BITS, any = 0, more = 0;
    if (parts->prefix.before == 0) {
        parts->planes = at + 32 * mm_eb_blocks(n);
        if (parts->planes > parts->bits) return false;
        for (int i = 0; i <= MM_EB_BLOCKS; i++)
            changes[i] = i < mm_eb_blocks(n) ? mm_eb_bits(string, at + 32 * i, 32) : 0;
        return true;
    }
    const uint32_t changed = mm_eb_bits(string, at, MM_EB_THREES);
    at += MM_EB_THREES;
    if (at + 32 * MM_EB_COUNT(changed) > parts->bits) return false;
    for (int t = 0; t < MM_EB_THREES; t++) {
        threes[t].any = changed >> t & 1 ? mm_eb_bits(string, at, 32) : 0;
        at += changed >> t & 1 ? 32 : 0;
        any += MM_EB_COUNT(threes[t].any);
    }
    if (at + 2 * any > parts->bits) return false;
    for (int t = 0; t < MM_EB_THREES; t++) {
        const int count = MM_EB_COUNT(threes[t].any);
        for (int j = 0; j < 2; j++, at += count)
            threes[t].which[j] = scatter(mm_eb_bits(string, at, count), threes[t].any);
        threes[t].more = threes[t].which[0] & threes[t].which[1];
        more += MM_EB_COUNT(threes[t].more);
    }
    if (at + 2 * more > parts->bits) return false;
    for (int t = 0; t < MM_EB_THREES; t++) {
        const int count = MM_EB_COUNT(threes[t].more);
        for (int j = 0; j < 2; j++, at += count)
            threes[t].rest[j] = scatter(mm_eb_bits(string, at, count), threes[t].more);
        mm_eb_three_changes(&threes[t], &changes[3 * t], &changes[3 * t + 1], &changes[3 * t + 2]);
    }
    parts->planes = at;
    return true;
}

/* Parses a code of `count` words (1 to n - 1). Returns false if it is no code of n elements. */
MM_HD bool mm_eb_parts_of(const uint32_t *words, int count, int n, mm_eb_parts *parts,
                          uint32_t (*scatter)(uint32_t bits, uint32_t mask)) {
    uint32_t changes[MM_EB_BLOCKS + 1], outside;
    parts->string = words;
    parts->bits = 32 * count;
    parts->prefix = mm_eb_prefix_of(words[0]);
    parts->k = 0;
    if (!mm_eb_read_changes(parts, n, changes, scatter)) return false;
    mm_eb_undo_changes(parts->prefix, changes, parts->masks);
    outside = changes[MM_EB_BLOCKS];
    for (int i = 0; i < MM_EB_BLOCKS; i++) {
        outside |= changes[i] & ~mm_eb_elements(n, i);
        parts->masks[i] &= mm_eb_elements(n, i);
        parts->k += MM_EB_COUNT(parts->masks[i]);
    }
    return outside == 0 && parts->k > 0 && parts->planes + parts->prefix.low * parts->k <= parts->bits;
}

/* Whether the string ends in the last of its words. */
MM_HD bool mm_eb_ends(const mm_eb_parts *parts, int at) { return at > parts->bits - 32 && at <= parts->bits; }

/* Reads the numbers of the k values. Returns false if the layers do not end with the string. */
MM_HD bool mm_eb_read_numbers(const mm_eb_parts *parts, uint32_t *numbers) {
    const mm_eb_prefix p = parts->prefix;
    uint16_t of[1024]; /* of[i]: index of the value with the i-th bit of the layer */
    int at = parts->planes, left = parts->k;
    for (int i = 0; i < left; i++) numbers[i] = 0, of[i] = (uint16_t)i;
    for (int b = 0; b < p.low; b++)
        for (int i = 0; i < left; i++) numbers[i] |= mm_eb_bit(parts->string, at++) << b;
    for (int layer = 1; layer <= p.layers; layer++) {
        int next = 0;
        if (at + left > parts->bits) return false;
        for (int i = 0; i < left; i++) {
            const uint32_t one = mm_eb_bit(parts->string, at++);
            numbers[of[i]] += one << p.low; /* NOLINT: left is at most k */
            of[next] = of[i];
            next += (int)one;
        }
        left = next;
    }
    return mm_eb_ends(parts, at);
}

/* Decodes a code of `count` words, fewer than n, to the bits of n floats. Returns false if it is no code of n elements,
 * or there is no bound. Reads and writes nothing outside. */
MM_HD bool mm_eb_decode(mm_eb_quantiser z, const uint32_t *words, int count, int n, uint32_t *dst) {
    uint32_t numbers[1024], *number = numbers;
    mm_eb_parts parts;
    memset(dst, 0, (size_t)n * sizeof *dst);
    if (count == 0) return true;
    if (z.bound == 0 || !mm_eb_parts_of(words, count, n, &parts, mm_eb_scatter) || !mm_eb_read_numbers(&parts, numbers))
        return false;
    for (int i = 0; i < mm_eb_blocks(n); i++)
        for (uint32_t mask = parts.masks[i]; mask; mask &= mask - 1)
            dst[32 * i + __builtin_ctz(mask)] = mm_eb_value(z, *number++, parts.prefix.negatives);
    return true;
}

#endif

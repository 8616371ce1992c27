/* One chunk of the eb codec: plain C functions of its format. eb_value.h says what becomes of a value.
 *
 * Error-bounded: each value comes back within a bound E (|x - x'| <= E), and what is below E (|x| < E) as 0, as S. Jin et
 * al. ask for training (A Novel Memory-Efficient Deep Learning Training Framework via Error-Bounded Lossy Compression,
 * PPoPP 2021): zeros stay zeros, so that errors do not spread where nothing was. In place of their prediction and
 * Huffman table there is a Rice code for each chunk: one pass, no table.
 *
 * The code of a chunk of n elements (at most 1024), of which k are not below E, in 32-bit words:
 *
 *      nothing          if k is 0; else
 *      1                blocks: bit i: of elements 32 i to 32 i + 31, some are not below E
 *      blocks' count    masks: bit j of a block's: element 32 i + j is not below E
 *      the rest         a string of bits, each word's lowest first; then 0:
 *
 *          1 bit                   one of the k is negative
 *          4 bits                  low, 0 to 14
 *          5 bits                  layers, 0 to 31
 *          low planes of k bits    plane b: bit b of the number u of each of the k values
 *          layers                  layer 1: a bit for each of the k values: u >> low >= 1; layer l: one for each value
 *                                  that has a 1 in layer l - 1: u >> low >= l
 *
 * u is q - 1 where none of the k is negative, else 2 (q - 1) + sign. In layers, u >> low is ones and a zero, without the
 * zero where there is no layer after: Rice's code (R. F. Rice, Some Practical Universal Noiseless Coding Techniques, 1979),
 * laid out so that a value's bits are found by counting ones.
 *
 *      u   5 0 9 2 12  with low = 2:  1 0 2 0 3      plane 0  1 0 1 0 0      layer 1  1 0 1 0 1      (u >= 4)
 *                                                    plane 1  0 0 0 1 0      layer 2  0   1   1      (u >= 8)
 *                                                                            layer 3      0   1      (u >= 12)
 *
 * layers is the largest u >> low. low is the least number for which that is at most 31, and for which ceil((u >> low) / 2),
 * over all values, add up to at most k: with one more, each value has a plane's bit more, and these fewer ones. So no other
 * low makes the planes and the layers shorter, but for the zeros that the last layer spares.
 *
 * Stored raw (chunk_code.h; elements below E are 0): a chunk whose code would not be smaller; one with q > 2^14; and one
 * with an infinity or a NaN, which come back as they are (mm_codec_counters.nonfinite_blocks counts these). With a bound
 * that is none (not from MM_EB_LEAST to MM_EB_MOST), each chunk is stored raw, with all its bits. */
#ifndef PIPELINE_CODEC_EB_CHUNK_H
#define PIPELINE_CODEC_EB_CHUNK_H

#include "pipeline/codec/eb_value.h"

/* ---------------------------------------------------------------- bits */

typedef struct mm_eb_bit_writer {
    uint32_t *next;
    uint64_t waiting; /* `fill` < 32 bits that are not in memory yet, and zeros */
    int fill;
} mm_eb_bit_writer;

/* Appends `count` (at most 32) bits; those of `bits` above them are 0. */
MM_HD void mm_eb_put(mm_eb_bit_writer *out, uint32_t bits, int count) {
    out->waiting |= (uint64_t)bits << out->fill;
    out->fill += count;
    if (out->fill < 32) return;
    *out->next++ = (uint32_t)out->waiting;
    out->waiting >>= 32;
    out->fill -= 32;
}

/* Writes the last word. Returns where the string ends. */
MM_HD uint32_t *mm_eb_put_rest(mm_eb_bit_writer *out) {
    if (out->fill > 0) *out->next++ = (uint32_t)out->waiting;
    return out->next;
}

/* ---------------------------------------------------------------- encode */

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

/* Takes low and layers. Returns the bits of the string. */
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
    bits = MM_EB_PREFIX_BITS + p->low * k;
    for (int i = 0; i < k; i++) {
        const int high = (int)(numbers[i] >> p->low);
        bits += high < p->layers ? high + 1 : p->layers;
    }
    return bits;
}

/* Writes the string of bits; the numbers are lost. */
MM_HD void mm_eb_write_string(mm_eb_prefix p, uint32_t *numbers, int k, uint32_t *string) {
    mm_eb_bit_writer out = {string, 0, 0};
    mm_eb_put(&out, mm_eb_prefix_bits(p), MM_EB_PREFIX_BITS);
    for (int b = 0; b < p.low; b++)
        for (int i = 0; i < k; i++) mm_eb_put(&out, numbers[i] >> b & 1, 1);
    for (int layer = 1, left = k; layer <= p.layers; layer++) {
        int next = 0;
        for (int i = 0; i < left; i++) {
            const uint32_t number = numbers[i], one = (int)(number >> p.low) >= layer;
            mm_eb_put(&out, one, 1);
            numbers[next] = number;
            next += (int)one;
        }
        left = next;
    }
    mm_eb_put_rest(&out);
}

/* Encodes the bits of n floats. Returns the words of the code, all of which are written; or n, with nothing written, if
 * the chunk is to be stored raw. */
MM_HD int mm_eb_encode(mm_eb_quantiser z, const uint32_t *src, int n, uint32_t *words) {
    uint32_t masks[32], numbers[1024], blocks = 0;
    mm_eb_prefix p;
    int k;
    if (!mm_eb_numbers(z, src, n, masks, numbers, &k, &p.negatives)) return n;
    if (k == 0) return 0;
    for (int i = 0; i < (n + 31) / 32; i++) blocks |= (uint32_t)(masks[i] != 0) << i;
    const int total = 1 + __builtin_popcount(blocks) + (mm_eb_choose(numbers, k, &p) + 31) / 32;
    if (total >= n) return n;
    *words++ = blocks;
    for (int i = 0; i < (n + 31) / 32; i++)
        if (masks[i]) *words++ = masks[i];
    mm_eb_write_string(p, numbers, k, words);
    return total;
}

/* ---------------------------------------------------------------- decode */

/* Where a code's parts are. */
typedef struct mm_eb_parts {
    const uint32_t *mask, *string;
    int k, bits; /* bits: of the string's words */
    mm_eb_prefix prefix;
} mm_eb_parts;

/* Reads the parts of a code of `count` words, from 1 to n - 1. False: it is no code of n elements. */
MM_HD bool mm_eb_parts_of(const uint32_t *words, int count, int n, mm_eb_parts *parts) {
    const int blocks = (n + 31) / 32, masks = __builtin_popcount(words[0]);
    if (words[0] == 0 || (blocks < 32 && words[0] >> blocks) || masks + 2 > count) return false;
    parts->mask = words + 1;
    parts->string = parts->mask + masks;
    parts->bits = 32 * (count - 1 - masks);
    parts->prefix = mm_eb_prefix_of(*parts->string);
    parts->k = 0;
    for (int i = 0; i < masks; i++) parts->k += __builtin_popcount(parts->mask[i]);
    const uint32_t last = words[0] >> (blocks - 1) ? parts->mask[masks - 1] : 0;
    return !(n % 32 && last >> n % 32) && MM_EB_PREFIX_BITS + parts->prefix.low * parts->k <= parts->bits;
}

/* Whether the string ends in the last of its words. */
MM_HD bool mm_eb_ends(const mm_eb_parts *parts, int at) { return at > parts->bits - 32 && at <= parts->bits; }

/* The numbers of the k values. False: the layers do not end with the string. */
MM_HD bool mm_eb_read_numbers(const mm_eb_parts *parts, uint32_t *numbers) {
    const mm_eb_prefix p = parts->prefix;
    uint16_t of[1024]; /* whose bit in a layer it is */
    int at = MM_EB_PREFIX_BITS, left = parts->k;
    for (int i = 0; i < left; i++) numbers[i] = 0, of[i] = (uint16_t)i;
    for (int b = 0; b < p.low; b++)
        for (int i = 0; i < left; i++) numbers[i] |= mm_eb_bit(parts->string, at++) << b;
    for (int layer = 1; layer <= p.layers; layer++) {
        int next = 0;
        if (at + left > parts->bits) return false;
        for (int i = 0; i < left; i++) {
            const uint32_t one = mm_eb_bit(parts->string, at++);
            numbers[of[i]] += one << p.low;
            of[next] = of[i];
            next += (int)one;
        }
        left = next;
    }
    return mm_eb_ends(parts, at);
}

/* Decodes a code of `count` words, fewer than n, to the bits of n floats. False: it is no code of n elements, or the
 * bound is none. Reads and writes nothing outside. */
MM_HD bool mm_eb_decode(mm_eb_quantiser z, const uint32_t *words, int count, int n, uint32_t *dst) {
    uint32_t numbers[1024], *number = numbers;
    mm_eb_parts parts;
    memset(dst, 0, (size_t)n * sizeof *dst);
    if (count == 0) return true;
    if (z.bound == 0 || !mm_eb_parts_of(words, count, n, &parts) || !mm_eb_read_numbers(&parts, numbers)) return false;
    for (int i = 0; i < (n + 31) / 32; i++) {
        if (!(words[0] >> i & 1)) continue;
        for (uint32_t mask = *parts.mask++; mask; mask &= mask - 1)
            dst[32 * i + __builtin_ctz(mask)] = mm_eb_value(z, *number++, parts.prefix.negatives);
    }
    return true;
}

#endif

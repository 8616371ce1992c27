/* SPDX-License-Identifier: MIT */
/* Reads and writes the bit stream of a tensor's code, on the CPU. */
#ifndef PIPELINE_CODEC_ZFP_ZFP_BITS_H
#define PIPELINE_CODEC_ZFP_ZFP_BITS_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

typedef struct mm_bit_writer {
    uint8_t *dst;
    uint64_t pending; /* `fill` < 64 bits, zeros above */
    int fill;
} mm_bit_writer;

static inline void mm_bits_put_word(mm_bit_writer *out, uint64_t word) {
    word = htole64(word);
    memcpy(out->dst, &word, sizeof word);
    out->dst += sizeof word;
}

/* Writes the low `count` (1 to 64) bits of `bits`, whose higher bits are zero. */
static inline void mm_bits_put(mm_bit_writer *out, uint64_t bits, int count) {
    out->pending |= bits << out->fill;
    if (out->fill + count < 64) {
        out->fill += count;
        return;
    }
    mm_bits_put_word(out, out->pending);
    out->pending = out->fill ? bits >> (64 - out->fill) : 0;
    out->fill += count - 64;
}

/* Pads the last word with zeros, and writes it. */
static inline void mm_bits_finish(mm_bit_writer *out) {
    if (out->fill) mm_bits_put_word(out, out->pending);
}

typedef struct mm_bit_reader {
    const uint8_t *src;
    uint64_t pending; /* `fill` < 64 bits, zeros above */
    int fill;
} mm_bit_reader;

/* Reads the next `count` (1 to 64) bits. Reads no word before it is needed. */
static inline uint64_t mm_bits_get(mm_bit_reader *in, int count) {
    uint64_t bits = in->pending;
    if (in->fill < count) {
        uint64_t word;
        memcpy(&word, in->src, sizeof word);
        in->src += sizeof word;
        word = le64toh(word);
        bits |= word << in->fill;
        const int taken = count - in->fill;
        in->pending = taken < 64 ? word >> taken : 0;
        in->fill = 64 - taken;
    } else {
        in->pending >>= count;
        in->fill -= count;
    }
    return count < 64 ? bits & ((UINT64_C(1) << count) - 1) : bits;
}

#endif

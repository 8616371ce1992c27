/* SPDX-License-Identifier: MIT */
/* Codes in kernels of other layers: a thread encodes and decodes 4 x 4 pixels of a channel, which it has in registers.
 * Bits are those of the codecs. For .cu files; C++.
 *
 * A map is NHWC. Its tiles of 4 x 4 pixels are the blocks of zfp in two dimensions (zfp_layout.h): of tile t and
 * channel c it is block t * channels + c. The threads of a warp have neighbouring channels of one tile, 2^n of them,
 * the first a multiple of that; what is left of the warp has other tiles, likewise.
 *
 * Each type has
 *      prepare_to_encode, prepare_to_decode      every thread of a block calls one of them, first of all
 *      encode                                    every thread of a warp calls it, together; those that are outside
 *                                                write nothing
 *      decoded, value                            any thread: pixel i's of the code
 *      BLOCKS                                    of 256 threads, of kernels that encode, for whose registers there is
 *                                                room on a multiprocessor
 * Pixel (x, y) is number 4 * y + x. To encode a tile, pixels outside of the map have the values of those at
 * code_tile.place; decoded, they are of no use. */
#ifndef PIPELINE_CODEC_BLOCK_CODE_BLOCKS_CUDA_H
#define PIPELINE_CODEC_BLOCK_CODE_BLOCKS_CUDA_H

#include "pipeline/codec/block/code_blocks.h"
#include "pipeline/codec/block/zfp_cuda_block.h" /* before others that use MM_HD */

#include "pipeline/codec/block/dpr_value.h"

namespace {

/* A thread's part of a tile. */
struct code_tile {
    uint64_t block; /* its number */
    int64_t first;  /* the element of pixel (0, 0) */
    line x, y;      /* offsets of pixels along each, in elements */
    bool inside;    /* the tile and the channel are of the map */

    MM_HD code_tile(int tile, int channel, int channels, int64_t row, int columns, int width, int height,
                    bool is_inside)
        : block((uint64_t)tile * (unsigned)channels + (unsigned)channel), first(row * channels + channel),
          x(line_within((uint32_t)width, (uint32_t)channels)),
          y(line_within((uint32_t)height, (uint32_t)columns * (uint32_t)channels)), inside(is_inside) {}

    /* Of pixel i: whether it is of the map; its element, or that of the pixel whose value stands for it. */
    MM_HD bool has(int i) const { return inside && i % 4 < x.inside && i / 4 < y.inside; }
    MM_HD int offset(int i) const { return x.offset[i % 4] + y.offset[i / 4]; }
    MM_HD int64_t place(int i) const { return first + offset(i); }
};

MM_HD uint32_t thread_of_block() { return threadIdx.y * blockDim.x + threadIdx.x; }
MM_HD uint32_t threads_of_block() { return blockDim.x * blockDim.y; }

/* zfp of MAXBITS a block. Of whole words, a thread loads and stores its own code; else a warp's threads have 32
 * channels, of a multiple of 32. nonfinite: as mm_zfp_cuda_encode has it. */
template <int MAXBITS> struct zfp_code {
    static constexpr int WORDS = (MAXBITS + 31) / 32, BLOCKS = 4;

    static MM_HD void prepare_to_encode() { tables_make_doubled(true, thread_of_block(), threads_of_block()); }
    static MM_HD void prepare_to_decode() { tables_make_undouble(thread_of_block(), threads_of_block()); }

    static MM_HD void encode(const float *values, const code_tile &at, void *code, unsigned long long *nonfinite) {
        const uint32_t lane = thread_of_block() % WARP;
        const int e = exponent_of<2>(values);
        const unsigned others = __ballot_sync(ALL, at.inside && e == MM_ZFP_NONFINITE);
        if (others && lane == 0 && nonfinite) atomicAdd_system(nonfinite, (unsigned long long)__popc(others));
        uint32_t words[WORDS], *to = static_cast<uint32_t *>(code);
        block_encode<2, WORDS>(values, e, MAXBITS, words);
        if constexpr (MAXBITS % 32 == 0) {
            if (at.inside) words_store<WORDS>(words, at.block, to);
        } else {
            const uint64_t warp = at.block / WARP;
            words_store_shifted<WORDS>(MAXBITS, words, at.inside ? MAXBITS : 0, lane, to + warp * MAXBITS);
        }
    }

    struct decoded {
        float values[16];

        MM_HD decoded(const void *code, const code_tile &at) {
            const uint32_t *const from = static_cast<const uint32_t *>(code);
            uint32_t words[WORDS + class_words<2>];
            MM_UNROLL for (int j = 0; j < class_words<2>; j++) words[WORDS + j] = 0;
            if constexpr (MAXBITS % 32 == 0) {
                words_load<WORDS>(from, at.block, words);
            } else {
                const uint64_t warp = at.block / WARP;
                words_load_shifted<WORDS>(MAXBITS, from + warp * MAXBITS, MAXBITS, (uint32_t)(at.block % WARP), words);
            }
            block_decode<2, WORDS>(words, MAXBITS, values);
        }
        MM_HD float value(const code_tile &, int i) const { return values[i]; }
    };
};

/* dpr, PER_WORD values a word: neighbouring channels, whose number is a multiple of PER_WORD, a power of two. */
template <int EXPONENT, int MANTISSA, int PER_WORD> struct dpr_code {
    static constexpr int BITS = 1 + EXPONENT + MANTISSA, BLOCKS = 3;

    static MM_HD void prepare_to_encode() {}
    static MM_HD void prepare_to_decode() {}

    static MM_HD void encode(const float *values, const code_tile &at, void *code, unsigned long long *) {
        uint32_t *const to = static_cast<uint32_t *>(code) + (uint64_t)at.first / PER_WORD;
        const unsigned part = (unsigned)at.first % PER_WORD;
        uint32_t words[16];
        MM_UNROLL for (int i = 0; i < 16; i++) {
            words[i] = mm_dpr_encode(mm_float_bits(values[i]), EXPONENT, MANTISSA) << part * BITS;
            MM_UNROLL for (int apart = 1; apart < PER_WORD; apart *= 2) words[i] |=
                __shfl_xor_sync(ALL, words[i], apart);
        }
        /* Not in the loop above: the compiler would make two of it, and split each warp at its shuffles. */
        if (part != 0) return;
        MM_UNROLL for (int i = 0; i < 16; i++) if (at.has(i)) to[(unsigned)at.offset(i) / PER_WORD] = words[i];
    }

    struct decoded {
        const uint32_t *from;
        unsigned part;

        MM_HD decoded(const void *code, const code_tile &at)
            : from(static_cast<const uint32_t *>(code) + (uint64_t)at.first / PER_WORD),
              part((unsigned)at.first % PER_WORD) {}
        MM_HD float value(const code_tile &at, int i) const {
            const uint32_t word = from[(unsigned)at.offset(i) / PER_WORD];
            return mm_float_of(mm_dpr_decode(word >> part * BITS, EXPONENT, MANTISSA));
        }
    };
};

} // namespace

#endif

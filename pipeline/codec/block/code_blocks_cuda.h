/* SPDX-License-Identifier: MIT */
/* Codes in kernels of other layers: a thread encodes or decodes 4 x 4 pixels of a channel, which it has in registers.
 * The codes have the same bits as the codecs'. For .cu files; C++.
 *
 * A map is NHWC. Its tiles of 4 x 4 pixels are the blocks of zfp in two dimensions (zfp_layout.h): tile t of channel c
 * is block t * channels + c. 2^n neighbouring threads of a warp have neighbouring channels of one tile, the first of
 * which is a multiple of 2^n; the warp's other threads have other tiles in the same way.
 *
 * Each type has
 *      prepare_to_encode, prepare_to_decode      all threads of a block call one of them, before anything else
 *      encode                                    all threads of a warp call it together; threads outside the map
 *                                                write nothing
 *      decoded, value                            the decoded value of pixel i; any thread may call them
 *      BLOCKS                                    how many blocks of 256 threads of an encoding kernel a multiprocessor
 *                                                has registers for
 * Pixel (x, y) is number 4 * y + x. When a tile is encoded, pixels outside the map must have the values of the pixels
 * at code_tile.place; when it is decoded, their values are meaningless. */
#ifndef PIPELINE_CODEC_BLOCK_CODE_BLOCKS_CUDA_H
#define PIPELINE_CODEC_BLOCK_CODE_BLOCKS_CUDA_H

#include "pipeline/codec/block/code_blocks.h"
#include "pipeline/codec/block/zfp_cuda_block.h" /* before others that use MM_HD */

#include "pipeline/codec/block/dpr_value.h"

namespace {

/* A thread's part of a tile. */
struct code_tile {
    uint64_t block; /* number of the block */
    int64_t first;  /* index of the element of pixel (0, 0) */
    line x, y;      /* offsets of pixels along each, in elements */
    bool inside;    /* tile and channel belong to the map */

    MM_HD code_tile(int tile, int channel, int channels, int64_t row, int columns, int width, int height,
                    bool is_inside)
        : block((uint64_t)tile * (unsigned)channels + (unsigned)channel), first(row * channels + channel),
          x(line_within((uint32_t)width, (uint32_t)channels)),
          y(line_within((uint32_t)height, (uint32_t)columns * (uint32_t)channels)), inside(is_inside) {}

    /* has: whether pixel i belongs to the map. place: its element, or that of the pixel whose value replaces it;
     * offset: the same from `first`. */
    MM_HD bool has(int i) const { return inside && i % 4 < x.inside && i / 4 < y.inside; }
    MM_HD int offset(int i) const { return x.offset[i % 4] + y.offset[i / 4]; }
    MM_HD int64_t place(int i) const { return first + offset(i); }
};

MM_HD uint32_t thread_of_block() { return threadIdx.y * blockDim.x + threadIdx.x; }
MM_HD uint32_t threads_of_block() { return blockDim.x * blockDim.y; }

/* zfp with MAXBITS per block. If MAXBITS is a multiple of 32, a thread loads and stores its own code; else a warp's
 * threads must have 32 channels from a multiple of 32 on. nonfinite: as in mm_zfp_cuda_encode. */
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

/* dpr with PER_WORD (a power of two) values in a word, of neighbouring channels. The number of channels must be a
 * multiple of PER_WORD. */
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
        /* Not in the loop above: the compiler would split it in two, and each warp at its shuffles. */
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

/* SPDX-License-Identifier: MIT */
/* What zfp's encode and decode kernels share. For zfp_cuda_*.cu only.
 *
 * A thread processes a block, which lies in its registers. A warp processes 32 consecutive blocks, whose code begins on
 * a 32-bit word. The grid loops over all blocks. Consecutive blocks are neighbours in memory (neighbouring channels in
 * NHWC, along a row in NCHW), so a warp's loads and stores of values are coalesced. So are those of codes: each thread
 * accesses the words that begin in its block's code; very short and very long codes go through shared memory. No warp
 * waits for another.
 *
 * What limits speed, counted in the machine code for sm_90 (2-D, NHWC, rate 4, 9 planes as in the slowest of 32 blocks
 * of codec_bench's map): 36 instructions for each value in either direction, 19 of them for the integer unit, which
 * takes one every other cycle. That is 3.5 TB/s of values on an H200, where memory would allow 3.6. A plane takes 24
 * instructions to encode and 28 to decode; a further part of a plane's code takes 12. Nearly all blocks use up their
 * bits in the upper 16 planes, and never compute the lower ones. README.md has the counts, also for other rates.
 *
 * Codes of few words (WORDS) lie in registers, too (zfp_cuda_block.h). Longer ones lie in shared memory. */
#ifndef PIPELINE_CODEC_ZFP_ZFP_CUDA_KERNEL_H
#define PIPELINE_CODEC_ZFP_ZFP_CUDA_KERNEL_H

#include <stdint.h>

#include "pipeline/codec/block/zfp_cuda_block.h" /* before others that use MM_HD */
#include "pipeline/codec/cuda_grid.h"

#include "pipeline/codec/block/half_value.h"
#include "pipeline/codec/zfp/zfp_cuda.h"

namespace {

constexpr int WINDOW_WORDS = 3; /* words that may be read beyond a code's end */

/* The most threads of a block, so that a multiprocessor's 65536 registers suffice: for 64 per thread (1-D, 2-D) or
 * 128. */
__host__ __device__ constexpr unsigned most_threads(int dims) { return dims == 3 ? FAT_THREADS / 2 : FAT_THREADS; }

/* ---------------------------------------------------------------- position of a thread's block */

struct place {
    uint32_t n, y, x, c; /* coordinates, in blocks */
    uint64_t first;      /* index in the map of the block's first value */
};

__host__ __device__ inline uint32_t digit_of(uint64_t &number, uint32_t base) {
    const uint32_t digit = (uint32_t)(number % base);
    number /= base;
    return digit;
}

/* Elements from a block to the next one along each dimension, modulo 2^64. Strides that are undefined (extent of one
 * block) are only multiplied by 0. */
struct units {
    uint64_t x, y, c, n;

    __host__ __device__ explicit units(const mm_zfp_work &work)
        : x(4 * (uint64_t)work.stride_x), y(4 * (uint64_t)work.stride_y),
          c((work.dims == 3 ? 4 : 1) * (uint64_t)work.stride_c), n(work.image) {}
};

__host__ __device__ inline place place_of(const mm_zfp_work &work, uint64_t block) {
    place at;
    const units unit(work);
    if (!work.channels_first) at.c = digit_of(block, work.blocks_c);
    at.x = digit_of(block, work.blocks_x);
    at.y = digit_of(block, work.blocks_y);
    if (work.channels_first) at.c = digit_of(block, work.blocks_c);
    at.n = (uint32_t)block;
    at.first = at.n * unit.n + at.y * unit.y + at.x * unit.x + at.c * unit.c;
    return at;
}

/* Wraps a digit that has reached `base`, and adds `by` to `first`. Returns the carry. */
MM_HD uint32_t wrap(uint32_t &digit, uint32_t base, uint64_t &first, uint64_t by) {
    const bool over = digit >= base;
    if (over) digit -= base, first += by;
    return over;
}

template <int DIMS> MM_HD void place_carry(const mm_zfp_work &work, place &at) {
    if (DIMS == 3 && work.channels_first) {
        at.y += wrap(at.x, work.blocks_x, at.first, work.carry_x);
        at.c += wrap(at.y, work.blocks_y, at.first, work.carry_y);
        wrap(at.c, work.blocks_c, at.first, work.carry_c);
    } else {
        at.x += wrap(at.c, work.blocks_c, at.first, work.carry_c);
        at.y += wrap(at.x, work.blocks_x, at.first, work.carry_x);
        wrap(at.y, work.blocks_y, at.first, work.carry_y);
    }
}

/* Advances a place by the grid's threads: adds to the digits, and carries if needed. Does not update n. */
template <int DIMS> MM_HD void place_advance(const mm_zfp_work &work, place &at) {
    at.c += work.step_c;
    at.x += work.step_x;
    at.y += work.step_y;
    at.first += work.step_first;
    if (at.c >= work.blocks_c || at.x >= work.blocks_x || at.y >= work.blocks_y) place_carry<DIMS>(work, at);
}

template <bool WHOLE> MM_HD line line_of(uint32_t extent, uint32_t block, uint32_t stride) {
    return line_within(WHOLE ? 4 : extent - 4 * block, stride);
}

/* The lines of a block along x, y and z; lines of dimensions that it does not have are one value long. */
template <int DIMS> struct lines {
    line x, y, z;

    /* offset: of the i-th value, in elements. has: whether it lies inside the map. */
    MM_HD int offset(int i) const {
        return x.offset[i % 4] + (DIMS > 1 ? y.offset[i / 4 % 4] : 0) + (DIMS > 2 ? z.offset[i / 16] : 0);
    }
    MM_HD bool has(int i) const {
        return i % 4 < x.inside && (DIMS < 2 || i / 4 % 4 < y.inside) && (DIMS < 3 || i / 16 < z.inside);
    }
};

template <int DIMS, bool WHOLE> MM_HD lines<DIMS> lines_of(const mm_zfp_work &work, const place &at) {
    lines<DIMS> l;
    l.x = line_of<WHOLE>(work.columns, at.x, work.stride_x);
    if (DIMS > 1) l.y = line_of<WHOLE>(work.rows, at.y, work.stride_y);
    if (DIMS > 2) l.z = line_of<WHOLE>(work.channels, at.c, work.stride_c);
    return l;
}

/* ---------------------------------------------------------------- values */

template <int DIMS, bool WHOLE>
MM_HD void values_load(const mm_zfp_work &work, const place &at, const float *__restrict__ src, float *values) {
    const lines<DIMS> l = lines_of<DIMS, WHOLE>(work, at);
    const float *first = src + at.first;
    if (work.type != MM_F32) {
        const uint16_t *halves = reinterpret_cast<const uint16_t *>(src) + at.first;
        /* Widens after all loads, when their offsets are no longer needed: this takes fewer registers. */
        MM_UNROLL for (int i = 0; i < mm_zfp_values(DIMS); i++) values[i] =
            mm_float_of(MM_CONSTANT(halves[l.offset(i)]));
        MM_UNROLL for (int i = 0; i < mm_zfp_values(DIMS); i++) values[i] =
            mm_float_of(mm_half_widen(mm_float_bits(values[i]), work.type));
        return;
    }
    if (work.vectors == MM_ZFP_VECTORS_X) {
        MM_UNROLL for (int i = 0; i < mm_zfp_values(DIMS); i += 4) {
            const float4 four = *reinterpret_cast<const float4 *>(first + l.offset(i));
            values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
        }
    } else if (DIMS == 3 && work.vectors == MM_ZFP_VECTORS_C) {
        MM_UNROLL for (int i = 0; i < 16; i++) {
            const float4 four = *reinterpret_cast<const float4 *>(first + l.offset(i));
            values[i] = four.x, values[16 + i] = four.y, values[32 + i] = four.z, values[48 + i] = four.w;
        }
    } else {
        MM_UNROLL for (int i = 0; i < mm_zfp_values(DIMS); i++) values[i] = first[l.offset(i)];
    }
}

template <int DIMS, bool WHOLE>
MM_HD void values_store(const mm_zfp_work &work, const place &at, const float *values, float *__restrict__ dst) {
    if (work.type != MM_F32) {
        uint32_t narrow[mm_zfp_values(DIMS)]; /* before the offsets, which then reuse registers */
        MM_UNROLL for (int i = 0; i < mm_zfp_values(DIMS); i++) narrow[i] =
            MM_CONSTANT(mm_half_narrow(mm_float_bits(values[i]), work.type));
        const lines<DIMS> l = lines_of<DIMS, WHOLE>(work, at);
        uint16_t *halves = reinterpret_cast<uint16_t *>(dst) + at.first;
        MM_UNROLL for (int i = 0; i < mm_zfp_values(DIMS); i++) {
            if (l.has(i)) halves[l.offset(i)] = (uint16_t)narrow[i];
        }
        return;
    }
    const lines<DIMS> l = lines_of<DIMS, WHOLE>(work, at);
    float *first = dst + at.first;
    if (work.vectors == MM_ZFP_VECTORS_X) {
        MM_UNROLL for (int i = 0; i < mm_zfp_values(DIMS); i += 4) {
            if (l.has(i))
                *reinterpret_cast<float4 *>(first + l.offset(i)) =
                    make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
        }
    } else if (DIMS == 3 && work.vectors == MM_ZFP_VECTORS_C) {
        MM_UNROLL for (int i = 0; i < 16; i++) {
            if (l.has(i))
                *reinterpret_cast<float4 *>(first + l.offset(i)) =
                    make_float4(values[i], values[16 + i], values[32 + i], values[48 + i]);
        }
    } else {
        MM_UNROLL for (int i = 0; i < mm_zfp_values(DIMS); i++) {
            if (l.has(i)) first[l.offset(i)] = values[i];
        }
    }
}

/* ---------------------------------------------------------------- a warp's codes, in words that they may share */

/* Number of the code's words that belong to the warp whose first block is given; the last warp's include the
 * padding. */
MM_HD uint32_t warp_words(const mm_zfp_work &work, uint64_t first_block, uint64_t *first_word_out) {
    *first_word_out = first_block / WARP * (uint32_t)work.maxbits;
    return first_block + WARP < work.blocks ? (uint32_t)work.maxbits : (uint32_t)(work.code_words - *first_word_out);
}

/* ---------------------------------------------------------------- a warp's codes in shared memory */

/* Distance of the codes of a warp's blocks in shared memory: an odd number of words, so that lanes access different
 * banks. */
__host__ __device__ inline int staged_stride(int maxbits) { return words_of(maxbits) | 1; }

/* Where word j of a warp's code begins: in which block's code, and at which of its bits. */
struct word_place {
    uint32_t block, bit;
};

__host__ __device__ inline word_place word_place_of(uint32_t j, int maxbits) {
    word_place at;
    at.block = 32 * j / (uint32_t)maxbits;
    at.bit = 32 * j % (uint32_t)maxbits;
    return at;
}

/* Assembles a word of the warp's code, which has no gaps, from the codes in shared memory, each of which is padded to
 * whole words. */
MM_HD uint32_t staged_word(const uint32_t *staged, int maxbits, word_place at) {
    const int words = words_of(maxbits), stride = staged_stride(maxbits);
    uint32_t word = 0;
    for (uint32_t filled = 0; filled < 32 && at.block < WARP; at.block++, at.bit = 0) {
        const uint32_t *code = staged + at.block * stride;
        const int i = (int)(at.bit / 32);
        word |= __funnelshift_r(code[i], i + 1 < words ? code[i + 1] : 0, at.bit) << filled;
        filled += (uint32_t)maxbits - at.bit;
    }
    return word;
}

/* ---------------------------------------------------------------- launches */

/* launch<DIMS, WORDS, MAXBITS>: WORDS of a code in registers, or 0 if it lies in shared memory; MAXBITS is a constant
 * for the usual rates of 4, 6.4 and 8 bits per value, else 0. */
#define MM_ZFP_LAUNCH_OF(dims, maxbits, launch)                                                                        \
    ((dims) == 3              ? launch<3, 0>                                                                           \
     : (dims) == 1            ? words_of(maxbits) == 1   ? launch<1, 1>                                                \
                                : words_of(maxbits) == 2 ? launch<1, 2>                                                \
                                : words_of(maxbits) == 3 ? launch<1, 3>                                                \
                                                         : launch<1, 4>                                                \
                : (maxbits) == 64 ? launch<2, 2, 64>                                                                   \
     : (maxbits) == 102       ? launch<2, 4, 102>                                                                      \
     : (maxbits) == 128       ? launch<2, 4, 128>                                                                      \
     : words_of(maxbits) == 1 ? launch<2, 1>                                                                           \
     : words_of(maxbits) == 2 ? launch<2, 2>                                                                           \
     : words_of(maxbits) == 3 ? launch<2, 3>                                                                           \
     : words_of(maxbits) == 4 ? launch<2, 4>                                                                           \
                              : launch<2, 0>)

/* A kernel's needs, if each warp has `warp_bytes` of shared memory beside the tables. */
inline grid_request request_of(const mm_zfp_work &work, size_t warp_bytes) {
    grid_request request = {};
    request.threads = work.blocks;
    request.thread_bytes = (unsigned)(mm_zfp_values(work.dims) * sizeof(float));
    request.sms = work.multiprocessors;
    request.fat_threads = most_threads(work.dims);
    request.warp_bytes = warp_bytes;
    request.static_bytes = sizeof(tables_of_block);
    return request;
}

/* Sets the steps of a grid's threads. */
inline void place_steps(const codec_grid &grid, mm_zfp_work *work) {
    const place step = place_of(*work, (uint64_t)grid.blocks * grid.threads);
    const word_place next = word_place_of(WARP, work->maxbits);
    work->step_code = next.block, work->step_bit = next.bit;
    const units unit(*work);
    const bool first_of_all = work->dims == 3 && work->channels_first; /* x, y, c, n; else c, x, y, n */
    work->step_y = step.y, work->step_x = step.x, work->step_c = step.c;
    work->step_first = step.first;
    work->carry_x = unit.y - work->blocks_x * unit.x;
    work->carry_y = (first_of_all ? unit.c : unit.n) - work->blocks_y * unit.y;
    work->carry_c = (first_of_all ? unit.n : unit.x) - work->blocks_c * unit.c;
}

/* Sets `whole` and `vectors`, which depend on the extents and on the alignment of the map. */
inline void place_values(const void *memory, mm_zfp_work *work) {
    const bool whole_x = work->columns % 4 == 0, whole_c = work->dims < 3 || work->channels % 4 == 0;
    work->whole = whole_x && (work->dims == 1 || work->rows % 4 == 0) && whole_c;
    work->vectors = MM_ZFP_VECTORS_NONE;
    if ((uintptr_t)memory % sizeof(float4)) return;
    if (work->stride_x == 1 && whole_x)
        work->vectors = MM_ZFP_VECTORS_X;
    else if (work->dims == 3 && work->stride_c == 1 && whole_c)
        work->vectors = MM_ZFP_VECTORS_C;
}

inline bool takes_words(const mm_zfp_work &work, const void *memory) {
    const int words = words_of(work.maxbits);
    return work.maxbits == 32 * words && (words == 1 || words == 2 || words == 4) &&
           (uintptr_t)memory % (4 * words) == 0;
}

} // namespace

#endif

/* What encode and decode kernels share. For zfp_cuda_*.cu only.
 *
 * A thread takes a block, with all of it in registers; a warp takes 32 blocks that follow one another, whose code begins
 * on a 32-bit word; a grid takes as many as it has threads, then the next as many. Neighbouring blocks are of
 * neighbouring channels, so a warp's loads and stores of values are coalesced, and so are those of codes: either each
 * thread's code is whole words, or the warp's codes pass through shared memory. Nothing waits for another warp.
 *
 *      grid    as many threads as registers of the multiprocessors allow, or of as many as it may take; in small blocks,
 *              which find room beside other kernels' and are spread over all multiprocessors. For little work, still
 *              smaller ones, that all multiprocessors have some.
 *
 * Codes of few words (WORDS) are in registers too, as a queue: bits are put in at the upper end and taken at the lower
 * one, and the whole is shifted, a funnel shift a word; no bit's place depends on data. Longer ones are in shared memory. */
#ifndef PIPELINE_CODEC_ZFP_CUDA_KERNEL_H
#define PIPELINE_CODEC_ZFP_CUDA_KERNEL_H

#include <stdint.h>

#include "mm/device/cuda_launch.h"

#define MM_HD                 __device__ __forceinline__
#define MM_UNROLL             _Pragma("unroll")
#define MM_LENGTH32(x)        (32 - __clz((int)(x)))
#define MM_POPC32(x)          __popc(x)
#define MM_POPC64(x)          __popcll(x)
#define MM_DOUBLE_ONES(x)     doubled_ones(x)
#define MM_UNDOUBLE(part)     undoubled(part)
#define MM_SHIFT_RIGHT(x, by) __funnelshift_r(x, 0, by)
#define MM_EVEN_BYTES(a, b)   __byte_perm(a, b, 0x6240)
#define MM_ODD_BYTES(a, b)    __byte_perm(a, b, 0x7351)

namespace {

/* What the functions of zfp_plane.h give for all bytes and for all parts. Threads beside each other have planes with few
 * and with many ones: loops over them take as long as the longest, lookups do not. A kernel has one of them. */
struct tables_of_block {
    union {
        uint16_t doubled[256];
        uint32_t undouble[1024];
    };
};

MM_HD tables_of_block &tables() {
    __shared__ tables_of_block of;
    return of;
}

MM_HD uint32_t doubled_ones(uint32_t x) {
    const uint32_t low = x & 0xff;
    return tables().doubled[low] | (uint32_t)tables().doubled[x >> 8] << (8 + __popc(low));
}

MM_HD uint32_t undoubled(uint32_t part) {
    return *reinterpret_cast<const uint32_t *>(reinterpret_cast<const char *>(tables().undouble) + (part & 0xffc));
}

} // namespace

#include "pipeline/codec/zfp_block.h"
#include "pipeline/codec/zfp_cuda.h"

namespace {

constexpr unsigned WARP = 32, ALL = 0xffffffff;
constexpr int MOST_REGISTER_WORDS = 4, WINDOW_WORDS = 3; /* that may be read beyond a code's end */
constexpr size_t MOST_SHARED_BYTES = 43 << 10;           /* of a block: what any may have, less the tables */
static_assert(MOST_SHARED_BYTES + sizeof(tables_of_block) <= 48 << 10, "without asking for more");
constexpr unsigned MOST_THREADS = 256;

/* Blocks that share a multiprocessor's 65536 registers, at 64 a thread, or 128. */
template <int DIMS> constexpr unsigned blocks_together() { return DIMS == 3 ? 2 : 4; }

/* Every thread of a block calls one of them, first of all. */
MM_HD void tables_make_doubled() {
    for (uint32_t i = threadIdx.x; i < 256; i += blockDim.x) tables().doubled[i] = (uint16_t)mm_zfp_double_ones(i);
    __syncthreads();
}

MM_HD void tables_make_undouble() {
    static_assert(sizeof tables().undouble / 4 == 1 << MM_ZFP_PART_BITS, "one for each");
    for (uint32_t i = threadIdx.x; i < 1 << MM_ZFP_PART_BITS; i += blockDim.x)
        tables().undouble[i] = mm_zfp_undouble(i);
    __syncthreads();
}

/* ---------------------------------------------------------------- where a thread's block is */

struct place {
    uint32_t n, y, x, c; /* in blocks */
};

MM_HD place place_of(const mm_zfp_work &work, uint64_t block) {
    place at;
    at.c = (uint32_t)(block % work.blocks_c);
    block /= work.blocks_c;
    at.x = (uint32_t)(block % work.blocks_x);
    block /= work.blocks_x;
    at.y = (uint32_t)(block % work.blocks_y);
    at.n = (uint32_t)(block / work.blocks_y);
    return at;
}

MM_HD uint32_t wrap(uint32_t &digit, uint32_t base) {
    const bool over = digit >= base;
    digit -= over ? base : 0;
    return over;
}

/* By the grid's threads: digits are added, and carried. */
MM_HD void place_advance(const mm_zfp_work &work, place &at) {
    at.c += work.step_c;
    at.x += work.step_x + wrap(at.c, work.blocks_c);
    at.y += work.step_y + wrap(at.x, work.blocks_x);
    at.n += work.step_n + wrap(at.y, work.blocks_y);
}

/* A line of four: where each is, for those outside where what stands in for it is, as zfp fills up lines. */
struct line {
    int inside, offset[4];
};

MM_HD line line_of(uint32_t extent, uint32_t block, int stride) {
    const uint32_t left = extent - 4 * block;
    line l;
    l.inside = left < 4 ? (int)left : 4;
    l.offset[0] = 0;
    l.offset[1] = l.inside > 1 ? stride : 0;
    l.offset[2] = l.inside > 2 ? 2 * stride : l.offset[1];
    l.offset[3] = l.inside > 3 ? 3 * stride : 0;
    return l;
}

template <int DIMS> MM_HD uint64_t first_of(const mm_zfp_work &work, const place &at) {
    const uint32_t row = DIMS == 1 ? 0 : 4 * at.y, channel = DIMS == 3 ? 4 * at.c : at.c;
    return (((uint64_t)at.n * work.rows + row) * work.columns + 4 * at.x) * work.channels + channel;
}

/* The lines along x, y and z of a block; those that its dimensions have not are one value long. */
template <int DIMS> struct lines { line x, y, z; };

template <int DIMS> MM_HD lines<DIMS> lines_of(const mm_zfp_work &work, const place &at) {
    lines<DIMS> l;
    l.x = line_of(work.columns, at.x, (int)work.channels);
    if (DIMS > 1) l.y = line_of(work.rows, at.y, (int)(work.columns * work.channels));
    if (DIMS > 2) l.z = line_of(work.channels, at.c, 1);
    return l;
}

/* ---------------------------------------------------------------- values */

template <int DIMS>
MM_HD void values_load(const mm_zfp_work &work, const place &at, const float *__restrict__ src, float *values) {
    const lines<DIMS> l = lines_of<DIMS>(work, at);
    const float *first = src + first_of<DIMS>(work, at);
    if (DIMS == 2 && work.vectors) {
        MM_UNROLL for (int y = 0; y < 4; y++) {
            const float4 four = *reinterpret_cast<const float4 *>(first + l.y.offset[y]);
            values[4 * y] = four.x, values[4 * y + 1] = four.y, values[4 * y + 2] = four.z, values[4 * y + 3] = four.w;
        }
    } else if (DIMS == 3 && work.vectors) {
        MM_UNROLL for (int i = 0; i < 16; i++) {
            const float4 four = *reinterpret_cast<const float4 *>(first + l.y.offset[i / 4] + l.x.offset[i % 4]);
            values[i] = four.x, values[16 + i] = four.y, values[32 + i] = four.z, values[48 + i] = four.w;
        }
    } else {
        MM_UNROLL for (int i = 0; i < mm_zfp_values(DIMS); i++) {
            const float *p = first;
            if (DIMS > 2) p += l.z.offset[i / 16];
            if (DIMS > 1) p += l.y.offset[i / 4 % 4];
            values[i] = p[l.x.offset[i % 4]];
        }
    }
}

template <int DIMS>
MM_HD void values_store(const mm_zfp_work &work, const place &at, const float *values, float *__restrict__ dst) {
    const lines<DIMS> l = lines_of<DIMS>(work, at);
    float *first = dst + first_of<DIMS>(work, at);
    if (DIMS == 2 && work.vectors) {
        MM_UNROLL for (int y = 0; y < 4; y++) {
            if (y < l.y.inside)
                *reinterpret_cast<float4 *>(first + l.y.offset[y]) =
                    make_float4(values[4 * y], values[4 * y + 1], values[4 * y + 2], values[4 * y + 3]);
        }
    } else if (DIMS == 3 && work.vectors) {
        MM_UNROLL for (int i = 0; i < 16; i++) {
            if (i % 4 < l.x.inside && i / 4 < l.y.inside)
                *reinterpret_cast<float4 *>(first + l.y.offset[i / 4] + l.x.offset[i % 4]) =
                    make_float4(values[i], values[16 + i], values[32 + i], values[48 + i]);
        }
    } else {
        MM_UNROLL for (int i = 0; i < mm_zfp_values(DIMS); i++) {
            float *p = first;
            bool inside = i % 4 < l.x.inside;
            if (DIMS > 1) p += l.y.offset[i / 4 % 4], inside = inside && i / 4 % 4 < l.y.inside;
            if (DIMS > 2) p += l.z.offset[i / 16], inside = inside && i / 16 < l.z.inside;
            if (inside) p[l.x.offset[i % 4]] = values[i];
        }
    }
}

/* ---------------------------------------------------------------- a warp's codes in shared memory */

__host__ __device__ inline int words_of(int maxbits) { return (maxbits + 31) / 32; }

/* How far apart the codes of a warp's blocks are staged, when encoded: an odd number of words, so that a warp's accesses
 * meet different banks. */
__host__ __device__ inline int staged_stride(int maxbits) { return words_of(maxbits) | 1; }

/* Of the word j that a lane writes: which block's bits begin it, and at which of its bits. */
struct word_place {
    uint32_t block, bit;
};

MM_HD word_place word_place_of(uint32_t j, int maxbits) {
    word_place at;
    at.block = 32 * j / (uint32_t)maxbits;
    at.bit = 32 * j % (uint32_t)maxbits;
    return at;
}

/* Codes, each at its stride, padded with zeros to whole words, to the code's words without gaps. */
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

/* The words of the code that are a warp's, whose first block this is: with the last block come those that pad it. */
MM_HD uint32_t warp_words(const mm_zfp_work &work, uint64_t first_block, uint64_t *first_word_out) {
    *first_word_out = first_block / WARP * (uint32_t)work.maxbits;
    return first_block + WARP < work.blocks ? (uint32_t)work.maxbits : (uint32_t)(work.code_words - *first_word_out);
}

/* ---------------------------------------------------------------- launches */

inline cudaError_t multiprocessors(int at_most, unsigned *count_out) {
    int device, count;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return error;
    *count_out = (unsigned)(at_most > 0 && at_most < count ? at_most : count);
    return cudaSuccess;
}

struct shape_of_grid {
    unsigned blocks, threads;
    size_t shared_bytes;
};

/* For kernels of which so many blocks share a multiprocessor, and whose warps each take so much shared memory. Sets the
 * steps of `work`. */
inline cudaError_t grid_of(unsigned together, size_t warp_bytes, mm_zfp_work *work, shape_of_grid *grid_out) {
    unsigned count;
    const cudaError_t error = multiprocessors(work->multiprocessors, &count);
    if (error != cudaSuccess) return error;
    const uint64_t each = (work->blocks + count - 1) / count;
    uint64_t warps = (each + WARP - 1) / WARP;
    if (warps > MOST_THREADS / WARP) warps = MOST_THREADS / WARP;
    if (warp_bytes && warps > MOST_SHARED_BYTES / warp_bytes) warps = MOST_SHARED_BYTES / warp_bytes;
    const uint64_t threads = warps * WARP, needed = (work->blocks + threads - 1) / threads;
    grid_out->threads = (unsigned)threads;
    grid_out->blocks = needed < count * together ? (unsigned)needed : count * together;
    grid_out->shared_bytes = warps * warp_bytes;

    uint64_t step = threads * grid_out->blocks;
    work->step_c = (uint32_t)(step % work->blocks_c), step /= work->blocks_c;
    work->step_x = (uint32_t)(step % work->blocks_x), step /= work->blocks_x;
    work->step_y = (uint32_t)(step % work->blocks_y), step /= work->blocks_y;
    work->step_n = (uint32_t)step;
    return cudaSuccess;
}

/* Whether what is at `memory` may be taken four at once. */
inline bool takes_vectors(const mm_zfp_work &work, const void *memory) {
    if ((uintptr_t)memory % sizeof(float4)) return false;
    return work.dims == 2 ? work.channels == 1 && work.columns % 4 == 0 : work.dims == 3 && work.channels % 4 == 0;
}

inline bool takes_words(const mm_zfp_work &work, const void *memory) {
    const int words = words_of(work.maxbits);
    return work.maxbits == 32 * words && (words == 1 || words == 2 || words == 4) &&
           (uintptr_t)memory % (4 * words) == 0;
}

} // namespace

#endif

/* SPDX-License-Identifier: MIT */
/* The kernels of chunk codecs (chunk_code.h), for *_cuda.cu only. Each codec adds functions by which a warp encodes and
 * decodes a chunk.
 *
 * Encode. A warp encodes a chunk to shared memory; the chunks of a block (8, or 32 with sms=) are a group. A group's
 * codes begin after the words of all groups before it; a single pass adds them up (D. Merrill, M. Garland, Single-pass
 * Parallel Prefix Scan with Decoupled Look-back, 2016). A block publishes its group's words, adds up the words
 * published by the blocks before it, back to one that has published its prefix sum, and publishes its own prefix sum.
 * Blocks draw tickets for groups in the order in which they begin, so each waits only for blocks that have begun. The
 * order of blocks does not change the positions, which are sums.
 *
 *      map     | chunk | chunk | ...                              a warp each
 *      shared  | code...    | code..     | ...   8 or 32 slots    a block: a group
 *      body    ...|code...|code..|...                             32 words of a warp's are a line of memory
 *
 * Blocks exchange words by mm_cuda_load and mm_cuda_store. Each word has its meaning by itself, so words need no order
 * among them.
 *
 * Decode. A warp decodes a chunk. It first copies the code to shared memory, because the body may lie in pinned memory,
 * behind the link, where each word should be read once. */
#ifndef PIPELINE_CODEC_CHUNK_CHUNK_CUDA_KERNEL_H
#define PIPELINE_CODEC_CHUNK_CHUNK_CUDA_KERNEL_H

#include "pipeline/codec/cuda_grid.h"

#define MM_HD           __device__ __forceinline__
#define MM_HD_CONSTEXPR constexpr __host__ __device__ __forceinline__

#include "pipeline/codec/block/half_value.h"
#include "pipeline/codec/chunk/chunk_code.h"
#include "pipeline/codec/chunk/chunk_cuda.h"

namespace {

constexpr unsigned ALL = 0xffffffff, THREADS = FAT_THREADS /* at most */;
constexpr int WARP = 32, LINE = 32 /* words */, MOST_GROUP = THREADS / WARP, GROUPS_OF_32 = MM_CHUNK_ELEMS / WARP;

__device__ __forceinline__ int lane_of() { return (int)(threadIdx.x % WARP); }
__device__ __forceinline__ int warp_of() { return (int)(threadIdx.x / WARP); }
/* Number of chunks in a group. */
__device__ __forceinline__ int group_of() { return (int)(blockDim.x / WARP); }
/* Mask of the lanes below this one. */
__device__ __forceinline__ uint32_t below(int lane) { return (1u << lane) - 1; }

/* The sum of `value` over the lanes below. */
__device__ __forceinline__ int sum_below(int value, int lane) {
    int sum = value;
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
        const int other = __shfl_up_sync(ALL, sum, (unsigned)by);
        if (lane >= by) sum += other;
    }
    return sum - value;
}

/* Words of shared memory for a warp: a chunk's code, and scratch of eb. */
constexpr int SLOT = MM_CHUNK_ELEMS + 3 * WARP;

/* ---------------------------------------------------------------- packing non-zeros */

/* values[i] is element 32 i + lane. Lane l gets the mask of the non-zeros among elements 32 l to 32 l + 31. */
__device__ __forceinline__ uint32_t mask_nonzeros(const uint32_t *values, int lane) {
    uint32_t mine = 0;
#pragma unroll
    for (int i = 0; i < GROUPS_OF_32; i++) {
        const uint32_t mask = __ballot_sync(ALL, values[i] != 0);
        if (lane == i) mine = mask;
    }
    return mine;
}

/* Number of bits that are set in all lanes' masks together. */
__device__ __forceinline__ int count_all(uint32_t mask) { return (int)__reduce_add_sync(ALL, (unsigned)__popc(mask)); }

/* Calls store(rank, i, value) for each non-zero values[i]; rank: the number of non-zeros before it. */
template <typename STORE>
__device__ __forceinline__ void pack_nonzeros(const uint32_t *values, int lane, const STORE &store) {
    int before = 0;
#pragma unroll
    for (int i = 0; i < GROUPS_OF_32; i++) {
        const uint32_t mask = __ballot_sync(ALL, values[i] != 0);
        if (values[i] != 0) store(before + __popc(mask & below(lane)), i, values[i]);
        before += __popc(mask);
    }
}

/* The inverse of pack_nonzeros: sets all values[i]. mine: the lane's mask; load(rank) returns the non-zero of that
 * rank. */
template <typename LOAD>
__device__ __forceinline__ void unpack_nonzeros(uint32_t mine, uint32_t *values, int lane, const LOAD &load) {
    int before = 0;
#pragma unroll
    for (int i = 0; i < GROUPS_OF_32; i++) {
        const uint32_t mask = __shfl_sync(ALL, mine, i);
        values[i] = mask >> lane & 1 ? load(before + __popc(mask & below(lane))) : 0;
        before += __popc(mask);
    }
}

/* ---------------------------------------------------------------- positions */

constexpr unsigned long long PART = 1ull << 62, SUM = 2ull << 62, WORDS = PART - 1;

/* An encode's scratch. A state for each group follows it: 0 at first; then PART + the group's words; then SUM + the
 * words of all groups up to and including it. */
struct chunk_scratch {
    int64_t begin;                        /* the body's first position */
    unsigned long long tickets, finished; /* tickets drawn, groups that have published their sums */
    unsigned long long spill_from;        /* 1 + the body's words before the first chunk in the spill; 0: none */
};
static_assert(sizeof(chunk_scratch) == 4 * sizeof(unsigned long long), "mm_chunk_cuda_scratch_bytes");

__device__ __forceinline__ unsigned long long *states_of(chunk_scratch *scratch) {
    return (unsigned long long *)(scratch + 1);
}

/* Publishes the words of group g. Waits for the groups before it, and returns the sum of their words. A whole warp
 * calls it. */
__device__ __forceinline__ uint64_t words_before(unsigned long long *state, int64_t g, unsigned words, int lane) {
    if (lane == 0 && g > 0) mm_cuda_store(&state[g], PART | words);
    uint64_t sum = 0;
    for (int64_t to = g; to > 0; to -= WARP) {
        /* lane l reads the state of the l-th group before `to`; before group 0 the sum is 0 */
        unsigned long long seen;
        do seen = to > lane ? mm_cuda_load(&state[to - 1 - lane]) : (unsigned long long)SUM;
        while (__any_sync(ALL, seen < PART));
        const unsigned sums = __ballot_sync(ALL, seen >= SUM);
        const int last = sums ? __ffs((int)sums) - 1 : WARP - 1;
        uint64_t part = lane <= last ? seen & WORDS : 0;
#pragma unroll
        for (int with = 1; with < WARP; with *= 2) part += __shfl_xor_sync(ALL, part, with);
        sum += part;
        if (sums) break;
    }
    if (lane == 0) mm_cuda_store(&state[g], SUM | (sum + words));
    return sum;
}

__global__ void __launch_bounds__(THREADS, 1)
    prepare(chunk_scratch *scratch, int64_t groups, const mm_body_record *before) {
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (int64_t i = first; i < groups; i += (int64_t)gridDim.x * blockDim.x) states_of(scratch)[i] = 0;
    if (first > 0) return;
    scratch->begin = before ? mm_body_begin(before->end) : 0;
    scratch->tickets = scratch->finished = scratch->spill_from = 0;
}

/* ---------------------------------------------------------------- encode */

/* A group's codes. Each lies in a SLOT of dynamic shared memory. */
struct group_codes {
    uint32_t words[MOST_GROUP];
    uint32_t from[MOST_GROUP + 1]; /* where each code begins in the group, in words; the last entry: all words */
    uint32_t *place[MOST_GROUP];   /* each code's address in the body; NULL: there is no room */
    unsigned long long ticket;
    int skew; /* where the group begins within a line of memory, in words */
};

/* Completes the head and the record, when the size of the whole body is known. */
__device__ __forceinline__ void report_of_all(const mm_chunk_work &work, int64_t groups, chunk_scratch *scratch) {
    const int64_t chunks = mm_chunks(work.elems);
    const uint64_t words = mm_cuda_load(&states_of(scratch)[groups - 1]) & WORDS,
                   spill_from = mm_cuda_load(&scratch->spill_from);
    uint32_t *const at = (uint32_t *)work.head + 2;
    *(int64_t *)work.head = scratch->begin;
    at[chunks] = (uint32_t)words;
    if (chunks % 2 == 0) at[chunks + 1] = 0;
    mm_body_record *const record = work.body.record;
    record->bytes = 4 * (int64_t)words;
    record->spilled = work.body.pool_pinned ? record->bytes : spill_from ? 4 * (int64_t)(words - (spill_from - 1)) : 0;
    record->end = scratch->begin + record->bytes;
    record->all_bytes += record->bytes;
    record->all_spilled += record->spilled;
}

/* Finds the addresses of the group's codes, and writes their positions to the head. The first warp calls it; lane i has
 * chunk i. */
__device__ __forceinline__ void place_group(const mm_chunk_work &work, group_codes &codes, int64_t g, int64_t groups,
                                            int lane) {
    chunk_scratch *const scratch = (chunk_scratch *)work.scratch;
    const uint32_t words = lane < group_of() ? codes.words[lane] : 0, from = (uint32_t)sum_below((int)words, lane);
    codes.from[lane] = from;
    if (lane == WARP - 1) codes.from[WARP] = from + words;
    const uint64_t before = words_before(states_of(scratch), g, __shfl_sync(ALL, from + words, WARP - 1), lane);
    const int64_t chunk = g * group_of() + lane, position = scratch->begin + 4 * (int64_t)(before + from);
    if (lane == 0) codes.skew = (int)(before % LINE);
    if (lane < group_of() && chunk < mm_chunks(work.elems)) {
        ((uint32_t *)work.head)[2 + chunk] = (uint32_t)(before + from);
        codes.place[lane] = (uint32_t *)mm_chunk_place(&work.body, position, 4 * words);
        if (mm_chunk_spills(&work.body, position, 4 * words) && (chunk == 0 || position <= work.body.pool_bytes))
            mm_cuda_store(&scratch->spill_from, before + from + 1);
    }
    __threadfence();
    __syncwarp();
    if (lane > 0 || atomicAdd(&scratch->finished, 1ull) + 1 < (unsigned long long)groups) return;
    __threadfence();
    report_of_all(work, groups, scratch);
}

/* Writes the group's codes. Warps write whole lines of memory, except at the group's ends. */
__device__ __forceinline__ void write_group(const group_codes &codes, const uint32_t *slots) {
    const int words = (int)codes.from[WARP];
    int c = 0;
    for (int at = (int)threadIdx.x - codes.skew; at < words; at += (int)blockDim.x) {
        if (at < 0) continue;
        while (at >= (int)codes.from[c + 1]) c++;
        const int in_code = at - (int)codes.from[c];
        if (codes.place[c]) codes.place[c][in_code] = slots[c * SLOT + in_code];
    }
}

/* values[i] = bits of element 32 i + lane of a chunk of n; zeros beyond n. T: uint32_t or uint16_t. */
template <typename T>
__device__ __forceinline__ void load_chunk(const T *__restrict__ src, int n, int lane, uint32_t *values) {
    const int left = n - lane;
    src += lane;
    if (n == MM_CHUNK_ELEMS) {
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) values[i] = src[WARP * i];
        return;
    }
#pragma unroll
    for (int i = 0; i < GROUPS_OF_32; i++) values[i] = WARP * i < left ? src[WARP * i] : 0;
}

/* The inverse of load_chunk: stores values[i] to element 32 i + lane. */
template <typename T>
__device__ __forceinline__ void store_chunk(const uint32_t *values, int n, int lane, T *__restrict__ dst) {
    const int left = n - lane;
    dst += lane;
#pragma unroll
    for (int i = 0; i < GROUPS_OF_32; i++)
        if (WARP * i < left) dst[WARP * i] = (T)values[i];
}

/* ---------------------------------------------------------------- elements of 16 bits (chunk_code.h) */

/* What a codec gets of elements of 16 bits: floats; or their bits, of which `encode` makes a code that has the
 * non-zeros last, a word each; or their bits, and the code stays as it is. */
enum class halves { as_floats, as_bits, as_they_are };

/* Loads a chunk's elements in the form that the codec processes. at: index of the first. */
template <typename CODE>
__device__ __forceinline__ void load_elems(const mm_chunk_work &work, int64_t at, int n, int lane, uint32_t *values) {
    if (work.type == MM_F32) {
        load_chunk((const uint32_t *)work.map + at, n, lane, values);
        return;
    }
    load_chunk((const uint16_t *)work.map + at, n, lane, values);
    if constexpr (CODE::HALVES == halves::as_floats) {
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) values[i] = mm_half_widen(values[i], work.type);
    }
}

/* The inverse of load_elems: stores a chunk's elements. as_bits: values are the elements' bits, not floats. */
__device__ __forceinline__ void store_elems(uint32_t *values, bool as_bits, const mm_chunk_work &work, int64_t at,
                                            int n, int lane) {
    if (work.type == MM_F32) {
        store_chunk(values, n, lane, (uint32_t *)work.map + at);
        return;
    }
#pragma unroll
    for (int i = 0; i < GROUPS_OF_32; i++)
        if (!as_bits) values[i] = mm_half_narrow(values[i], work.type);
    store_chunk(values, n, lane, (uint16_t *)work.map + at);
}

/* Joins the non-zeros, in words `head` to `words` - 1, two to a word. Returns the words of the code. */
template <typename CODE> __device__ __forceinline__ int join_values(uint32_t *code, int words, int n, int lane) {
    __syncwarp();
    const int head = CODE::head(code, n), values = words - head;
    uint32_t *const value = code + head;
#pragma unroll 1
    for (int i = 0; i < values; i += 2 * WARP) { /* value[k / 2] is written after value[0] to value[k] were read */
        const int k = i + 2 * lane;
        const uint32_t low = k < values ? value[k] : 0, high = k + 1 < values ? value[k + 1] : 0;
        __syncwarp();
        if (k < values) value[k / 2] = low | high << 16;
        __syncwarp();
    }
    return head + (values + 1) / 2;
}

/* The inverse of join_values: gives each non-zero a word of its own, the last non-zeros first. Returns the words that
 * the code then has; -1: the code is damaged. */
template <typename CODE> __device__ __forceinline__ int part_values(uint32_t *code, int words, int n, int lane) {
    if (lane < 2 && lane >= words) code[lane] = 0;
    __syncwarp();
    const int head = CODE::head(code, n), values = mm_chunk_half_values(code, words, head);
    if (values < 0 || head + values >= n) return -1;
    uint32_t *const value = code + head;
#pragma unroll 1
    for (int i = (values - 1) / (2 * WARP) * (2 * WARP); i >= 0; i -= 2 * WARP) {
        const int k = i + 2 * lane;
        const uint32_t pair = k < values ? value[k / 2] : 0;
        __syncwarp();
        if (k < values) value[k] = pair & 0xffff;
        if (k + 1 < values) value[k + 1] = pair >> 16;
        __syncwarp();
    }
    return head + values;
}

/* Encodes a chunk to `words`. Returns the code's words; if they are mm_chunk_raw_words, it is the elements
 * themselves. */
template <typename CODE>
__device__ __forceinline__ int encode_chunk(const mm_chunk_work &work, const CODE &code, int64_t at, int n,
                                            uint32_t *words, int lane) {
    const bool halves = work.type != MM_F32;
    const int raw = mm_chunk_raw_words(n, halves);
    uint32_t values[GROUPS_OF_32];
    load_elems<CODE>(work, at, n, lane, values);
    int count = code.encode(values, n, words, lane);
    if (!halves) {
        if (count == n) store_chunk(values, n, lane, words);
        return count;
    }
    if constexpr (CODE::HALVES == halves::as_bits) {
        if (count < n) count = join_values<CODE>(words, count, n, lane);
    }
    if (count < raw) return count;
    __syncwarp();
    load_chunk((const uint16_t *)work.map + at, n, lane, values);
    store_chunk(values, n, lane, (uint16_t *)words);
    if (n % 2 && lane == 0) ((uint16_t *)words)[n] = 0;
    return raw;
}

/* Decodes a chunk's code of `count` words to `values`. Returns false if it is damaged. */
template <typename CODE>
__device__ __forceinline__ bool decode_chunk(const mm_chunk_work &work, const CODE &code, int n, int count,
                                             uint32_t *words, uint32_t *values, int lane) {
    const bool halves = work.type != MM_F32;
    if (count == mm_chunk_raw_words(n, halves)) {
        if (!halves) {
            load_chunk(words, n, lane, values);
            return true;
        }
        load_chunk((const uint16_t *)words, n, lane, values);
        return true;
    }
    if constexpr (CODE::HALVES == halves::as_bits) {
        if (halves) count = part_values<CODE>(words, count, n, lane);
        if (count < 0) return false;
    }
    return code.decode(words, count, n, values, lane);
}

/* CODE is the class of a codec. It has a constructor (const mm_chunk_work &), and
 *
 *      int encode(uint32_t *values, int n, uint32_t *words, int lane)
 *          values[i]: bits of element 32 i + lane of n, zeros beyond; they may be changed. Returns the words of the
 *          code, at most n - 1; or n if the chunk must be stored raw, as `values` then are (elements of 16 bits
 *          as_they_are: mm_chunk_raw_words instead of n). May write all SLOT words of shared memory
 *      bool decode(uint32_t *words, int count, int n, uint32_t *values, int lane)
 *          count: less than n. May change `words`. Returns false if the code is damaged
 *
 *      HALVES      what it gets of elements of 16 bits. as_bits: it has
 *      int head(const uint32_t *words, int n)
 *          words of a code before its non-zeros (mm_chunk_kind.head)
 *
 * Whole warps call them, and all lanes get the same result. decode may read `words` at once, without a barrier; encode
 * need not end with one. */
template <typename CODE>
__global__ void __launch_bounds__(THREADS, 1) encode(mm_chunk_work work, int64_t groups, int turns) {
    MM_DYNAMIC_SHARED(uint32_t, slots);
    __shared__ group_codes codes;
    const CODE code(work);
    const int lane = lane_of(), warp = warp_of();
    uint32_t *const slot = slots + warp * SLOT;
    for (int turn = 0; turn < turns; turn++) {
        if (threadIdx.x == 0) codes.ticket = atomicAdd(&((chunk_scratch *)work.scratch)->tickets, 1ull);
        __syncthreads();
        if ((int64_t)codes.ticket >= groups) return;
        const int64_t at = ((int64_t)codes.ticket * group_of() + warp) * MM_CHUNK_ELEMS, left = work.elems - at;
        int words = 0;
        if (left > 0) {
            const int n = left < MM_CHUNK_ELEMS ? (int)left : MM_CHUNK_ELEMS;
            words = encode_chunk(work, code, at, n, slot, lane);
        }
        if (lane == 0) codes.words[warp] = (uint32_t)words;
        __syncthreads();
        /* Reads the ticket again: no register is left for it while the chunk is encoded. */
        if (warp == 0) place_group(work, codes, (int64_t)codes.ticket, groups, lane);
        __syncthreads();
        write_group(codes, slots);
        __syncthreads();
    }
}

/* ---------------------------------------------------------------- decode */

/* Copies the code of a chunk, whose elements fill n words, to shared memory. Returns the code's words; -1: the head or
 * the body is damaged. */
__device__ __forceinline__ int fetch_code(const mm_chunk_work &work, int64_t chunk, int n, uint32_t *words, int lane) {
    const int64_t begin = *(const int64_t *)work.head;
    const uint32_t *const at = (const uint32_t *)work.head + 2 + chunk;
    const uint32_t from = at[0], to = at[1];
    if (!mm_body_begin_is_possible(&work.body, begin) || (chunk == 0 && from != 0)) return -1;
    if (!mm_chunk_words_are_possible(from, to, n)) return -1;
    const int count = (int)(to - from);
    const uint32_t *const code = (const uint32_t *)mm_chunk_place(&work.body, begin + 4 * (int64_t)from, 4 * count);
    if (!code && count > 0) return -1;
    const int skew = (int)(from % WARP); /* so that a warp reads whole lines of memory */
#pragma unroll 8
    for (int i = 0; i <= GROUPS_OF_32; i++) {
        const int k = WARP * i + lane - skew;
        if (k >= 0 && k < count) words[k] = code[k];
    }
    __syncwarp();
    return count;
}

template <typename CODE> __global__ void __launch_bounds__(THREADS, 1) decode(mm_chunk_work work) {
    MM_DYNAMIC_SHARED(uint32_t, slots);
    const CODE code(work);
    const int lane = lane_of(), warp = warp_of();
    uint32_t *const slot = slots + warp * SLOT;
    const int64_t chunks = mm_chunks(work.elems), step = (int64_t)gridDim.x * group_of();
    for (int64_t chunk = (int64_t)blockIdx.x * group_of() + warp; chunk < chunks; chunk += step) {
        const int n = mm_chunk_elems(work.elems, chunk), raw = mm_chunk_raw_words(n, work.type != MM_F32);
        const int count = fetch_code(work, chunk, raw, slot, lane);
        uint32_t values[GROUPS_OF_32];
        const bool good = count >= 0 && decode_chunk(work, code, n, count, slot, values, lane);
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) values[i] = good ? values[i] : 0;
        if (!good && lane == 0 && work.damaged) atomicAdd_system(work.damaged, 1ull);
        store_elems(values, CODE::HALVES != halves::as_floats || count == raw || !good, work, chunk * MM_CHUNK_ELEMS, n,
                    lane);
        __syncwarp();
    }
}

/* ---------------------------------------------------------------- launches */

inline grid_request request_of(const mm_chunk_work &work) {
    grid_request request = {};
    request.threads = (uint64_t)mm_chunks(work.elems) * WARP;
    request.thread_bytes = MM_CHUNK_ELEMS / WARP * sizeof(float);
    request.sms = work.sms;
    request.fat_threads = THREADS;
    request.least_warps = MM_CHUNK_CUDA_GROUP; /* fewer warps would make more groups than the scratch has room for */
    request.warp_bytes = SLOT * sizeof(uint32_t);
    request.static_bytes = sizeof(group_codes);
    return request;
}

template <typename CODE> cudaError_t launch_encode(cudaStream_t stream, const mm_chunk_work &work) {
    const grid_request request = request_of(work);
    grid_request clears = {};
    codec_grid grid, clear;
    cudaError_t error = grid_of(request, &grid);
    if (error != cudaSuccess) return error;
    const int64_t groups = mm_chunk_cuda_groups(work.elems, (int)grid.threads / WARP);
    clears.threads = (uint64_t)groups;
    clears.thread_bytes = sizeof(unsigned long long);
    clears.sms = work.sms;
    clears.fat_threads = THREADS;
    error = grid_of(clears, &clear);
    if (error == cudaSuccess) error = ask_for_shared(encode<CODE>, request, grid);
    if (error != cudaSuccess) return error;
    const int turns = (int)((groups + grid.blocks - 1) / grid.blocks);
    MM_LAUNCH(prepare, clear.blocks, clear.threads, 0, stream, (chunk_scratch *)work.scratch, groups, work.body.before);
    /* If the scratch is not prepared, encode would wait for ever or write out of bounds. */
    error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    MM_LAUNCH(encode<CODE>, grid.blocks, grid.threads, grid.shared_bytes, stream, work, groups,
              work.sms > 0 ? INT32_MAX : turns);
    return cudaGetLastError();
}

template <typename CODE> cudaError_t launch_decode(cudaStream_t stream, const mm_chunk_work &work) {
    const grid_request request = request_of(work);
    codec_grid grid;
    cudaError_t error = grid_of(request, &grid);
    if (error == cudaSuccess) error = ask_for_shared(decode<CODE>, request, grid);
    if (error != cudaSuccess) return error;
    MM_LAUNCH(decode<CODE>, grid.blocks, grid.threads, grid.shared_bytes, stream, work);
    return cudaGetLastError();
}

} // namespace

/* Defines the C functions of a codec from its class. */
#define MM_CHUNK_CUDA_DEFINE(name, CODE)                                                                               \
    extern "C" cudaError_t mm_##name##_cuda_encode(cudaStream_t stream, const mm_chunk_work *work) {                   \
        return launch_encode<CODE>(stream, *work);                                                                     \
    }                                                                                                                  \
    extern "C" cudaError_t mm_##name##_cuda_decode(cudaStream_t stream, const mm_chunk_work *work) {                   \
        return launch_decode<CODE>(stream, *work);                                                                     \
    }

#endif

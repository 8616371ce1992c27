// SPDX-License-Identifier: MIT
/* rle on CUDA (rle_chunk.h). */
#include "pipeline/codec/chunk/chunk_cuda_kernel.h"

#include "pipeline/codec/chunk/rle_chunk.h"

namespace {

/* Calls fn(i, at) for each set bit of the lanes' masks: the i-th of all, at element `at` of the chunk. */
template <typename FN> __device__ __forceinline__ void each_bit(uint32_t mask, int lane, const FN &fn) {
    int i = sum_below(__popc(mask), lane);
    for (uint32_t left = mask; left; left &= left - 1) fn(i++, WARP * lane + __ffs((int)left) - 1);
}

/* A mask of the bits `from` to `to` - 1 that are within 0 to 31. */
__device__ __forceinline__ uint32_t bits_between(int from, int to) {
    const uint32_t below_to = to >= 32 ? ALL : (1u << to) - 1;
    return below_to & (from > 0 ? ALL << from : ALL);
}

/* Run r of a code: its first element in bits 0 to 15, the one after its last in bits 16 to 31. */
__device__ __forceinline__ int first_of(uint32_t run) { return (int)(run & 0xffff); }
__device__ __forceinline__ int end_of(uint32_t run) { return (int)(run >> 16); }

struct rle {
    static constexpr halves HALVES = halves::as_bits;

    __device__ explicit rle(const mm_chunk_work &) {}

    static __device__ __forceinline__ int head(const uint32_t *words, int n) { return mm_rle_head(words, n); }

    __device__ __forceinline__ int encode(uint32_t *values, int n, uint32_t *words, int lane) const {
        const uint32_t mine = mask_nonzeros(values, lane), top = __shfl_up_sync(ALL, mine >> 31, 1);
        const uint32_t before = mine << 1 | (lane > 0 ? top : 0), starts = mine & ~before, ends = ~mine & before;
        const int runs = count_all(starts), total = 1 + runs + count_all(mine);
        if (total >= n) return n;
        if (lane == 0) words[0] = (uint32_t)runs;
        each_bit(starts, lane, [=](int run, int at) { words[1 + run] = (uint32_t)at; });
        __syncwarp();
        each_bit(ends, lane, [=](int run, int at) { words[1 + run] |= (uint32_t)at << 16; });
        if (lane == WARP - 1 && mine >> 31)
            words[runs] |= (uint32_t)MM_CHUNK_ELEMS << 16; /* the last run's end is not among `ends` */
        pack_nonzeros(values, lane, [=](int rank, int, uint32_t value) { words[1 + runs + rank] = value; });
        return total;
    }

    __device__ __forceinline__ bool decode(uint32_t *words, int count, int n, uint32_t *values, int lane) const {
        if (count < 1 || words[0] > (uint32_t)(count - 1)) return false;
        const int runs = (int)words[0];
        const uint32_t *const run = words + 1;
        bool good = true;
        int sum = 0;
        for (int r = lane; r < runs; r += WARP) {
            const int first = first_of(run[r]), end = end_of(run[r]);
            good = good && (r == 0 || first > end_of(run[r - 1])) && first < end && end <= n;
            sum += end - first;
        }
        if (!__all_sync(ALL, good) || (int)__reduce_add_sync(ALL, (unsigned)sum) != count - 1 - runs) return false;
        unpack_nonzeros(mask_of(run, runs, WARP * lane), values, lane, [=](int rank) { return run[runs + rank]; });
        return true;
    }

  private:
    /* Mask of the elements `base` to base + 31 that lie in runs. */
    static __device__ __forceinline__ uint32_t mask_of(const uint32_t *run, int runs, int base) {
        int r = 0;
        for (int to = runs; r < to;) { /* finds the first run that ends after `base` */
            const int middle = (r + to) / 2;
            if (end_of(run[middle]) <= base)
                r = middle + 1;
            else
                to = middle;
        }
        uint32_t mask = 0;
        for (; r < runs && first_of(run[r]) < base + WARP; r++)
            mask |= bits_between(first_of(run[r]) - base, end_of(run[r]) - base);
        return mask;
    }
};

} // namespace

MM_CHUNK_CUDA_DEFINE(rle, rle)

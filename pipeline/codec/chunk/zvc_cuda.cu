// SPDX-License-Identifier: MIT
/* zvc on CUDA (zvc_chunk.h). */
#include "pipeline/codec/chunk/chunk_cuda_kernel.h"

#include "pipeline/codec/chunk/zvc_chunk.h"

namespace {

struct zvc {
    static constexpr halves HALVES = halves::as_bits;

    __device__ explicit zvc(const mm_chunk_work &) {}

    static __device__ __forceinline__ int head(const uint32_t *words, int n) { return mm_zvc_head(words, n); }

    __device__ __forceinline__ int encode(uint32_t *values, int n, uint32_t *words, int lane) const {
        const uint32_t mine = mask_nonzeros(values, lane);
        const int masks = (n + WARP - 1) / WARP, total = masks + count_all(mine);
        if (total >= n) return n;
        if (lane < masks) words[lane] = mine;
        pack_nonzeros(values, lane, [=](int rank, int, uint32_t value) { words[masks + rank] = value; });
        return total;
    }

    __device__ __forceinline__ bool decode(uint32_t *words, int count, int n, uint32_t *values, int lane) const {
        const int masks = (n + WARP - 1) / WARP;
        if (count < masks) return false;
        const uint32_t mine = lane < masks ? words[lane] : 0;
        const bool beyond = lane == n / WARP && mine >> n % WARP;
        if (__any_sync(ALL, beyond) || masks + count_all(mine) != count) return false;
        unpack_nonzeros(mine, values, lane, [=](int rank) { return words[masks + rank]; });
        return true;
    }
};

} // namespace

MM_CHUNK_CUDA_DEFINE(zvc, zvc)

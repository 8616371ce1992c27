// SPDX-License-Identifier: MIT
/* A warp computes 32 words. For each word, its lanes load one element each and vote; lane i keeps the i-th word. So
 * loads and stores are coalesced, and a lane has 8 loads in flight. */
#include "pipeline/codec/exact/mask_cuda.h"

#include "pipeline/codec/cuda_grid.h"

namespace {

constexpr unsigned WARP = 32, ALL = 0xffffffff, AHEAD = 8;

__device__ bool is_positive(float value, uint16_t) { return value > 0; }
__device__ bool is_positive(uint16_t bits, uint16_t infinity) { return (uint16_t)(bits - 1) < infinity; }

template <typename T>
__global__ void __launch_bounds__(LEAN_THREADS)
    mask(int64_t elems, const T *__restrict__ src, uint16_t infinity, uint32_t *__restrict__ dst) {
    const int64_t words = (elems + WARP - 1) / WARP, step = (int64_t)gridDim.x * blockDim.x;
    const int lane = threadIdx.x % WARP;
    for (int64_t first = (int64_t)blockIdx.x * blockDim.x + (threadIdx.x - lane); first < words; first += step) {
        uint32_t mine = 0;
        for (unsigned i = 0; i < WARP; i += AHEAD) {
            T values[AHEAD];
#pragma unroll
            for (unsigned a = 0; a < AHEAD; a++) {
                const int64_t at = (first + i + a) * WARP + lane;
                values[a] = at < elems ? src[at] : (T)0;
            }
#pragma unroll
            for (unsigned a = 0; a < AHEAD; a++) {
                const uint32_t word = __ballot_sync(ALL, is_positive(values[a], infinity));
                if (lane == (int)(i + a)) mine = word;
            }
        }
        if (first + lane < words) dst[first + lane] = mine;
    }
}

} // namespace

extern "C" cudaError_t mm_mask_cuda_encode(cudaStream_t stream, int64_t elems, const void *src, uint16_t infinity,
                                           uint32_t *dst) {
    const unsigned elem_bytes = infinity ? sizeof(uint16_t) : sizeof(float);
    grid_request request = {};
    request.threads = (uint64_t)(elems + WARP - 1) / WARP;
    request.thread_bytes = WARP * elem_bytes;
    codec_grid grid;
    const cudaError_t error = grid_of(request, &grid);
    if (error != cudaSuccess) return error;
    if (infinity)
        MM_LAUNCH(mask<uint16_t>, grid.blocks, grid.threads, 0, stream, elems, (const uint16_t *)src, infinity, dst);
    else
        MM_LAUNCH(mask<float>, grid.blocks, grid.threads, 0, stream, elems, (const float *)src, infinity, dst);
    return cudaGetLastError();
}

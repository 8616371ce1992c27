// SPDX-License-Identifier: MIT
/* signs on CUDA. Neighbouring threads take neighbouring elements, so a warp reads one word of the mask at a time. */
#include "pipeline/codec/exact/signs_cuda.h"

#include "pipeline/codec/cuda_grid.h"

#define MM_HD __device__ __forceinline__

#include "pipeline/codec/block/signs_value.h"

namespace {

constexpr int EACH = 8; /* elements of a thread in a step, blockDim.x apart */

template <typename T>
__global__ void __launch_bounds__(LEAN_THREADS)
    mend(int64_t elems, const uint32_t *__restrict__ mask, T *__restrict__ map, uint32_t sign, uint32_t infinity) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x * EACH;
    for (int64_t first = (int64_t)blockIdx.x * blockDim.x * EACH + threadIdx.x; first < elems; first += step) {
        T values[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int64_t at = first + i * (int64_t)blockDim.x;
            values[i] = at < elems ? map[at] : (T)0;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int64_t at = first + i * (int64_t)blockDim.x;
            if (at < elems) map[at] = (T)mm_signs_value(values[i], mask[at / 32] >> at % 32 & 1, sign, infinity);
        }
    }
}

} // namespace

extern "C" cudaError_t mm_signs_cuda_mend(cudaStream_t stream, uint16_t infinity, const uint32_t *mask, void *map,
                                          int64_t n) {
    grid_request request = {};
    request.threads = (uint64_t)(n + EACH - 1) / EACH;
    request.thread_bytes = EACH * (infinity ? sizeof(uint16_t) : sizeof(uint32_t));
    codec_grid grid;
    const cudaError_t error = grid_of(request, &grid);
    if (error != cudaSuccess) return error;
    if (infinity)
        MM_LAUNCH(mend<uint16_t>, grid.blocks, grid.threads, 0, stream, n, mask, (uint16_t *)map, 0x8000, infinity);
    else
        MM_LAUNCH(mend<uint32_t>, grid.blocks, grid.threads, 0, stream, n, mask, (uint32_t *)map, 0x80000000u,
                  0x7f800000);
    return cudaGetLastError();
}

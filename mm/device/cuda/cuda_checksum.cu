// SPDX-License-Identifier: MIT
/* The checksum of checksum.h, in one block. Each thread has several lanes, so that as many loads are in flight. */
#include "mm/device/cuda/cuda_launch.h"

#define MM_CHECKSUM_FUNCTION static __device__ inline
#include "mm/device/contract/checksum.h"

enum { THREADS = 256, LANES = MM_CHECKSUM_LANES / THREADS };

/* Sums over the block; thread 0 gets the result. */
static __device__ uint64_t block_sum(uint64_t value) {
    __shared__ uint64_t warps[THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffffu, (unsigned long long)value, offset);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    uint64_t sum = 0;
    for (int w = 0; threadIdx.x == 0 && w < THREADS / 32; w++) sum += warps[w];
    return sum;
}

static __global__ void __launch_bounds__(THREADS) checksum(const unsigned char *src, int64_t bytes, uint64_t *sum_out) {
    const int thread = threadIdx.x;
    const int64_t words = mm_checksum_words(bytes);
    const bool aligned = (uintptr_t)src % 8 == 0;
    uint64_t lane[LANES], sum = 0;
    for (int l = 0; l < LANES; l++) lane[l] = mm_checksum_lane_begin(l * THREADS + thread);
    for (int64_t first = thread; first < words; first += MM_CHECKSUM_LANES) {
        uint64_t word[LANES] = {};
        for (int l = 0; l < LANES; l++) {
            int64_t i = first + l * THREADS;
            if (i < words)
                word[l] = aligned && 8 * i + 8 <= bytes ? ((const uint64_t *)src)[i] : mm_checksum_word(src, bytes, i);
        }
        for (int l = 0; l < LANES; l++)
            if (first + l * THREADS < words) lane[l] = mm_checksum_mix(lane[l], word[l]);
    }
    for (int l = 0; l < LANES; l++)
        if (l * THREADS + thread < words) sum += mm_checksum_lane_end(lane[l]);
    sum = block_sum(sum);
    if (thread == 0) *sum_out = mm_checksum_end(sum, bytes);
}

extern "C" cudaError_t cuda_checksum_launch(cudaStream_t stream, const void *src, int64_t bytes, uint64_t *sum_out) {
    MM_LAUNCH(checksum, 1, THREADS, 0, stream, (const unsigned char *)src, bytes, sum_out);
    return cudaGetLastError();
}

/* The checksum of checksum.h: a block of one thread per lane. */
#include "mm/device/cuda_launch.h"

#define MM_CHECKSUM_FUNCTION static __device__ inline
#include "mm/device/checksum.h"

/* Sums over the block; the result is thread 0's. */
static __device__ uint64_t block_sum(uint64_t value) {
    __shared__ uint64_t warps[MM_CHECKSUM_LANES / 32];
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffffu, (unsigned long long)value, offset);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    uint64_t sum = 0;
    for (int w = 0; threadIdx.x == 0 && w < MM_CHECKSUM_LANES / 32; w++) sum += warps[w];
    return sum;
}

static __global__ void __launch_bounds__(MM_CHECKSUM_LANES)
    checksum(const unsigned char *src, int64_t bytes, uint64_t *sum_out) {
    const int lane = threadIdx.x;
    const int64_t words = mm_checksum_words(bytes);
    const bool aligned = (uintptr_t)src % 8 == 0;
    uint64_t sum = mm_checksum_lane_begin(lane);
    for (int64_t i = lane; i < words; i += MM_CHECKSUM_LANES) {
        uint64_t word = aligned && 8 * i + 8 <= bytes ? ((const uint64_t *)src)[i] : mm_checksum_word(src, bytes, i);
        sum = mm_checksum_mix(sum, word);
    }
    uint64_t lanes = block_sum(lane < words ? mm_checksum_lane_end(sum) : 0);
    if (lane == 0) *sum_out = mm_checksum_end(lanes, bytes);
}

extern "C" cudaError_t cuda_checksum_launch(cudaStream_t stream, const void *src, int64_t bytes, uint64_t *sum_out) {
    MM_LAUNCH(checksum, 1, MM_CHECKSUM_LANES, 0, stream, (const unsigned char *)src, bytes, sum_out);
    return cudaGetLastError();
}

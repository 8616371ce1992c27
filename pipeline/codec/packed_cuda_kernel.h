/* Shared by the kernels of packed codecs. For *_cuda.cu only. */
#ifndef PIPELINE_CODEC_PACKED_CUDA_KERNEL_H
#define PIPELINE_CODEC_PACKED_CUDA_KERNEL_H

#include "pipeline/codec/cuda_grid.h"

#define MM_HD __device__ __forceinline__

#include "pipeline/codec/packed_cuda.h"

namespace {

constexpr unsigned WARP = 32, ALL = 0xffffffff, THREADS = FAT_THREADS /* at most */;

/* For groups of so many threads, each of which takes that many values. */
inline cudaError_t packed_grid(int64_t groups, unsigned threads, unsigned values, int sms, codec_grid *grid_out) {
    grid_request request = {};
    request.threads = (uint64_t)groups * threads;
    request.thread_bytes = values * (unsigned)sizeof(float);
    request.sms = sms;
    request.fat_threads = THREADS;
    return grid_of(request, grid_out);
}

/* The widest vector, of two or four floats, that divides N floats. */
template <int N> struct floats;
template <> struct floats<2> { using type = float2; };
template <> struct floats<4> { using type = float4; };
template <int N> struct together { static constexpr int value = N % 4 == 0 ? 4 : 2; };

/* Loads N floats from element `at` on; zeros beyond the last of `elems`. */
template <int N>
__device__ __forceinline__ void load(const float *__restrict__ src, int64_t elems, int64_t at, float *values) {
    constexpr int STEP = together<N>::value;
    using vector = typename floats<STEP>::type;
    if (at + N <= elems) {
#pragma unroll
        for (int i = 0; i < N; i += STEP) {
            const vector v = *reinterpret_cast<const vector *>(src + at + i);
            memcpy(values + i, &v, sizeof v);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = at + i < elems ? src[at + i] : 0.0f;
}

/* Stores N floats from element `at` on; nothing beyond the last of `elems`. */
template <int N>
__device__ __forceinline__ void store(const float *values, int64_t elems, int64_t at, float *__restrict__ dst) {
    constexpr int STEP = together<N>::value;
    using vector = typename floats<STEP>::type;
    if (at + N <= elems) {
#pragma unroll
        for (int i = 0; i < N; i += STEP) {
            vector v;
            memcpy(&v, values + i, sizeof v);
            *reinterpret_cast<vector *>(dst + at + i) = v;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (at + i < elems) dst[at + i] = values[i];
}

} // namespace

#endif

/* SPDX-License-Identifier: MIT */
/* Shared by the kernels of packed codecs. For *_cuda.cu only. */
#ifndef PIPELINE_CODEC_PACKED_PACKED_CUDA_KERNEL_H
#define PIPELINE_CODEC_PACKED_PACKED_CUDA_KERNEL_H

#include <string.h>

#include <type_traits>

#include "pipeline/codec/cuda_grid.h"

#define MM_HD __device__ __forceinline__

#include "pipeline/codec/block/half_value.h"
#include "pipeline/codec/packed/packed_cuda.h"

namespace {

constexpr unsigned WARP = 32, ALL = 0xffffffff, THREADS = FAT_THREADS /* at most */;

/* The grid for `groups` groups of `threads` threads, each of which processes `values` values. */
inline cudaError_t packed_grid(int64_t groups, unsigned threads, unsigned values, int sms, codec_grid *grid_out) {
    grid_request request = {};
    request.threads = (uint64_t)groups * threads;
    request.thread_bytes = values * (unsigned)sizeof(float);
    request.sms = sms;
    request.fat_threads = THREADS;
    return grid_of(request, grid_out);
}

/* The widest vector (of two or four floats) whose number of floats divides N. */
template <int N> struct floats;
template <> struct floats<2> { using type = float2; };
template <> struct floats<4> { using type = float4; };
template <int N> struct together { static constexpr int value = N % 4 == 0 ? 4 : 2; };

/* The widest vector of 16-bit elements (8, 4 or 2) whose number divides N. */
template <int N> struct halves_together {
    static constexpr int value = N % 8 == 0 ? 8 : N % 4 == 0 ? 4 : 2;
    using type = typename std::conditional<value == 8, uint4,
                                           typename std::conditional<value == 4, uint2, uint32_t>::type>::type;
};

__device__ __forceinline__ float elem_load(const float *__restrict__ src, mm_dtype type, int64_t at) {
    if (type == MM_F32) return src[at];
    return __uint_as_float(mm_half_widen(reinterpret_cast<const uint16_t *>(src)[at], type));
}

__device__ __forceinline__ void elem_store(float value, mm_dtype type, int64_t at, float *__restrict__ dst) {
    if (type == MM_F32)
        dst[at] = value;
    else
        reinterpret_cast<uint16_t *>(dst)[at] = (uint16_t)mm_half_narrow(__float_as_uint(value), type);
}

/* Loads N elements as floats, from element `at` (a multiple of N) on; zeros beyond the last of `elems`. */
template <int N>
__device__ __forceinline__ void load(const float *__restrict__ src, mm_dtype type, int64_t elems, int64_t at,
                                     float *values) {
    if (type != MM_F32 && at + N <= elems) {
        using vector = typename halves_together<N>::type;
        uint16_t halves[N];
#pragma unroll
        for (int i = 0; i < N; i += halves_together<N>::value) {
            const vector v = *reinterpret_cast<const vector *>(reinterpret_cast<const uint16_t *>(src) + at + i);
            memcpy(halves + i, &v, sizeof v);
        }
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = __uint_as_float(mm_half_widen(halves[i], type));
        return;
    }
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
    for (int i = 0; i < N; i++) values[i] = at + i < elems ? elem_load(src, type, at + i) : 0.0f;
}

/* Converts N floats to the elements' type and stores them from element `at` (a multiple of N) on; nothing beyond the
 * last of `elems`. */
template <int N>
__device__ __forceinline__ void store(const float *values, mm_dtype type, int64_t elems, int64_t at,
                                      float *__restrict__ dst) {
    if (type != MM_F32 && at + N <= elems) {
        using vector = typename halves_together<N>::type;
        uint16_t halves[N];
#pragma unroll
        for (int i = 0; i < N; i++) halves[i] = (uint16_t)mm_half_narrow(__float_as_uint(values[i]), type);
#pragma unroll
        for (int i = 0; i < N; i += halves_together<N>::value) {
            vector v;
            memcpy(&v, halves + i, sizeof v);
            *reinterpret_cast<vector *>(reinterpret_cast<uint16_t *>(dst) + at + i) = v;
        }
        return;
    }
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
        if (at + i < elems) elem_store(values[i], type, at + i, dst);
}

} // namespace

#endif

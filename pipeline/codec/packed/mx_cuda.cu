// SPDX-License-Identifier: MIT
/* mx on CUDA: a warp processes one group at a time, a thread one unit of 8 elements; four threads share a block. */
#include <string.h>

#include "pipeline/codec/packed/packed_cuda_kernel.h"

#include "pipeline/codec/packed/mx_block.h"

namespace {

constexpr int BLOCK_THREADS = MM_MX_BLOCK / MM_MX_UNIT;
static_assert(MM_MX_UNITS == WARP, "one unit for each thread");

/* A format as a compile-time constant. */
template <int BITS, int MANTISSA, int LEAST, int MOST, uint32_t TOP, bool INTEGER> struct element {
    static constexpr int bits = BITS;
    static __device__ __forceinline__ mm_mx_element get() { return {BITS, MANTISSA, LEAST, MOST, TOP, INTEGER}; }
};

/* Stores a unit of BITS bytes, aligned to the largest power of two that divides BITS. */
template <int BITS> __device__ __forceinline__ void unit_store(uint64_t unit, uint8_t *at);
template <> __device__ __forceinline__ void unit_store<8>(uint64_t unit, uint8_t *at) {
    *reinterpret_cast<uint2 *>(at) = make_uint2((uint32_t)unit, (uint32_t)(unit >> 32));
}
template <> __device__ __forceinline__ void unit_store<6>(uint64_t unit, uint8_t *at) {
#pragma unroll
    for (int i = 0; i < 3; i++) reinterpret_cast<uint16_t *>(at)[i] = (uint16_t)(unit >> 16 * i);
}
template <> __device__ __forceinline__ void unit_store<4>(uint64_t unit, uint8_t *at) {
    *reinterpret_cast<uint32_t *>(at) = (uint32_t)unit;
}

template <int BITS> __device__ __forceinline__ uint64_t unit_load(const uint8_t *at);
template <> __device__ __forceinline__ uint64_t unit_load<8>(const uint8_t *at) {
    const uint2 words = *reinterpret_cast<const uint2 *>(at);
    return words.x | (uint64_t)words.y << 32;
}
template <> __device__ __forceinline__ uint64_t unit_load<6>(const uint8_t *at) {
    uint64_t unit = 0;
#pragma unroll
    for (int i = 0; i < 3; i++) unit |= (uint64_t) reinterpret_cast<const uint16_t *>(at)[i] << 16 * i;
    return unit;
}
template <> __device__ __forceinline__ uint64_t unit_load<4>(const uint8_t *at) {
    return *reinterpret_cast<const uint32_t *>(at);
}

template <typename ELEMENT>
__global__ void __launch_bounds__(THREADS) encode(mm_dtype type, int64_t elems, const float *__restrict__ src,
                                                  uint8_t *__restrict__ dst, unsigned long long *nonfinite) {
    const mm_mx_element f = ELEMENT::get();
    const int64_t groups = (elems + MM_MX_GROUP - 1) / MM_MX_GROUP, step = (int64_t)gridDim.x * (blockDim.x / WARP);
    const unsigned lane = threadIdx.x % WARP;
    for (int64_t g = (int64_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP; g < groups; g += step) {
        float values[MM_MX_UNIT];
        load<MM_MX_UNIT>(src, type, elems, g * MM_MX_GROUP + lane * MM_MX_UNIT, values);
        uint32_t largest = 0;
#pragma unroll
        for (int i = 0; i < MM_MX_UNIT; i++) largest = max(largest, __float_as_uint(values[i]) & 0x7fffffff);
#pragma unroll
        for (int with = 1; with < BLOCK_THREADS; with *= 2) largest = max(largest, __shfl_xor_sync(ALL, largest, with));

        const uint32_t scale = mm_mx_scale(largest, f), kept = scale == MM_MX_SCALE_NAN ? 0 : 0xffffffff;
        const unsigned others = __ballot_sync(ALL, scale == MM_MX_SCALE_NAN && lane % BLOCK_THREADS == 0);
        if (others && lane == 0 && nonfinite) atomicAdd_system(nonfinite, (unsigned long long)__popc(others));

        const float inverse = mm_mx_inverse(scale);
        uint64_t unit = 0;
#pragma unroll
        for (int i = 0; i < MM_MX_UNIT; i++)
            unit |= (uint64_t)mm_mx_encode(__float_as_uint(values[i]) & kept, inverse, f) << 8 * i;
        uint8_t *const group = dst + g * MM_MX_GROUP_BYTES(ELEMENT::bits);
        if (lane % BLOCK_THREADS == 0) group[lane / BLOCK_THREADS] = (uint8_t)scale;
        unit_store<ELEMENT::bits>(mm_mx_squeeze(unit, ELEMENT::bits),
                                  group + MM_MX_GROUP_BLOCKS + lane * ELEMENT::bits);
    }
}

template <typename ELEMENT>
__global__ void __launch_bounds__(THREADS)
    decode(mm_dtype type, int64_t elems, const uint8_t *__restrict__ src, float *__restrict__ dst) {
    const mm_mx_element f = ELEMENT::get();
    const int64_t units = (elems + MM_MX_UNIT - 1) / MM_MX_UNIT, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t u = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; u < units; u += step) {
        const unsigned at = (unsigned)(u % MM_MX_UNITS);
        const uint8_t *const group = src + u / MM_MX_UNITS * MM_MX_GROUP_BYTES(ELEMENT::bits);
        const uint32_t scale = group[at / BLOCK_THREADS];
        const uint64_t unit =
            mm_mx_spread(unit_load<ELEMENT::bits>(group + MM_MX_GROUP_BLOCKS + at * ELEMENT::bits), ELEMENT::bits);
        const bool is_nan = scale == MM_MX_SCALE_NAN;
        const float power = is_nan ? 0 : mm_mx_power(scale);
        float values[MM_MX_UNIT];
#pragma unroll
        for (int i = 0; i < MM_MX_UNIT; i++)
            values[i] = __uint_as_float(mm_mx_decode((uint32_t)(unit >> 8 * i) & 0xff, power, is_nan, f));
        store<MM_MX_UNIT>(values, type, elems, u * MM_MX_UNIT, dst);
    }
}

template <typename ELEMENT>
cudaError_t launch(cudaStream_t stream, int sms, mm_dtype type, int64_t elems, const float *map, void *code,
                   const void *coded, float *dst, unsigned long long *nonfinite) {
    codec_grid grid;
    const cudaError_t error = packed_grid((elems + MM_MX_GROUP - 1) / MM_MX_GROUP, WARP, MM_MX_UNIT, sms, &grid);
    if (error != cudaSuccess) return error;
    if (map)
        MM_LAUNCH(encode<ELEMENT>, grid.blocks, grid.threads, 0, stream, type, elems, map, (uint8_t *)code, nonfinite);
    else
        MM_LAUNCH(decode<ELEMENT>, grid.blocks, grid.threads, 0, stream, type, elems, (const uint8_t *)coded, dst);
    return cudaGetLastError();
}

/* Formats are in the order of MM_MX_FORMATS. Encode: `map` and `code` are set; decode: `coded` and `dst`. */
cudaError_t run(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems, const float *map, void *code,
                const void *coded, float *dst, unsigned long long *nonfinite) {
    int i = 0;
#define LAUNCH(name, ...)                                                                                              \
    if (format == i++) return launch<element<__VA_ARGS__>>(stream, sms, type, elems, map, code, coded, dst, nonfinite);
    MM_MX_FORMATS(LAUNCH)
#undef LAUNCH
    return cudaErrorInvalidValue;
}

} // namespace

extern "C" cudaError_t mm_mx_cuda_encode(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems,
                                         const void *src, void *dst, const mm_packed_draw *,
                                         unsigned long long *nonfinite) {
    return run(stream, format, sms, type, elems, (const float *)src, dst, nullptr, nullptr, nonfinite);
}

extern "C" cudaError_t mm_mx_cuda_decode(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems,
                                         const void *src, void *dst) {
    return run(stream, format, sms, type, elems, nullptr, nullptr, src, (float *)dst, nullptr);
}

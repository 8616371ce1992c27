// SPDX-License-Identifier: MIT
/* group on CUDA: a warp processes one group at a time, a thread one lane of it. */
#define MM_PHILOX_FUNCTION static __device__ __forceinline__

#include "pipeline/codec/packed/packed_cuda_kernel.h"

#include "mm/core/philox.h"
#include "pipeline/codec/packed/group_code.h"

namespace {

static_assert(MM_GROUP_LANES == WARP, "one lane for each thread");

/* A lane's code: 16 bits, one word, or two words. */
template <int BITS> struct lane_code {
    static constexpr int WORDS = BITS == 8 ? 2 : 1;
    using word = uint32_t;
};
template <> struct lane_code<2> {
    static constexpr int WORDS = 1;
    using word = uint16_t;
};

__host__ __device__ constexpr int64_t pack_bytes(int bits) { return MM_GROUP_HEADS + 2 * MM_GROUP_BYTES(bits); }

template <int BITS>
__global__ void __launch_bounds__(THREADS)
    encode(mm_dtype type, int64_t elems, const float *__restrict__ src, uint8_t *__restrict__ dst, mm_packed_draw from,
           unsigned long long *nonfinite) {
    constexpr uint32_t LEVELS = (1u << BITS) - 1;
    constexpr int PER_WORD = MM_GROUP_EACH / lane_code<BITS>::WORDS;
    const int64_t groups = (elems + MM_GROUP_PACK - 1) / MM_GROUP_PACK * 2;
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / WARP);
    const uint64_t iteration = from.iteration ? (uint64_t)*from.iteration : 0;
    const unsigned lane = threadIdx.x % WARP;
    for (int64_t g = (int64_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP; g < groups; g += step) {
        uint32_t values[MM_GROUP_EACH];
        int32_t least = INT32_MAX, most = INT32_MIN;
#pragma unroll
        for (int k = 0; k < MM_GROUP_EACH; k++) {
            const int64_t at = g * MM_GROUP + k * WARP + lane;
            values[k] = __float_as_uint(elem_load(src, type, at < elems ? at : elems - 1));
            least = min(least, mm_group_place(values[k]));
            most = max(most, mm_group_place(values[k]));
        }
#pragma unroll
        for (int with = 1; with < MM_GROUP_LANES; with *= 2) {
            least = min(least, __shfl_xor_sync(ALL, least, with));
            most = max(most, __shfl_xor_sync(ALL, most, with));
        }
        const mm_group_head head = mm_group_head_of(least, most, LEVELS);
        uint8_t *const pack = dst + g / 2 * pack_bytes(BITS);
        if (lane == 0) {
            reinterpret_cast<uint32_t *>(pack)[g % 2] = head.halves;
            if (!head.kept && nonfinite) atomicAdd_system(nonfinite, 1ull);
        }

        const uint64_t at = ((uint64_t)from.first / MM_GROUP + g) * WARP + lane;
        const uint32_t key[2] = {from.seed, from.tensor};
        const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), (uint32_t)iteration,
                                     (uint32_t)(iteration >> 32)};
        uint32_t random[4];
        mm_philox(key, counter, random);
        auto *const codes =
            reinterpret_cast<typename lane_code<BITS>::word *>(pack + MM_GROUP_HEADS + g % 2 * MM_GROUP_BYTES(BITS));
#pragma unroll
        for (int w = 0; w < lane_code<BITS>::WORDS; w++) {
            uint32_t code = 0;
#pragma unroll
            for (int i = 0; i < PER_WORD; i++) {
                const int k = w * PER_WORD + i;
                code |= mm_group_level(values[k], head, random[k / 2] >> k % 2 * 16 & 0xffff, LEVELS) << i * BITS;
            }
            codes[w * WARP + lane] = (typename lane_code<BITS>::word)code;
        }
    }
}

template <int BITS>
__global__ void __launch_bounds__(THREADS)
    decode(mm_dtype type, int64_t elems, const uint8_t *__restrict__ src, float *__restrict__ dst) {
    constexpr int PER_WORD = MM_GROUP_EACH / lane_code<BITS>::WORDS;
    const int64_t groups = (elems + MM_GROUP - 1) / MM_GROUP, step = (int64_t)gridDim.x * (blockDim.x / WARP);
    const unsigned lane = threadIdx.x % WARP;
    for (int64_t g = (int64_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP; g < groups; g += step) {
        const uint8_t *const pack = src + g / 2 * pack_bytes(BITS);
        const uint32_t halves = reinterpret_cast<const uint32_t *>(pack)[g % 2], number = mm_group_number(halves);
        const float scale = mm_group_half_float(halves & 0x7fff), minimum = mm_group_half_float(halves >> 16);
        const auto *const codes = reinterpret_cast<const typename lane_code<BITS>::word *>(
            pack + MM_GROUP_HEADS + g % 2 * MM_GROUP_BYTES(BITS));
#pragma unroll
        for (int k = 0; k < MM_GROUP_EACH; k++) {
            const int64_t at = g * MM_GROUP + k * WARP + lane;
            const uint32_t code = codes[k / PER_WORD * WARP + lane];
            const uint32_t level = code >> k % PER_WORD * BITS & ((1u << BITS) - 1);
            if (at < elems) elem_store(__uint_as_float(mm_group_value(level, minimum, scale, number)), type, at, dst);
        }
    }
}

template <int BITS>
cudaError_t launch(cudaStream_t stream, int sms, mm_dtype type, int64_t elems, const float *map, void *code,
                   const void *coded, float *dst, const mm_packed_draw *from, unsigned long long *nonfinite) {
    codec_grid grid;
    const cudaError_t error =
        packed_grid((elems + MM_GROUP_PACK - 1) / MM_GROUP_PACK * 2, WARP, MM_GROUP_EACH, sms, &grid);
    if (error != cudaSuccess) return error;
    if (map)
        MM_LAUNCH(encode<BITS>, grid.blocks, grid.threads, 0, stream, type, elems, map, (uint8_t *)code, *from,
                  nonfinite);
    else
        MM_LAUNCH(decode<BITS>, grid.blocks, grid.threads, 0, stream, type, elems, (const uint8_t *)coded, dst);
    return cudaGetLastError();
}

/* Formats are in the order of MM_GROUP_FORMATS. Encode: `map` and `code` are set; decode: `coded` and `dst`. */
cudaError_t run(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems, const float *map, void *code,
                const void *coded, float *dst, const mm_packed_draw *from, unsigned long long *nonfinite) {
    int i = 0;
#define LAUNCH(bits)                                                                                                   \
    if (format == i++) return launch<bits>(stream, sms, type, elems, map, code, coded, dst, from, nonfinite);
    MM_GROUP_FORMATS(LAUNCH)
#undef LAUNCH
    return cudaErrorInvalidValue;
}

} // namespace

extern "C" cudaError_t mm_group_cuda_encode(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems,
                                            const void *src, void *dst, const mm_packed_draw *draw,
                                            unsigned long long *nonfinite) {
    return run(stream, format, sms, type, elems, (const float *)src, dst, nullptr, nullptr, draw, nonfinite);
}

extern "C" cudaError_t mm_group_cuda_decode(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems,
                                            const void *src, void *dst) {
    return run(stream, format, sms, type, elems, nullptr, nullptr, src, (float *)dst, nullptr, nullptr);
}

// SPDX-License-Identifier: MIT
/* dpr on CUDA: a thread processes one group (two words) at a time. */
#include <string.h>

#include "pipeline/codec/packed/packed_cuda_kernel.h"

#include "pipeline/codec/block/dpr_value.h"

namespace {

template <int EXPONENT, int MANTISSA, int PER_WORD>
__global__ void __launch_bounds__(THREADS)
    encode(mm_dtype type, int64_t elems, const float *__restrict__ src, uint2 *__restrict__ dst) {
    constexpr int GROUP = 2 * PER_WORD, BITS = 1 + EXPONENT + MANTISSA;
    const int64_t groups = (elems + GROUP - 1) / GROUP, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t g = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; g < groups; g += step) {
        float values[GROUP];
        load<GROUP>(src, type, elems, g * GROUP, values);
        uint32_t words[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < GROUP; i++)
            words[i / PER_WORD] |= mm_dpr_encode(__float_as_uint(values[i]), EXPONENT, MANTISSA) << i % PER_WORD * BITS;
        dst[g] = make_uint2(words[0], words[1]);
    }
}

template <int EXPONENT, int MANTISSA, int PER_WORD>
__global__ void __launch_bounds__(THREADS)
    decode(mm_dtype type, int64_t elems, const uint2 *__restrict__ src, float *__restrict__ dst) {
    constexpr int GROUP = 2 * PER_WORD, BITS = 1 + EXPONENT + MANTISSA;
    const int64_t groups = (elems + GROUP - 1) / GROUP, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t g = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; g < groups; g += step) {
        const uint2 code = src[g];
        float values[GROUP];
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            const uint32_t word = i < PER_WORD ? code.x : code.y;
            values[i] = __uint_as_float(mm_dpr_decode(word >> i % PER_WORD * BITS, EXPONENT, MANTISSA));
        }
        store<GROUP>(values, type, elems, g * GROUP, dst);
    }
}

template <int EXPONENT, int MANTISSA, int PER_WORD>
cudaError_t launch(cudaStream_t stream, int sms, mm_dtype type, int64_t elems, const float *map, void *code,
                   const void *coded, float *dst) {
    codec_grid grid;
    const cudaError_t error = packed_grid((elems + 2 * PER_WORD - 1) / (2 * PER_WORD), 1, 2 * PER_WORD, sms, &grid);
    if (error != cudaSuccess) return error;
    if (map)
        MM_LAUNCH((encode<EXPONENT, MANTISSA, PER_WORD>), grid.blocks, grid.threads, 0, stream, type, elems, map,
                  (uint2 *)code);
    else
        MM_LAUNCH((decode<EXPONENT, MANTISSA, PER_WORD>), grid.blocks, grid.threads, 0, stream, type, elems,
                  (const uint2 *)coded, dst);
    return cudaGetLastError();
}

/* Formats are in the order of MM_DPR_FORMATS. Encode: `map` and `code` are set; decode: `coded` and `dst`. */
cudaError_t run(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems, const float *map, void *code,
                const void *coded, float *dst) {
    int i = 0;
#define LAUNCH(name, exponent, mantissa, per_word)                                                                     \
    if (format == i++) return launch<exponent, mantissa, per_word>(stream, sms, type, elems, map, code, coded, dst);
    MM_DPR_FORMATS(LAUNCH)
#undef LAUNCH
    return cudaErrorInvalidValue;
}

} // namespace

extern "C" cudaError_t mm_dpr_cuda_encode(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems,
                                          const void *src, void *dst, const mm_packed_draw *, unsigned long long *) {
    return run(stream, format, sms, type, elems, (const float *)src, dst, nullptr, nullptr);
}

extern "C" cudaError_t mm_dpr_cuda_decode(cudaStream_t stream, int format, int sms, mm_dtype type, int64_t elems,
                                          const void *src, void *dst) {
    return run(stream, format, sms, type, elems, nullptr, nullptr, src, (float *)dst);
}

// SPDX-License-Identifier: MIT
/* zfp's encode on CUDA. zfp_cuda_kernel.h says how the work is divided. */
#include "pipeline/codec/zfp/zfp_cuda_kernel.h"

namespace {

/* Stores the codes of a warp from shared memory: each lane writes every WARP-th word of the warp's. from: where the
 * lane's first word lies. */
MM_HD void staged_store(const mm_zfp_work &work, const uint32_t *staged, uint64_t first_block, uint32_t lane,
                        word_place from, uint32_t *dst) {
    const uint32_t maxbits = (uint32_t)work.maxbits;
    uint64_t first_word;
    const uint32_t count = warp_words(work, first_block, &first_word);
    __syncwarp();
    for (uint32_t j = lane; j < count; j += WARP) {
        dst[first_word + j] = staged_word(staged, work.maxbits, from);
        from.block += work.step_code;
        from.bit += work.step_bit;
        if (from.bit >= maxbits) from.bit -= maxbits, from.block++;
    }
    __syncwarp();
}

/* ---------------------------------------------------------------- the kernel */

/* WORDS: words of a code; 0: any number, in shared memory, where a code shorter than one word lies, too. MAXBITS 0:
 * work.maxbits. */
template <int DIMS, int WORDS, int MAXBITS>
__global__ void __launch_bounds__(most_threads(DIMS), 1)
    encode(mm_zfp_work work, const float *__restrict__ src, uint32_t *__restrict__ dst, unsigned long long *nonfinite) {
    MM_DYNAMIC_SHARED(uint32_t, shared);
    tables_make_doubled(WORDS > 0, threadIdx.x, blockDim.x);
    const uint32_t lane = threadIdx.x % WARP;
    const int maxbits = MAXBITS ? MAXBITS : work.maxbits, stride = staged_stride(maxbits);
    uint32_t *const staged = shared + threadIdx.x / WARP * WARP * stride;
    const word_place first_place = word_place_of(lane, maxbits);

    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + (threadIdx.x - lane);
    place at = place_of(work, first + lane);
    for (; first < work.blocks; first += (uint64_t)gridDim.x * blockDim.x, place_advance<DIMS>(work, at)) {
        const bool mine = first + lane < work.blocks;
        float values[MM_ZFP_MOST_VALUES];
        if (!mine) at.first = 0;    /* reads any values, and writes the zeros that pad the code */
        if (DIMS < 3 && work.whole) /* with 64 values there are no registers left for two variants */
            values_load<DIMS, true>(work, at, src, values);
        else
            values_load<DIMS, false>(work, at, src, values);

        const int exponent = exponent_of<DIMS>(values), e = mine ? exponent : 0;
        const bool finite = e != MM_ZFP_NONFINITE;
        const unsigned others = __ballot_sync(ALL, !finite);
        if (others && lane == 0 && nonfinite) atomicAdd_system(nonfinite, (unsigned long long)__popc(others));

        if constexpr (WORDS > 0) {
            uint32_t words[WORDS];
            block_encode<DIMS, WORDS>(values, e, maxbits, words);
            if (MAXBITS % 32 == 0 && work.words) {
                if ((first + lane) * WORDS < work.code_words) words_store<WORDS>(words, first + lane, dst);
            } else if constexpr (WORDS > 1) {
                uint64_t first_word;
                const uint32_t count = warp_words(work, first, &first_word);
                words_store_shifted<WORDS>(maxbits, words, count, lane, dst + first_word);
            } else {
                staged[lane * stride] = words[0];
            }
        } else if (finite) {
            mm_zfp_block_encode(values, DIMS, e, maxbits, staged + lane * stride);
        } else {
            constexpr int CLASS_WORDS = (1 + (2 << 2 * DIMS) + 31) / 32;
            MM_UNROLL for (int j = 0; j < CLASS_WORDS; j++) {
                if (j < words_of(maxbits)) staged[lane * stride + j] = mm_zfp_nonfinite_word(values, DIMS, maxbits, j);
            }
            for (int j = CLASS_WORDS; j < words_of(maxbits); j++) staged[lane * stride + j] = 0;
        }
        if (WORDS < 2 && !work.words)
            staged_store(work, staged, first, lane, DIMS == 3 ? word_place_of(MM_CONSTANT(lane), maxbits) : first_place,
                         dst);
    }
}

template <int DIMS, int WORDS, int MAXBITS = 0>
cudaError_t launch(cudaStream_t stream, mm_zfp_work work, const float *src, uint32_t *dst,
                   unsigned long long *nonfinite) {
    place_values(src, &work);
    work.words = WORDS > 0 && takes_words(work, dst);
    const size_t warp_bytes = work.words || WORDS > 1 ? 0 : 4 * WARP * (size_t)staged_stride(work.maxbits);
    const grid_request request = request_of(work, warp_bytes);
    codec_grid grid;
    cudaError_t error = grid_of(request, &grid);
    if (error == cudaSuccess) error = ask_for_shared(encode<DIMS, WORDS, MAXBITS>, request, grid);
    if (error != cudaSuccess) return error;
    place_steps(grid, &work);
    MM_LAUNCH((encode<DIMS, WORDS, MAXBITS>), grid.blocks, grid.threads, grid.shared_bytes, stream, work, src, dst,
              nonfinite);
    return cudaGetLastError();
}

} // namespace

extern "C" cudaError_t mm_zfp_cuda_encode(cudaStream_t stream, mm_zfp_work work, const float *src, uint32_t *dst,
                                          unsigned long long *nonfinite) {
    const auto by = MM_ZFP_LAUNCH_OF(work.dims, work.maxbits, launch);
    return by(stream, work, src, dst, nonfinite);
}

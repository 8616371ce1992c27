// SPDX-License-Identifier: MIT
/* zfp's decode on CUDA. zfp_cuda_kernel.h says how the work is divided. */
#include "pipeline/codec/zfp/zfp_cuda_kernel.h"

namespace {

/* Reads COUNT words from bit `start` on; zeros past maxbits. Reads at most one word past the code's last bit. */
template <int COUNT> MM_HD void words_peek(const uint32_t *shared, int start, int maxbits, uint32_t *words) {
    MM_UNROLL for (int j = 0; j < COUNT; j++) {
        const int left = maxbits - 32 * j;
        words[j] = left > 0 ? mm_zfp_peek(shared + j, start) & (left < 32 ? mm_zfp_ones(left) : UINT32_MAX) : 0;
    }
}

/* ---------------------------------------------------------------- the kernel */

/* WORDS: words of a code; 0: any number, in shared memory. MAXBITS 0: work.maxbits. */
template <int DIMS, int WORDS, int MAXBITS>
__global__ void __launch_bounds__(most_threads(DIMS), 1)
    decode(mm_zfp_work work, const uint32_t *__restrict__ src, float *__restrict__ dst) {
    MM_DYNAMIC_SHARED(uint32_t, shared);
    tables_make_undouble(threadIdx.x, blockDim.x);
    const uint32_t lane = threadIdx.x % WARP;
    const int maxbits = MAXBITS ? MAXBITS : work.maxbits, start = (int)lane * maxbits;
    uint32_t *const warps = shared + threadIdx.x / WARP * (maxbits + WINDOW_WORDS);

    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + (threadIdx.x - lane);
    place at = place_of(work, first + lane);
    for (; first < work.blocks; first += (uint64_t)gridDim.x * blockDim.x, place_advance<DIMS>(work, at)) {
        const bool mine = first + lane < work.blocks;
        if (WORDS < 2 && !work.words) {
            uint64_t first_word;
            const uint32_t count = warp_words(work, first, &first_word), most = (uint32_t)maxbits + WINDOW_WORDS;
            __syncwarp();
            for (uint32_t j = lane; j < most; j += WARP) warps[j] = j < count ? src[first_word + j] : 0;
            __syncwarp();
        }
        if (!mine) continue;

        float values[MM_ZFP_MOST_VALUES];
        if constexpr (WORDS > 0) {
            uint32_t words[WORDS + class_words<DIMS>];
            MM_UNROLL for (int j = 0; j < class_words<DIMS>; j++) words[WORDS + j] = 0;
            if (MAXBITS % 32 == 0 && work.words) {
                words_load<WORDS>(src, first + lane, words);
            } else if (WORDS > 1) {
                uint64_t first_word;
                const uint32_t count = warp_words(work, first, &first_word);
                words_load_shifted<WORDS>(maxbits, src + first_word, count, lane, words);
            } else {
                words_peek<WORDS>(warps, start, maxbits, words);
            }
            block_decode<DIMS, WORDS>(words, maxbits, values);
        } else {
            uint32_t classes[class_words<DIMS>];
            words_peek<class_words<DIMS>>(warps, start, maxbits, classes);
            if (mm_zfp_is_nonfinite(classes, DIMS))
                mm_zfp_nonfinite_decode(classes, DIMS, maxbits, values);
            else
                mm_zfp_block_decode(warps, start, DIMS, maxbits, values);
        }
        if (work.whole)
            values_store<DIMS, true>(work, at, values, dst);
        else
            values_store<DIMS, false>(work, at, values, dst);
    }
}

template <int DIMS, int WORDS, int MAXBITS = 0>
cudaError_t launch(cudaStream_t stream, mm_zfp_work work, const uint32_t *src, float *dst) {
    place_values(dst, &work);
    work.words = WORDS > 0 && takes_words(work, src);
    const size_t warp_bytes = work.words || WORDS > 1 ? 0 : 4 * ((size_t)work.maxbits + WINDOW_WORDS);
    const grid_request request = request_of(work, warp_bytes);
    codec_grid grid;
    cudaError_t error = grid_of(request, &grid);
    if (error == cudaSuccess) error = ask_for_shared(decode<DIMS, WORDS, MAXBITS>, request, grid);
    if (error != cudaSuccess) return error;
    place_steps(grid, &work);
    MM_LAUNCH((decode<DIMS, WORDS, MAXBITS>), grid.blocks, grid.threads, grid.shared_bytes, stream, work, src, dst);
    return cudaGetLastError();
}

} // namespace

extern "C" cudaError_t mm_zfp_cuda_decode(cudaStream_t stream, mm_zfp_work work, const uint32_t *src, float *dst) {
    const auto by = MM_ZFP_LAUNCH_OF(work.dims, work.maxbits, launch);
    return by(stream, work, src, dst);
}

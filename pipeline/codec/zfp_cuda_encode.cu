/* Encoding. zfp_cuda_kernel.h says how the work is divided. */
#include "pipeline/codec/zfp_cuda_kernel.h"

namespace {

/* ---------------------------------------------------------------- a code in registers */

/* A queue of at most `left` more bits. */
template <int WORDS> struct queue {
    uint32_t word[WORDS];
    int left;
};

/* The low `length` < 32 bits of `bits`, or as many as are left. */
template <int WORDS> MM_HD void queue_put(queue<WORDS> &q, uint32_t bits, int length) {
    length = length < q.left ? length : q.left;
    MM_UNROLL for (int j = 0; j < WORDS; j++) q.word[j] =
        __funnelshift_r(q.word[j], j + 1 < WORDS ? q.word[j + 1] : bits, (unsigned)length);
    q.left -= length;
}

/* Of a finite block: its maxbits bits, zeros above. */
template <int DIMS, int WORDS> MM_HD void encode_words(const float *values, int e, int maxbits, uint32_t *words) {
    queue<WORDS> q = {{}, maxbits};
    if (e) {
        uint32_t coefficients[16], planes[8], seen = 0;
        mm_zfp_coefficients(values, DIMS, e, coefficients);
        queue_put(q, 2 * (uint32_t)e + 1, MM_ZFP_HEADER_BITS);
        for (int half = 1; half >= 0 && q.left > 0; half--) {
            mm_zfp_planes(coefficients, DIMS, half, planes);
            MM_UNROLL for (int j = 15; j >= 0; j--) {
                int length;
                const uint32_t code = mm_zfp_plane_encode(mm_zfp_plane(planes, j), mm_zfp_values(DIMS), &seen, &length);
                queue_put(q, code, length);
                if (q.left <= 0) break;
            }
        }
    }
    while (q.left > 0) queue_put(q, 0, 31);
    MM_UNROLL for (int j = 0; j < WORDS; j++) words[j] =
        __funnelshift_r(q.word[j], j + 1 < WORDS ? q.word[j + 1] : 0, (unsigned)(32 * WORDS - maxbits));
}

template <int WORDS> MM_HD void words_store(const uint32_t *words, uint64_t block, uint32_t *dst) {
    if constexpr (WORDS == 1) dst[block] = words[0];
    if constexpr (WORDS == 2) reinterpret_cast<uint2 *>(dst)[block] = make_uint2(words[0], words[1]);
    if constexpr (WORDS == 3) {
        MM_UNROLL for (int j = 0; j < WORDS; j++) dst[WORDS * block + j] = words[j];
    }
    if constexpr (WORDS == 4)
        reinterpret_cast<uint4 *>(dst)[block] = make_uint4(words[0], words[1], words[2], words[3]);
}

/* ---------------------------------------------------------------- the kernel */

/* WORDS 0: as many as it takes, in shared memory. */
template <int DIMS, int WORDS>
__global__ void __launch_bounds__(MOST_THREADS, blocks_together<DIMS>())
    encode(mm_zfp_work work, const float *__restrict__ src, uint32_t *__restrict__ dst, unsigned long long *nonfinite) {
    MM_DYNAMIC_SHARED(uint32_t, shared);
    tables_make_doubled();
    const uint32_t lane = threadIdx.x % WARP;
    const int maxbits = work.maxbits, stride = staged_stride(maxbits);
    uint32_t *const staged = shared + threadIdx.x / WARP * WARP * stride;
    const word_place first_place = word_place_of(lane, maxbits), step = word_place_of(WARP, maxbits);

    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + (threadIdx.x - lane);
    place at = place_of(work, first + lane);
    for (; first < work.blocks; first += (uint64_t)gridDim.x * blockDim.x, place_advance<DIMS>(work, at)) {
        const bool mine = first + lane < work.blocks;
        float values[MM_ZFP_MOST_VALUES];
        MM_UNROLL for (int i = 0; i < mm_zfp_values(DIMS); i++) values[i] = 0;
        if (mine && work.whole) values_load<DIMS, true>(work, at, src, values);
        if (mine && !work.whole) values_load<DIMS, false>(work, at, src, values);

        const int e = mm_zfp_exponent(values, DIMS);
        const bool finite = e != MM_ZFP_NONFINITE;
        const unsigned others = __ballot_sync(ALL, !finite);
        if (others && lane == 0 && nonfinite) atomicAdd_system(nonfinite, (unsigned long long)__popc(others));

        if constexpr (WORDS > 0) {
            uint32_t words[WORDS];
            if (finite) {
                encode_words<DIMS, WORDS>(values, e, maxbits, words);
            } else {
                MM_UNROLL for (int j = 0; j < WORDS; j++) words[j] = mm_zfp_nonfinite_word(values, DIMS, maxbits, j);
            }
            if (work.words) {
                if ((first + lane) * WORDS < work.code_words) words_store<WORDS>(words, first + lane, dst);
                continue;
            }
            MM_UNROLL for (int j = 0; j < WORDS; j++) staged[lane * stride + j] = words[j];
        } else if (finite) {
            mm_zfp_block_encode(values, DIMS, e, maxbits, staged + lane * stride);
        } else {
            for (int j = 0; j < words_of(maxbits); j++)
                staged[lane * stride + j] = mm_zfp_nonfinite_word(values, DIMS, maxbits, j);
        }

        __syncwarp();
        uint64_t first_word;
        const uint32_t count = warp_words(work, first, &first_word);
        word_place from = first_place;
        for (uint32_t j = lane; j < count; j += WARP) {
            dst[first_word + j] = staged_word(staged, maxbits, from);
            from.block += step.block;
            from.bit += step.bit;
            if (from.bit >= (uint32_t)maxbits) from.bit -= (uint32_t)maxbits, from.block++;
        }
        __syncwarp();
    }
}

template <int DIMS, int WORDS>
cudaError_t launch(cudaStream_t stream, mm_zfp_work work, const float *src, uint32_t *dst,
                   unsigned long long *nonfinite) {
    shape_of_grid grid;
    place_values(src, &work);
    work.words = WORDS > 0 && takes_words(work, dst);
    const size_t warp_bytes = work.words ? 0 : 4 * WARP * (size_t)staged_stride(work.maxbits);
    const cudaError_t error = grid_of(blocks_together<DIMS>(), warp_bytes, &work, &grid);
    if (error != cudaSuccess) return error;
    MM_LAUNCH((encode<DIMS, WORDS>), grid.blocks, grid.threads, grid.shared_bytes, stream, work, src, dst, nonfinite);
    return cudaGetLastError();
}

} // namespace

extern "C" cudaError_t mm_zfp_cuda_encode(cudaStream_t stream, mm_zfp_work work, const float *src, uint32_t *dst,
                                          unsigned long long *nonfinite) {
    const int words = words_of(work.maxbits);
    const auto by = work.dims == 3   ? launch<3, 0>
                    : work.dims == 1 ? words == 1   ? launch<1, 1>
                                       : words == 2 ? launch<1, 2>
                                       : words == 3 ? launch<1, 3>
                                                    : launch<1, 4>
                    : words == 1 ? launch<2, 1>
                    : words == 2     ? launch<2, 2>
                    : words == 3     ? launch<2, 3>
                    : words == 4     ? launch<2, 4>
                                     : launch<2, 0>;
    return by(stream, work, src, dst, nonfinite);
}

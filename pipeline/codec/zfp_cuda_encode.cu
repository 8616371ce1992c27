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
            mm_zfp_halves(coefficients, DIMS, half, planes);
            mm_zfp_planes(DIMS, planes);
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
    if constexpr (WORDS == 4)
        reinterpret_cast<uint4 *>(dst)[block] = make_uint4(words[0], words[1], words[2], words[3]);
}

/* Of all lanes, to the words that are the warp's: each writes those that its bits begin. */
template <int WORDS>
MM_HD void words_store_shifted(const mm_zfp_work &work, const uint32_t *words, uint64_t first_block, uint32_t lane,
                               uint32_t *dst) {
    const code_place<WORDS> at(lane, work.maxbits);
    uint32_t shifted[WORDS + 1];
    MM_UNROLL for (int j = 0; j <= WORDS; j++) shifted[j] =
        __funnelshift_l(j > 0 ? words[j - 1] : 0, j < WORDS ? words[j] : 0, at.shift);
    const uint32_t next = __shfl_down_sync(ALL, shifted[0], 1), shared = at.shares_last ? next : 0;
    if (at.over)
        shifted[WORDS] |= shared;
    else
        shifted[WORDS - 1] |= shared;

    uint64_t first_word;
    const uint32_t count = warp_words(work, first_block, &first_word);
    uint32_t *const to = dst + first_word + at.word;
    MM_UNROLL for (int j = 0; j <= WORDS; j++) {
        if ((j == 0 && at.shift > 0) || (j == WORDS && !at.over)) continue;
        if (at.word + j < count) to[j] = shifted[j];
    }
    if (lane == WARP - 1 && count > (uint32_t)work.maxbits) dst[first_word + count - 1] = 0; /* pads */
}

/* Of all lanes, staged: each writes every WARP-th word of the warp's, from the place of its first on. */
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

/* WORDS 0: as many as it takes, in shared memory; so is the one of codes shorter than it. */
template <int DIMS, int WORDS>
__global__ void __launch_bounds__(most_threads(DIMS), 1)
    encode(mm_zfp_work work, const float *__restrict__ src, uint32_t *__restrict__ dst, unsigned long long *nonfinite) {
    MM_DYNAMIC_SHARED(uint32_t, shared);
    tables_make_doubled();
    const uint32_t lane = threadIdx.x % WARP;
    const int maxbits = work.maxbits, stride = staged_stride(maxbits);
    uint32_t *const staged = shared + threadIdx.x / WARP * WARP * stride;
    const word_place first_place = word_place_of(lane, maxbits);

    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + (threadIdx.x - lane);
    place at = place_of(work, first + lane);
    for (; first < work.blocks; first += (uint64_t)gridDim.x * blockDim.x, place_advance<DIMS>(work, at)) {
        const bool mine = first + lane < work.blocks;
        float values[MM_ZFP_MOST_VALUES];
        MM_UNROLL for (int i = 0; i < mm_zfp_values(DIMS); i++) values[i] = 0;
        const bool whole = DIMS < 3 && work.whole; /* with 64 values no registers are left for both */
        if (mine && whole) values_load<DIMS, true>(work, at, src, values);
        if (mine && !whole) values_load<DIMS, false>(work, at, src, values);

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
            } else if constexpr (WORDS > 1) {
                words_store_shifted<WORDS>(work, words, first, lane, dst);
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
        if (WORDS < 2 && !work.words) staged_store(work, staged, first, lane, first_place, dst);
    }
}

template <int DIMS, int WORDS>
cudaError_t launch(cudaStream_t stream, mm_zfp_work work, const float *src, uint32_t *dst,
                   unsigned long long *nonfinite) {
    place_values(src, &work);
    work.words = WORDS > 0 && takes_words(work, dst);
    const size_t warp_bytes = work.words || WORDS > 1 ? 0 : 4 * WARP * (size_t)staged_stride(work.maxbits);
    const grid_request request = request_of(work, warp_bytes);
    codec_grid grid;
    cudaError_t error = grid_of(request, &grid);
    if (error == cudaSuccess) error = ask_for_shared(encode<DIMS, WORDS>, request, grid);
    if (error != cudaSuccess) return error;
    place_steps(grid, &work);
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

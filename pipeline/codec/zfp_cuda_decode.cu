/* Decoding. zfp_cuda_kernel.h says how the work is divided. */
#include "pipeline/codec/zfp_cuda_kernel.h"

namespace {

/* ---------------------------------------------------------------- a code in registers */

/* As mm_zfp_plane_decode, in places of the plane rather than of its rest. *past: bits after the block's end, negative
 * before it; updated. */
template <int VALUES> MM_HD uint32_t plane_decode(uint32_t window, int *past, int *n, int *length_out) {
    const uint32_t verbatim = UINT32_MAX << *n;
    uint32_t code = window >> *n, part = MM_UNDOUBLE(code), rest = part << *n; /* and more beyond the plane's last */
    int behind = *n + mm_zfp_part_count(part);
    while (behind < VALUES - 1 - MM_ZFP_GOES_ON) {
        code = MM_SHIFT_RIGHT(code, part >> 16) | 1;
        part = MM_UNDOUBLE(code);
        rest |= MM_SHIFT_LEFT(part, behind);
        behind += mm_zfp_part_count(part) + MM_ZFP_GOES_ON;
    }
    rest &= mm_zfp_ones(VALUES - 1);
    const int next = mm_zfp_least(behind, VALUES), length = mm_zfp_least(behind, VALUES - 1) + MM_POPC32(rest) + 1;
    *past += length;
    const int cut = *past > 0 ? *past : 0;
    if (next == VALUES) rest |= UINT32_C(1) << (VALUES - 1) >> cut; /* the implied one; none if the rest is empty */
    *n = next;
    *length_out = length;
    return (window & ~verbatim) | (rest & verbatim);
}

/* Of any but those of mm_zfp_is_nonfinite; bits past maxbits are zero. The words are spent. Of a block of zeros, all of
 * whose words are 0, a plane is decoded, which is zero. */
template <int DIMS, int WORDS> MM_HD void decode_words(uint32_t *words, int maxbits, float *values) {
    uint32_t planes[2][8];
    const int e = (int)(words[0] >> 1 & 255);
    int past = words[0] & 1 ? MM_ZFP_HEADER_BITS - maxbits : -1, n = 0, length = MM_ZFP_HEADER_BITS;
    MM_UNROLL for (int half = 1; half >= 0; half--) {
        if (half == 0 && past >= 0) {
            mm_zfp_unplanes(DIMS, false, planes[half]);
            continue;
        }
        MM_UNROLL for (int i = 0; i < 8; i++) planes[half][i] = MM_CONSTANT(0);
        MM_UNROLL for (int j = 15; j >= 0; j--) {
            MM_UNROLL for (int i = 0; i < WORDS; i++) words[i] =
                __funnelshift_r(words[i], i + 1 < WORDS ? words[i + 1] : 0, (unsigned)length);
            const uint32_t plane = plane_decode<1 << 2 * DIMS>(words[0], &past, &n, &length);
            if (j >= 8)
                planes[half][j & 7] = plane;
            else
                planes[half][j & 7] += plane << 16;
            if (past >= 0) break;
        }
        mm_zfp_unplanes(DIMS, true, planes[half]);
    }
    mm_zfp_values_of(planes[0], planes[1], DIMS, e, values);
}

template <int WORDS> MM_HD void words_load(const uint32_t *src, uint64_t block, uint32_t *words) {
    if constexpr (WORDS == 1) words[0] = src[block];
    if constexpr (WORDS == 2) {
        const uint2 two = reinterpret_cast<const uint2 *>(src)[block];
        words[0] = two.x, words[1] = two.y;
    }
    if constexpr (WORDS == 4) {
        const uint4 four = reinterpret_cast<const uint4 *>(src)[block];
        words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    }
}

/* A lane's, of the words that are the warp's; zeros past maxbits. */
template <int WORDS>
MM_HD void words_load_shifted(const mm_zfp_work &work, int maxbits, const uint32_t *src, uint64_t first_block,
                              uint32_t lane, uint32_t *words) {
    const code_place<WORDS> at(lane, maxbits);
    uint64_t first_word;
    const uint32_t count = warp_words(work, first_block, &first_word);
    const uint32_t *const from = src + first_word + at.word;
    uint32_t loaded[WORDS + 1];
    MM_UNROLL for (int j = 0; j <= WORDS; j++) loaded[j] = at.word + j < count ? from[j] : 0;
    MM_UNROLL for (int j = 0; j < WORDS; j++) words[j] = __funnelshift_r(loaded[j], loaded[j + 1], at.shift);
    words[WORDS - 1] &= UINT32_MAX >> (32 * WORDS - maxbits);
}

/* `count` words from any bit on, zeros past maxbits; past the code's last bit, one word more is looked at, no other. */
template <int COUNT> MM_HD void words_peek(const uint32_t *shared, int start, int maxbits, uint32_t *words) {
    MM_UNROLL for (int j = 0; j < COUNT; j++) {
        const int left = maxbits - 32 * j;
        words[j] = left > 0 ? mm_zfp_peek(shared + j, start) & (left < 32 ? mm_zfp_ones(left) : UINT32_MAX) : 0;
    }
}

/* ---------------------------------------------------------------- the kernel */

/* As many words as classes take, and one more that may be looked at. */
template <int DIMS> constexpr int class_words = 2 * (1 << 2 * DIMS) / 32 + 2;

/* WORDS 0: as many as it takes, in shared memory. MAXBITS 0: work.maxbits. */
template <int DIMS, int WORDS, int MAXBITS>
__global__ void __launch_bounds__(most_threads(DIMS), 1)
    decode(mm_zfp_work work, const uint32_t *__restrict__ src, float *__restrict__ dst) {
    MM_DYNAMIC_SHARED(uint32_t, shared);
    tables_make_undouble();
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
            if (MAXBITS % 32 == 0 && work.words)
                words_load<WORDS>(src, first + lane, words);
            else if (WORDS > 1)
                words_load_shifted<WORDS>(work, maxbits, src, first, lane, words);
            else
                words_peek<WORDS>(warps, start, maxbits, words);
            if (mm_zfp_is_nonfinite(words, DIMS))
                mm_zfp_nonfinite_decode(words, DIMS, maxbits, values);
            else
                decode_words<DIMS, WORDS>(words, maxbits, values);
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

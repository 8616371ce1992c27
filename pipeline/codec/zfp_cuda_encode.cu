/* Encoding. zfp_cuda_kernel.h says how the work is divided. */
#include "pipeline/codec/zfp_cuda_kernel.h"

namespace {

/* ---------------------------------------------------------------- a code in registers */

template <int WORDS> struct queue {
    uint32_t word[WORDS];
    int left; /* how many bits more it takes */
};

/* The low `length` < 32 bits of `bits`, which are no more than are left. */
template <int WORDS> MM_HD void queue_put(queue<WORDS> &q, uint32_t bits, int length) {
    MM_UNROLL for (int j = 0; j < WORDS; j++) q.word[j] =
        __funnelshift_r(q.word[j], j + 1 < WORDS ? q.word[j + 1] : bits, (unsigned)length);
    q.left -= length;
}

/* What planes so far leave to the next. above: 32 less the length of `seen`. */
struct planes_state {
    uint32_t seen;
    int above;
};

/* The code of a plane, as mm_zfp_plane_encode has it; x may have another plane above. Its last bit is the inserted one,
 * not yet made zero, unless the last coefficient is significant: *last_out has a one at the upper end if it is. */
template <int VALUES>
MM_HD uint32_t plane_encode(uint32_t x, planes_state *state, int *length_out, uint32_t *last_out) {
    const uint32_t rest = MM_DROP(x & mm_zfp_ones(VALUES - 1), state->above);
    const uint32_t code = MM_SPLICE(x, doubled_ones_after_one(rest), state->above);
    state->seen |= x & mm_zfp_ones(VALUES);
    state->above = MM_ABOVE32(state->seen);
    *last_out = state->seen << (32 - VALUES);
    *length_out = 33 - state->above + MM_POPC32(rest) + ((int)*last_out >> 31);
    return code;
}

/* Of a finite block that is not all zeros, and has an exponent e: its bits, but for q->left ones, fewer than 32, that are
 * returned, or zeros.
 *
 * The plane that fills the queue is returned, that no other need look how much room is left. An inserted one is made
 * zero in the queue, where its place is known. The highest plane is zero in most blocks; its bit is put with the header.
 * In a warp whose blocks all have it so, nobody makes it. */
template <int DIMS, int WORDS> MM_HD uint32_t planes_put(const float *values, int e, queue<WORDS> *q) {
    constexpr int VALUES = 1 << 2 * DIMS;
    constexpr uint32_t TOP = UINT32_C(1) << 31;
    uint32_t coefficients[16], planes[8], last;
    planes_state state = {0, 32};
    int length;
    mm_zfp_coefficients(values, DIMS, e, coefficients);
    MM_UNROLL for (int half = 1; half >= 0; half--) {
        mm_zfp_halves(coefficients, DIMS, half, planes);
        mm_zfp_planes(DIMS, planes);
        MM_UNROLL for (int j = 1; j < 8; j += 2) planes[j] = MM_CONSTANT(planes[j]); /* flipped now, not at each use */
        const bool skips = half == 1 && q->left > MM_ZFP_HEADER_BITS && (planes[7] & 0xffff) == 0;
        if (half == 1) queue_put(*q, 2 * (uint32_t)e + 1, MM_ZFP_HEADER_BITS + skips);
        MM_UNROLL for (int j = 15; j >= 0; j--) {
            if (j == 15 && skips) continue;
            const uint32_t code =
                plane_encode<VALUES>(j >= 8 ? planes[j & 7] : planes[j & 7] >> 16, &state, &length, &last);
            if (length >= q->left) return code ^ (~last & TOP) >> (32 - length);
            queue_put(*q, code, length);
            q->word[WORDS - 1] ^= ~last & TOP;
        }
    }
    while (q->left > 31) queue_put(*q, 0, 31);
    return 0;
}

/* Of a finite block: its maxbits bits, zeros above. */
template <int DIMS, int WORDS> MM_HD void encode_words(const float *values, int e, int maxbits, uint32_t *words) {
    MM_UNROLL for (int j = 0; j < WORDS; j++) words[j] = 0;
    if (e == 0) return;
    queue<WORDS> q = {{}, maxbits};
    const uint32_t rest = planes_put<DIMS>(values, e, &q);
    queue_put(q, rest, q.left);
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
MM_HD void words_store_shifted(const mm_zfp_work &work, int maxbits, const uint32_t *words, uint64_t first_block,
                               uint32_t lane, uint32_t *dst) {
    const code_place<WORDS> at(lane, maxbits);
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

/* As mm_zfp_exponent, by the largest magnitude of the values, or a NaN. */
template <int DIMS> MM_HD int exponent_of(const float *values) {
    float top = 0;
    MM_UNROLL for (int i = 0; i < 1 << 2 * DIMS; i++) top = largest_or_nan(top, values[i]);
    const uint32_t bits = mm_float_bits(top);
    return (int)(bits >> 23) + (bits != 0);
}

/* WORDS 0: as many as it takes, in shared memory; so is the one of codes shorter than it. MAXBITS 0: work.maxbits. */
template <int DIMS, int WORDS, int MAXBITS>
__global__ void __launch_bounds__(most_threads(DIMS), 1)
    encode(mm_zfp_work work, const float *__restrict__ src, uint32_t *__restrict__ dst, unsigned long long *nonfinite) {
    MM_DYNAMIC_SHARED(uint32_t, shared);
    tables_make_doubled(WORDS > 0);
    const uint32_t lane = threadIdx.x % WARP;
    const int maxbits = MAXBITS ? MAXBITS : work.maxbits, stride = staged_stride(maxbits);
    uint32_t *const staged = shared + threadIdx.x / WARP * WARP * stride;
    const word_place first_place = word_place_of(lane, maxbits);

    uint64_t first = (uint64_t)blockIdx.x * blockDim.x + (threadIdx.x - lane);
    place at = place_of(work, first + lane);
    for (; first < work.blocks; first += (uint64_t)gridDim.x * blockDim.x, place_advance<DIMS>(work, at)) {
        const bool mine = first + lane < work.blocks;
        float values[MM_ZFP_MOST_VALUES];
        if (!mine) at.first = 0;    /* reads what there is, and writes the zeros that pad the code */
        if (DIMS < 3 && work.whole) /* with 64 values no registers are left for both */
            values_load<DIMS, true>(work, at, src, values);
        else
            values_load<DIMS, false>(work, at, src, values);

        const int exponent = exponent_of<DIMS>(values), e = mine ? exponent : 0;
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
            if (MAXBITS % 32 == 0 && work.words) {
                if ((first + lane) * WORDS < work.code_words) words_store<WORDS>(words, first + lane, dst);
            } else if constexpr (WORDS > 1) {
                words_store_shifted<WORDS>(work, maxbits, words, first, lane, dst);
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

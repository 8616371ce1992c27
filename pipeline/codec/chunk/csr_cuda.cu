// SPDX-License-Identifier: MIT
/* csr on CUDA (csr_chunk.h). */
#include "pipeline/codec/chunk/chunk_cuda_kernel.h"

#include "pipeline/codec/chunk/csr_chunk.h"

namespace {

constexpr int LANES_A_ROW = MM_CSR_ROW / WARP;

/* PER_WORD: values in a word; 0: unchanged. */
template <int EXPONENT, int MANTISSA, int PER_WORD> struct csr {
    static constexpr halves HALVES = PER_WORD == 0 ? halves::as_bits : halves::as_floats;
    static constexpr int BITS = 1 + EXPONENT + MANTISSA, EACH = PER_WORD > 0 ? PER_WORD : 1;

    __device__ explicit csr(const mm_chunk_work &) {}

    static __device__ __forceinline__ int head(const uint32_t *words, int n) { return mm_csr_head(words, n); }

    __device__ __forceinline__ int encode(uint32_t *values, int n, uint32_t *words, int lane) const {
        const uint32_t mine = mask_nonzeros(values, lane);
        const int end = sum_below(__popc(mine), lane) + __popc(mine), kept = __shfl_sync(ALL, end, WARP - 1);
        const int total = mm_csr_words(format(), kept);
        if (total >= n) return n;
        /* lane r (0 or 1) gets the ends of rows 2 r and 2 r + 1 */
        const int even = __shfl_sync(ALL, end, 2 * LANES_A_ROW * (lane % 2) + LANES_A_ROW - 1);
        const int odd = __shfl_sync(ALL, end, 2 * LANES_A_ROW * (lane % 2) + 2 * LANES_A_ROW - 1);
        if (lane < MM_CSR_HEAD_WORDS) words[lane] = (uint32_t)even | (uint32_t)odd << 16;
        uint8_t *const columns = (uint8_t *)(words + MM_CSR_HEAD_WORDS);
        uint32_t *const packed = words + MM_CSR_HEAD_WORDS + (kept + 3) / 4;
        if (lane < (4 - kept % 4) % 4) columns[kept + lane] = 0;
        if (PER_WORD > 0) {
            for (int i = lane; i < mm_csr_value_words(format(), kept); i += WARP) packed[i] = 0;
            __syncwarp();
        }
        pack_nonzeros(values, lane, [=](int rank, int i, uint32_t value) {
            columns[rank] = (uint8_t)(WARP * (i % LANES_A_ROW) + lane);
            if (PER_WORD > 0)
                atomicOr(&packed[rank / EACH], mm_dpr_encode(value, EXPONENT, MANTISSA) << rank % EACH * BITS);
            else
                packed[rank] = value;
        });
        return total;
    }

    __device__ __forceinline__ bool decode(uint32_t *words, int count, int n, uint32_t *values, int lane) const {
        if (count < MM_CSR_HEAD_WORDS) return false;
        const int ends[MM_CSR_ROWS] = {(int)(words[0] & 0xffff), (int)(words[0] >> 16), (int)(words[1] & 0xffff),
                                       (int)(words[1] >> 16)};
        const int kept = ends[MM_CSR_ROWS - 1];
        if (kept > n || mm_csr_words(format(), kept) != count || ends[0] > ends[1] || ends[1] > ends[2] ||
            ends[2] > kept)
            return false;
        const uint8_t *const columns = (const uint8_t *)(words + MM_CSR_HEAD_WORDS);
        const uint32_t *const packed = words + MM_CSR_HEAD_WORDS + (kept + 3) / 4;
        bool good = true;
        for (int k = lane; k < kept; k += WARP) {
            const int row = (k >= ends[0]) + (k >= ends[1]) + (k >= ends[2]);
            const bool is_first = k == (row == 0 ? 0 : row == 1 ? ends[0] : row == 2 ? ends[1] : ends[2]);
            good = good && row * MM_CSR_ROW + columns[k] < n && (is_first || columns[k - 1] < columns[k]);
        }
        if (!__all_sync(ALL, good)) return false;
        const int row = lane / LANES_A_ROW;
        const int from = row == 0 ? 0 : row == 1 ? ends[0] : row == 2 ? ends[1] : ends[2];
        const int to = row == 0 ? ends[0] : row == 1 ? ends[1] : row == 2 ? ends[2] : kept;
        unpack_nonzeros(mask_of(columns, from, to, WARP * (lane % LANES_A_ROW)), values, lane, [=](int rank) {
            if (PER_WORD == 0) return packed[rank];
            return mm_dpr_decode(packed[rank / EACH] >> rank % EACH * BITS, EXPONENT, MANTISSA);
        });
        return true;
    }

  private:
    static __device__ __forceinline__ mm_csr_values format() { return {EXPONENT, MANTISSA, PER_WORD}; }

    /* Mask of the columns `base` to base + 31 that are among columns[from] to columns[to - 1], which ascend. */
    static __device__ __forceinline__ uint32_t mask_of(const uint8_t *columns, int from, int to, int base) {
        for (int end = to; from < end;) { /* finds the first column that is `base` or above */
            const int middle = (from + end) / 2;
            if (columns[middle] < base)
                from = middle + 1;
            else
                end = middle;
        }
        uint32_t mask = 0;
        for (; from < to && columns[from] < base + WARP; from++) mask |= 1u << (columns[from] - base);
        return mask;
    }
};

} // namespace

/* In the order of mm_chunk_params.format: unchanged values, then the formats of dpr. */
#define RUN(direction)                                                                                                 \
    extern "C" cudaError_t mm_csr_cuda_##direction(cudaStream_t stream, const mm_chunk_work *work) {                   \
        int i = 0;                                                                                                     \
        if (work->format == i++) return launch_##direction<csr<0, 0, 0>>(stream, *work);                               \
        MM_DPR_FORMATS(RUN_##direction)                                                                                \
        return cudaErrorInvalidValue;                                                                                  \
    }
#define RUN_encode(name, ...)                                                                                          \
    if (work->format == i++) return launch_encode<csr<__VA_ARGS__>>(stream, *work);
#define RUN_decode(name, ...)                                                                                          \
    if (work->format == i++) return launch_decode<csr<__VA_ARGS__>>(stream, *work);
RUN(encode)
RUN(decode)

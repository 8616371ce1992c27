// SPDX-License-Identifier: MIT
/* exponent on CUDA (exponent_chunk.h). A warp's lanes are the format's lanes: values[i] is element i of the lane. */
#include "pipeline/codec/chunk/chunk_cuda_kernel.h"

#include "pipeline/codec/chunk/exponent_chunk.h"

namespace {

constexpr int BASES = MM_EXPONENTS, BITS_MOST = MM_EXPONENT_BITS_MOST;
static_assert(MM_EXPONENT_LANES == WARP, "a lane of the format is a lane of a warp");

/* WHOLE: bits of an element; REST: without its exponent. */
template <int WHOLE, int REST> struct exponent {
    static constexpr halves HALVES = halves::as_they_are;
    static constexpr uint32_t ALL_BITS = ~0u >> (32 - WHOLE), KEPT = (1u << REST) - 1;

    __device__ explicit exponent(const mm_chunk_work &) {}

    __device__ __forceinline__ int encode(uint32_t *values, int n, uint32_t *words, int lane) const {
        const mm_exponent_form form = choose_form(values, n, words, lane);
        const int total = mm_exponent_words(n, REST, form), raw = mm_chunk_raw_words(n, WHOLE == 16);
        __syncwarp();
        if (total >= raw) return raw;
        if (lane == 0) words[0] = mm_exponent_head(form);
        const int mine = pack(values, n, form, words + 1, lane);
        if (form.escapes == 0) return total;
        uint8_t *const list = (uint8_t *)(words + 1 + mm_exponent_field_words(n, form.bits + REST));
        const uint32_t escape = (uint32_t)mm_exponent_codes(form) << REST, base = (uint32_t)form.base << REST;
        int at = sum_below(mine, lane);
        if (lane < (4 - form.escapes % 4) % 4) list[form.escapes + lane] = 0;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) {
            const uint32_t turned = mm_exponent_turn(values[i], WHOLE);
            if (WARP * i + lane < n && ((turned - base) & ALL_BITS) >= escape) list[at++] = (uint8_t)(turned >> REST);
        }
        return total;
    }

    __device__ __forceinline__ bool decode(uint32_t *words, int count, int n, uint32_t *values, int lane) const {
        mm_exponent_form form;
        if (count < 1 || !mm_exponent_read_head(words[0], count, n, REST, &form)) return false;
        const uint32_t base = (uint32_t)form.base << REST;
        unpack(words + 1, n, form.bits + REST, values, lane);
        if (form.escapes > 0 && !put_escapes(words, n, form, values, lane)) return false;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++)
            values[i] = mm_exponent_turn_back((values[i] + base) & ALL_BITS, WHOLE);
        return true;
    }

  private:
    /* Writes to before[e] how many exponents are below e, for e < BASES. Returns the smallest and the largest. */
    static __device__ __forceinline__ void count_exponents(const uint32_t *values, int n, uint32_t *before, int lane,
                                                           int *least, int *most) {
#pragma unroll
        for (int e = lane; e < BASES; e += WARP) before[e] = 0;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++)
            if (WARP * i + lane < n) atomicAdd(&before[mm_exponent_turn(values[i], WHOLE) >> REST], 1u);
        __syncwarp();
        int sum = 0;
        *least = BASES, *most = 0;
        for (int row = 0; row < BASES; row += WARP) {
            const int here = (int)before[row + lane];
            const uint32_t found = __ballot_sync(ALL, here > 0);
            int below = 0;
            if (found) {
                if (*least == BASES) *least = row + __ffs((int)found) - 1;
                *most = row + WARP - 1 - __clz((int)found);
                below = sum_below(here, lane);
            }
            before[row + lane] = (uint32_t)(sum + below);
            if (found) sum += __shfl_sync(ALL, below + here, WARP - 1);
        }
        __syncwarp();
    }

    /* The form with the fewest words; of equal ones that with the fewest bits, then with the smallest base. words:
     * scratch. */
    static __device__ __forceinline__ mm_exponent_form choose_form(const uint32_t *values, int n, uint32_t *words,
                                                                   int lane) {
        int least, most;
        count_exponents(values, n, words, lane, &least, &most);
        /* Exponents that are covered with codes of so many bits, and 255 - the base: the best of this lane's bases. */
        uint32_t covers[BITS_MOST + 1] = {};
        for (int base = least + lane; base <= most; base += WARP) {
            const uint32_t below = words[base];
#pragma unroll
            for (int bits = 1; bits <= BITS_MOST; bits++) {
                const int end = base + (1 << bits) - 1;
                const uint32_t covered = (end < BASES ? words[end] : (uint32_t)n) - below;
                const uint32_t cover = covered << 8 | (uint32_t)(BASES - 1 - base);
                if (cover > covers[bits]) covers[bits] = cover;
            }
        }
        mm_exponent_form best = {least, 0, 0};
        if (least == most) return best;
        int fewest = INT32_MAX;
#pragma unroll
        for (int bits = 1; bits <= BITS_MOST; bits++) {
            const uint32_t cover = __reduce_max_sync(ALL, covers[bits]);
            const bool all = most - least < 1 << bits;
            const mm_exponent_form form = {all ? least : BASES - 1 - (int)(cover & (BASES - 1)), bits,
                                           all ? 0 : n - (int)(cover >> 8)};
            const int total = mm_exponent_words(n, REST, form);
            if (total < fewest) fewest = total, best = form;
        }
        return best;
    }

    /* Writes the lane's fields. Returns the number of its escapes. */
    static __device__ __forceinline__ int pack(const uint32_t *values, int n, mm_exponent_form form, uint32_t *words,
                                               int lane) {
        const int width = form.bits + REST;
        const uint32_t escape = (uint32_t)mm_exponent_codes(form) << REST, base = (uint32_t)form.base << REST;
        uint32_t packed = 0;
        int filled = 0, escapes = 0;
        words += lane;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) {
            if (WARP * i >= n) break;
            uint32_t field = (mm_exponent_turn(values[i], WHOLE) - base) & ALL_BITS;
            if (WARP * i + lane >= n) field = 0;
            if (field >= escape && form.escapes > 0) {
                field = (field & KEPT) | escape;
                escapes++;
            }
            packed |= field << filled;
            filled += width;
            if (filled < 32) continue;
            *words = packed;
            words += WARP;
            filled -= 32;
            packed = field >> (width - filled);
        }
        if (filled > 0) *words = packed;
        return escapes;
    }

    /* Reads the lane's fields. */
    static __device__ __forceinline__ void unpack(const uint32_t *words, int n, int width, uint32_t *values, int lane) {
        const uint32_t mask = (1u << width) - 1;
        int from = 0;
        words += lane;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) {
            values[i] = 0;
            if (WARP * i >= n) continue;
            values[i] = words[0] >> from;
            from += width;
            if (from >= 32) {
                words += WARP;
                from -= 32;
                if (from > 0) values[i] |= words[0] << (width - from);
            }
            values[i] &= mask;
        }
    }

    /* Gives the fields that have the code for escapes their exponents, less the base. Returns false if the code is
     * damaged. */
    static __device__ __forceinline__ bool put_escapes(const uint32_t *words, int n, mm_exponent_form form,
                                                       uint32_t *values, int lane) {
        const uint32_t escape = (uint32_t)mm_exponent_codes(form) << REST;
        const uint8_t *const list = (const uint8_t *)(words + 1 + mm_exponent_field_words(n, form.bits + REST));
        int mine = 0;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) mine += values[i] >= escape && WARP * i + lane < n;
        int at = sum_below(mine, lane);
        if (__shfl_sync(ALL, at + mine, WARP - 1) != form.escapes) return false;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++)
            if (values[i] >= escape && WARP * i + lane < n)
                values[i] = (values[i] & KEPT) | (uint32_t)(list[at++] - form.base) << REST;
        return true;
    }
};

} // namespace

#define DEFINE(direction)                                                                                              \
    extern "C" cudaError_t mm_exponent_cuda_##direction(cudaStream_t stream, const mm_chunk_work *work) {              \
        if (work->type == MM_F32) return launch_##direction<exponent<32, 24>>(stream, *work);                          \
        if (work->type == MM_BF16) return launch_##direction<exponent<16, 8>>(stream, *work);                          \
        return launch_##direction<exponent<16, 11>>(stream, *work);                                                    \
    }
DEFINE(encode)
DEFINE(decode)

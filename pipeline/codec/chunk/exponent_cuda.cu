// SPDX-License-Identifier: MIT
/* exponent on CUDA (exponent_chunk.h). A warp's lanes are the format's lanes: values[i] is element i of the lane. */
#include "pipeline/codec/chunk/chunk_cuda_kernel.h"

#include <type_traits>

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
        const uint32_t escape = (uint32_t)mm_exponent_codes(form) << REST, base = (uint32_t)form.base << REST;
        int escapes = 0;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) values[i] = (mm_exponent_turn(values[i], WHOLE) - base) & ALL_BITS;
        if (n < MM_CHUNK_ELEMS) clear_beyond(values, n, lane);
        if (lane == 0) words[0] = mm_exponent_head(form);
        if (form.escapes > 0) escapes = sum_below(count_escapes(values, escape), lane);
        with_bits(form.bits, [&](auto bits) { pack<REST + decltype(bits)::value>(values, escape, words + 1, lane); });
        if (form.escapes == 0) return total;
        uint8_t *const list = list_of(words, n, form);
        __syncwarp(); /* pack writes zeros beyond the fields of a short chunk */
        if (lane < (4 - form.escapes % 4) % 4) list[form.escapes + lane] = 0;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++)
            if (values[i] >= escape) list[escapes++] = (uint8_t)(((values[i] + base) & ALL_BITS) >> REST);
        return total;
    }

    __device__ __forceinline__ bool decode(uint32_t *words, int count, int n, uint32_t *values, int lane) const {
        mm_exponent_form form;
        if (count < 1 || !mm_exponent_read_head(words[0], count, n, REST, &form)) return false;
        const uint32_t base = (uint32_t)form.base << REST;
        if (n < MM_CHUNK_ELEMS) { /* unpack reads as many words as a whole chunk has */
            for (int i = count + lane; i < 1 + (form.bits + REST) * WARP; i += WARP) words[i] = 0;
            __syncwarp();
        }
        with_bits(form.bits, [&](auto bits) { unpack<REST + decltype(bits)::value>(words + 1, values, lane); });
        if (n < MM_CHUNK_ELEMS) clear_beyond(values, n, lane);
        if (form.escapes > 0 && !put_escapes(list_of(words, n, form), form, values, lane)) return false;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) values[i] = mm_exponent_turn_back((values[i] + base) & ALL_BITS, WHOLE);
        return true;
    }

  private:
    static __device__ __forceinline__ uint8_t *list_of(uint32_t *words, int n, mm_exponent_form form) {
        return (uint8_t *)(words + 1 + mm_exponent_field_words(n, form.bits + REST));
    }

    /* Calls f with a constant for the number of bits: shifts by constants take half the instructions. */
    template <typename F> static __device__ __forceinline__ void with_bits(int bits, const F &f) {
        switch (bits) {
        case 0:
            return f(std::integral_constant<int, 0>());
        case 1:
            return f(std::integral_constant<int, 1>());
        case 2:
            return f(std::integral_constant<int, 2>());
        case 3:
            return f(std::integral_constant<int, 3>());
        case 4:
            return f(std::integral_constant<int, 4>());
        default:
            return f(std::integral_constant<int, 5>());
        }
    }

    /* Sets the fields of the elements beyond n to 0. */
    static __device__ __forceinline__ void clear_beyond(uint32_t *fields, int n, int lane) {
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++)
            if (WARP * i + lane >= n) fields[i] = 0;
    }

    static __device__ __forceinline__ int count_escapes(const uint32_t *fields, uint32_t escape) {
        int count = 0;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) count += fields[i] >= escape;
        return count;
    }

    /* Writes to before[e] how many exponents are below e, for e < BASES. Returns the smallest and the largest. */
    static __device__ __forceinline__ void count_exponents(const uint32_t *values, int n, uint32_t *before, int lane,
                                                           int *least, int *most) {
#pragma unroll
        for (int e = lane; e < BASES; e += WARP) before[e] = 0;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) atomicAdd(&before[mm_exponent_turn(values[i], WHOLE) >> REST], 1u);
        __syncwarp();
        int sum = 0;
        *least = BASES, *most = 0;
#pragma unroll 1
        for (int row = 0; row < BASES; row += WARP) {
            int here = (int)before[row + lane];
            if (row + lane == 0) here -= MM_CHUNK_ELEMS - n; /* the zeros beyond n */
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
#pragma unroll 1
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

    /* Writes the lane's fields, those of escapes with their code. */
    template <int WIDTH>
    static __device__ __forceinline__ void pack(const uint32_t *fields, uint32_t escape, uint32_t *words, int lane) {
        uint32_t packed = 0;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) {
            const int from = i * WIDTH % 32, at = i * WIDTH / 32;
            const uint32_t field = fields[i] >= escape ? (fields[i] & KEPT) | escape : fields[i];
            packed |= field << from;
            if (from + WIDTH < 32) continue;
            words[WARP * at + lane] = packed;
            packed = from > 0 ? field >> (32 - from) : 0;
        }
    }

    /* Reads the lane's fields. Those of elements beyond a short chunk get any bits. */
    template <int WIDTH>
    static __device__ __forceinline__ void unpack(const uint32_t *words, uint32_t *fields, int lane) {
        constexpr uint32_t MASK = (1u << WIDTH) - 1;
        words += lane;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) {
            const int from = i * WIDTH % 32, at = i * WIDTH / 32;
            fields[i] = words[WARP * at] >> from;
            if (from + WIDTH > 32) fields[i] |= words[WARP * (at + 1)] << (32 - from);
            fields[i] &= MASK;
        }
    }

    /* Gives the fields that have the code for escapes their exponents, less the base. Returns false if the code is
     * damaged. */
    static __device__ __forceinline__ bool put_escapes(const uint8_t *list, mm_exponent_form form, uint32_t *fields,
                                                       int lane) {
        const uint32_t escape = (uint32_t)mm_exponent_codes(form) << REST;
        const int mine = count_escapes(fields, escape);
        int at = sum_below(mine, lane);
        if (__shfl_sync(ALL, at + mine, WARP - 1) != form.escapes) return false;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++)
            if (fields[i] >= escape) fields[i] = (fields[i] & KEPT) | (uint32_t)(list[at++] - form.base) << REST;
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

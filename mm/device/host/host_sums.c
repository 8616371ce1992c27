/* SPDX-License-Identifier: MIT */
/* The sums of sums.h on the host. With -O3 the compiler vectorises the loop over lanes, once for any CPU and once for
 * AVX2. */
#include "mm/device/contract/sums.h"

#define INLINE static inline __attribute__((always_inline))

enum { TOGETHER = 1 << 20 };

typedef struct lanes {
    double sum_abs[MM_SUMS_LANES], sum_squares[MM_SUMS_LANES];
    int32_t nonzero[MM_SUMS_LANES]; /* per lane: count over at most TOGETHER elements; the counts are then added to
                                       those of the strip */
    uint32_t max_bits[MM_SUMS_LANES];
} lanes;

INLINE void add(lanes *to, const float *src, int n) {
    for (int l = 0; l < n; l++) {
        uint32_t bits;
        float magnitude;
        memcpy(&bits, &src[l], sizeof bits);
        bits &= 0x7fffffff;
        memcpy(&magnitude, &bits, sizeof magnitude);
        const double value = magnitude;
        to->sum_abs[l] += value;
        to->sum_squares[l] += value * value;
        to->nonzero[l] += bits != 0;
        to->max_bits[l] = bits > to->max_bits[l] ? bits : to->max_bits[l];
    }
}

INLINE int64_t take_nonzero(lanes *of) {
    int64_t sum = 0;
    for (int l = 0; l < MM_SUMS_LANES; l++) {
        sum += of->nonzero[l];
        of->nonzero[l] = 0;
    }
    return sum;
}

INLINE void strip(const float *src, int64_t elems, mm_sums_part *part_out) {
    lanes lanes = {0};
    int64_t nonzero = 0;
    while (elems > 0) {
        int n = elems < TOGETHER ? (int)elems : TOGETHER;
        elems -= n;
        for (; n >= MM_SUMS_LANES; n -= MM_SUMS_LANES, src += MM_SUMS_LANES) add(&lanes, src, MM_SUMS_LANES);
        add(&lanes, src, n);
        nonzero += take_nonzero(&lanes);
    }
    for (int half = MM_SUMS_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) {
            lanes.sum_abs[l] += lanes.sum_abs[l + half];
            lanes.sum_squares[l] += lanes.sum_squares[l + half];
            if (lanes.max_bits[l + half] > lanes.max_bits[l]) lanes.max_bits[l] = lanes.max_bits[l + half];
        }
    *part_out = (mm_sums_part){lanes.sum_abs[0], lanes.sum_squares[0], nonzero, lanes.max_bits[0]};
}

void mm_sums_host_strip_portable(const float *src, int64_t elems, mm_sums_part *part_out) {
    strip(src, elems, part_out);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void strip_avx2(const float *src, int64_t elems, mm_sums_part *part_out) {
    strip(src, elems, part_out);
}

void mm_sums_host_strip(const float *src, int64_t elems, mm_sums_part *part_out) {
    (__builtin_cpu_supports("avx2") ? strip_avx2 : mm_sums_host_strip_portable)(src, elems, part_out);
}
#else
void mm_sums_host_strip(const float *src, int64_t elems, mm_sums_part *part_out) { strip(src, elems, part_out); }
#endif

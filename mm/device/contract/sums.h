/* SPDX-License-Identifier: MIT */
/* The sums of mm_sums_async, defined so that all devices get the same bits: the number of elements alone gives the
 * order in which they are added up.
 *
 * The elements lie in strips of equal length, a multiple of MM_SUMS_STRIP_ELEMS. In a strip, element i goes to lane i
 * mod MM_SUMS_LANES, and each lane adds up its elements in order. Then lane l adds the result of lane l + MM_SUMS_LANES
 * / 2. So half of the lanes are left; this is repeated until only lane 0 is left. The strips' results are added up in
 * the same way.
 *
 * A float's square is exact in double precision: so the result is the same whether or not a device fuses the
 * multiplication with the addition. */
#ifndef MM_DEVICE_CONTRACT_SUMS_H
#define MM_DEVICE_CONTRACT_SUMS_H

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "mm/device/contract/device.h"

/* A .cu file defines this as __device__ functions before it includes the header. */
#ifndef MM_SUMS_FUNCTION
#define MM_SUMS_FUNCTION static inline
#endif

enum { MM_SUMS_LANES = 128, MM_SUMS_STRIP_ELEMS = 1024, MM_SUMS_STRIPS_MOST = 2048 };

/* The result of a lane or of a strip. The sums mean nothing if there are infinities or NaNs. */
typedef struct mm_sums_part {
    double sum_abs, sum_squares;
    int64_t nonzero;
    uint32_t max_bits; /* bits of the largest magnitude; a NaN counts as larger than any number */
} mm_sums_part;

static_assert(sizeof(mm_sums_part) * MM_SUMS_STRIPS_MOST == MM_SUMS_SCRATCH_BYTES, "a part for each strip");

static inline int64_t mm_sums_strip_elems(int64_t elems) {
    const int64_t each = (int64_t)MM_SUMS_STRIPS_MOST * MM_SUMS_STRIP_ELEMS;
    return (elems / each + (elems % each != 0)) * MM_SUMS_STRIP_ELEMS;
}

static inline int64_t mm_sums_strips(int64_t elems) {
    const int64_t strip = mm_sums_strip_elems(elems);
    return elems == 0 ? 0 : (elems - 1) / strip + 1;
}

MM_SUMS_FUNCTION void mm_sums_add(mm_sums_part *to, const mm_sums_part *part) {
    to->sum_abs += part->sum_abs;
    to->sum_squares += part->sum_squares;
    to->nonzero += part->nonzero;
    if (part->max_bits > to->max_bits) to->max_bits = part->max_bits;
}

MM_SUMS_FUNCTION mm_sums mm_sums_of(const mm_sums_part *all) {
    const uint32_t infinity = 0x7f800000;
    mm_sums sums = {(double)all->nonzero, all->sum_abs, all->sum_squares, 0};
    float max;
    memcpy(&max, &all->max_bits, sizeof max);
    sums.max_abs = max;
    if (all->max_bits >= infinity)
        sums.sum_abs = sums.sum_squares = sums.max_abs = all->max_bits > infinity ? NAN : INFINITY;
    return sums;
}

/* Computes the result of a strip of `elems` elements on the host. */
void mm_sums_host_strip(const float *src, int64_t elems, mm_sums_part *part_out);
/* Computes the same bits as mm_sums_host_strip, without instructions that only some CPUs have. */
void mm_sums_host_strip_portable(const float *src, int64_t elems, mm_sums_part *part_out);

#endif

/* SPDX-License-Identifier: MIT */
/* An upper bound of the error of a finite 4x4 block in fixed-rate ZFP, whatever its values, as a multiple of 2^emax,
 * the power of two just above its largest magnitude.
 *
 * Bit planes are coded from the top. The first p planes take at most 16 p + 16 bits. A plane takes one bit for each
 * coefficient up to the last that is significant by then, and at most one more zero, while not all 16 are; each
 * coefficient that becomes significant takes one more bit, 16 in all. So maxbits, less 9 bits of the header, holds at
 * least p = (maxbits - 25) / 16 planes. Bits below plane k = 32 - p are cut off in negabinary, which changes a
 * coefficient by less than 2/3 2^k. The inverse transform amplifies that by at most (15/4)^2, because each of its rows
 * sums to at most 15/4, and it is done twice. Values are scaled to 2^30; the rounding of both transforms is some units
 * of that scale.
 *
 * Measured: the worst of some thousand blocks of noise, spikes and alternating signs reaches a third to a tenth of the
 * bound; the mean, and smooth blocks, are far below (tests/codec/zfp_error_test.c). At low rates the bound says little:
 * 0.59 of 2^emax at rate 8, 0.0023 at rate 16. */
#ifndef PIPELINE_CODEC_ZFP_ZFP_ERROR_H
#define PIPELINE_CODEC_ZFP_ZFP_ERROR_H

#include <math.h>

/* Number of bit planes that every block of `maxbits` holds. */
static inline int mm_zfp_certain_planes(int maxbits) {
    int planes = (maxbits - 25) / 16;
    return maxbits < 25 ? 0 : planes > 32 ? 32 : planes;
}

/* The bound, as a multiple of 2^emax. */
static inline double mm_zfp_max_error(int maxbits) {
    enum { ROUNDING = 16 }; /* error of both transforms, in units of 2^-30; chosen above what occurs */
    double cut = 15.0 / 4 * 15.0 / 4 * 2 / 3 * ldexp(1, 32 - mm_zfp_certain_planes(maxbits));
    return ldexp(cut + ROUNDING, -30) + ldexp(1, -23); /* rounding of the result to a float */
}

#endif

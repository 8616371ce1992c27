/* How far a finite 4x4 block may come back off from fixed-rate ZFP, whatever it holds: a share of 2^emax, the power of
 * two just above its largest magnitude.
 *
 * The bit planes are coded from the top. The first p of them take at most 16 p + 16 bits: a plane's bits up to the last
 * coefficient that is significant by then, a one for each coefficient that becomes so (16 in all), and a zero where not
 * all are, in place of a bit. So of maxbits, less 9 of the header, p = (maxbits - 25) / 16 planes are certain. What is
 * below plane k = 32 - p is cut off in negabinary: less than 2/3 2^k of each coefficient. The inverse transform makes
 * at most (15/4)^2 of that: each of its rows sums to 15/4 at most, and it is done twice. The values are scaled to 2^30,
 * and the rounding of both transforms is some units of that.
 *
 * The worst of some thousand blocks of noise, spikes and alternating signs reaches a third to a tenth of it, the mean
 * is far below, smooth blocks farther. At low rates the bound says little (rate 8: 0.59 of 2^emax; 16: 0.0023). */
#ifndef PIPELINE_CODEC_ZFP_ERROR_H
#define PIPELINE_CODEC_ZFP_ERROR_H

#include <math.h>

/* Bit planes that a block of `maxbits` holds for certain. */
static inline int mm_zfp_certain_planes(int maxbits) {
    int planes = (maxbits - 25) / 16;
    return maxbits < 25 ? 0 : planes > 32 ? 32 : planes;
}

static inline double mm_zfp_max_error(int maxbits) {
    enum { ROUNDING = 16 };
    double cut = 15.0 / 4 * 15.0 / 4 * 2 / 3 * ldexp(1, 32 - mm_zfp_certain_planes(maxbits));
    return ldexp(cut + ROUNDING, -30) + ldexp(1, -23); /* of a float */
}

#endif

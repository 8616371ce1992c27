/* Loops over floats on the CPU, for the instruction sets that are worth having; all give the same bits. Internal.
 *
 * A line is as many rows of [rows, channels] as make enough elements for a loop; each of its elements is a lane.
 * `lanes` arrays have one number for each lane: the channels' numbers, repeated. The n elements of a call begin with a
 * line; the last line may be cut short, by whole rows. Outputs may be inputs of the same call, element by element. */
#ifndef NETS_HOST_LINES_H
#define NETS_HOST_LINES_H

#include <stdbool.h>
#include <stdint.h>

/* What is known of each lane of y = (x - mean) * factor + shift. */
typedef struct nets_lanes_map {
    const float *mean, *factor, *shift;
} nets_lanes_map;

/* And of dx = ((g - mean_g) - (x - mean) * slope) * factor. */
typedef struct nets_lanes_gradient {
    const float *mean, *factor, *mean_g, *slope;
} nets_lanes_gradient;

typedef struct nets_lines {
    /* Sums by lane. Of x - from, or of x where `from` is NULL: */
    void (*sums)(const float *x, const float *from, int64_t n, int64_t lanes, float *sum);
    /* Of (x - mean)^2: */
    void (*squares)(const float *x, int64_t n, int64_t lanes, const float *mean, float *sum);
    /* Of g and of g * (x - mean), where g is dy. With y given, g is dy where y is positive and else 0, and is
     * written. */
    void (*products)(const float *y, const float *dy, const float *x, int64_t n, int64_t lanes, const float *mean,
                     float *g, float *sum_g, float *sum_gx);
    /* The same where y is what `map` would make of x, to be made again: g is not written. */
    void (*products_by_x)(nets_lanes_map y, const float *dy, const float *x, int64_t n, int64_t lanes, float *sum_g,
                          float *sum_gx);
    /* With `relu` x2, unless NULL, is added, then what is negative is made zero. A NaN stays one: a training that
     * diverges shows. */
    void (*map)(const float *x, const float *x2, int64_t n, int64_t lanes, nets_lanes_map with, bool relu, float *y);
    void (*add_bias)(const float *x, int64_t n, int64_t lanes, const float *bias, bool relu, float *y);
    void (*gradient)(const float *g, const float *x, const float *earlier, int64_t n, int64_t lanes,
                     nets_lanes_gradient with, float *dx);
    /* Of dy where y, made of x again, is positive. */
    void (*gradient_by_x)(nets_lanes_map y, const float *dy, const float *x, const float *earlier, int64_t n,
                          int64_t lanes, nets_lanes_gradient with, float *dx);
    /* g = dy where y is positive, else 0. Where `mask` is not NULL, it is y's signs, as mm.h's. */
    void (*gate)(const float *y, const uint32_t *mask, const float *dy, int64_t n, float *g);
    void (*rectify)(const float *x, int64_t n, float *y); /* what is negative is made zero */
    void (*add)(const float *a, const float *b, int64_t n, float *sum);
} nets_lines;

extern const nets_lines nets_lines_portable, nets_lines_avx2; /* avx2: on x86-64 only */

/* The best of this processor. */
const nets_lines *nets_lines_best(void);

#endif

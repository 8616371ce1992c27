/* SPDX-License-Identifier: MIT */
/* Vectorised loops over maps of f32 or bf16 on the CPU, compiled for three instruction sets that give the same bits
 * (NaNs' may differ). They compute with f32; bf16 results are rounded once (bf16.h). Internal.
 *
 * A line is a few rows of [rows, channels], enough elements for a vector loop; each element of a line is a lane. Arrays
 * with a number for each lane repeat the channels' numbers. The n elements of a call begin with a line; the last line
 * may be shorter, by whole rows. An output may be an input of the same call. */
#ifndef NETS_HOST_SIMD_MAP_H
#define NETS_HOST_SIMD_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "mm/core/graph/graph.h"

/* For each lane, the constants of y = (x - mean) * factor + shift. */
typedef struct nets_lanes_map {
    const float *mean, *factor, *shift;
} nets_lanes_map;

/* For each lane, the constants of dx = ((g - mean_g) - (x - mean) * slope) * factor. */
typedef struct nets_lanes_gradient {
    const float *mean, *factor, *mean_g, *slope;
} nets_lanes_gradient;

/* Elements from row to row, and from column to column. */
typedef struct nets_simd_grid {
    int64_t row, column;
} nets_simd_grid;

/* The windows of a max pool, of which a row is computed at a time. Along rows and columns: an image's and the maxima's
 * sizes, the kernel, the stride, the padding before the image. */
typedef struct nets_simd_pool {
    int64_t x[2], y[2], kernel[2], stride[2], pad[2], channels;
} nets_simd_pool;

typedef struct nets_simd_map {
    /* Sums in each lane of x - from; `from` NULL: of x. */
    void (*sums)(const void *x, const float *from, int64_t n, int64_t lanes, float *sum);
    /* Sums in each lane of (x - mean)^2. */
    void (*squares)(const void *x, int64_t n, int64_t lanes, const float *mean, float *sum);
    /* Sums in each lane of g and of g * (x - mean). y NULL: g is dy, and is not written. Else g is dy where y is
     * positive, 0 elsewhere, and is written. */
    void (*products)(const void *y, const void *dy, const void *x, int64_t n, int64_t lanes, const float *mean, void *g,
                     float *sum_g, float *sum_gx);
    /* The same with y computed again from x, as `map` computes it; g is not written. */
    void (*products_by_x)(nets_lanes_map y, const void *dy, const void *x, int64_t n, int64_t lanes, float *sum_g,
                          float *sum_gx);
    /* sums[i] += the sum of a[i] b[i] over all places of both grids, row by row; for i < n. */
    void (*add_products)(const void *a, nets_simd_grid a_steps, const void *b, nets_simd_grid b_steps, int64_t rows,
                         int64_t columns, int64_t n, float *sums);
    /* y = the map of x. With `relu`, x2 is added unless NULL, then negative numbers become zero. NaN stays NaN, so that
     * a training that diverges shows. */
    void (*map)(const void *x, const void *x2, int64_t n, int64_t lanes, nets_lanes_map with, bool relu, void *y);
    /* y = x + bias; with `relu`, negative numbers become zero. */
    void (*add_bias)(const void *x, int64_t n, int64_t lanes, const float *bias, bool relu, void *y);
    /* dx as nets_lanes_gradient says, plus `earlier` unless NULL. */
    void (*gradient)(const void *g, const void *x, const void *earlier, int64_t n, int64_t lanes,
                     nets_lanes_gradient with, void *dx);
    /* The same with g = dy where y, computed again from x, is positive, 0 elsewhere. */
    void (*gradient_by_x)(nets_lanes_map y, const void *dy, const void *x, const void *earlier, int64_t n,
                          int64_t lanes, nets_lanes_gradient with, void *dx);
    /* g = dy where y is positive, 0 elsewhere. `mask`, if not NULL, has y's signs (mm.h's sign mask) in place of y. */
    void (*gate)(const void *y, const uint32_t *mask, const void *dy, int64_t n, void *g);
    void (*rectify)(const void *x, int64_t n, void *y); /* negative numbers become zero */
    /* Row `row` of an image's maxima. `places` gets each one's place in its window, row by row: the first of the
     * greatest; NULL: they are not wanted. A NaN is greater than any number. Of no elements: the least float, as
     * bf16 -inf. */
    void (*maxima)(const nets_simd_pool *pool, const void *image, int64_t row, void *y, uint8_t *places);
    /* Row `row` of an image's gradient: the sums of dy of the windows whose maximum an element is, in order of the
     * windows, plus `earlier` unless NULL. `dy` is an image's; row r of its places is row r % ring of `places`. */
    void (*maxima_gradient)(const nets_simd_pool *pool, const void *dy, const uint8_t *places, int64_t ring,
                            int64_t row, const void *earlier, void *dx);
    void (*add)(const void *a, const void *b, int64_t n, void *sum);
    void (*add_floats)(const void *a, const float *b, int64_t n, void *sum);
    void (*widen)(const void *x, int64_t n, float *to); /* to floats; f32 is copied */
    void (*narrow)(const float *from, int64_t n, void *y);

} nets_simd_map;

extern const nets_simd_map nets_simd_map_portable, nets_simd_map_bf16_portable;
/* On x86-64 only. With AVX-512 the loops over f32 maps are not faster, since memory limits them, and those that zero
 * gradients take twice as long: the compiler makes their loads wait for the signs. */
extern const nets_simd_map nets_simd_map_avx2, nets_simd_map_bf16_avx2, nets_simd_map_bf16_avx512;

/* A map's n elements from `first` on as floats: its own, if it is f32; else widened into the block. */
static inline const float *nets_simd_floats(const nets_simd_map *lines, int64_t elem_bytes, const void *map,
                                            int64_t first, int64_t n, float *block) {
    if (elem_bytes == (int64_t)sizeof(float)) return (const float *)map + first;
    lines->widen((const char *)map + first * elem_bytes, n, block);
    return block;
}

/* The loops over maps of the type, for the best instruction set of this processor. */
const nets_simd_map *nets_simd_map_best(mm_dtype maps);

#endif

/* SPDX-License-Identifier: MIT */
/* Batch norm and biases on the CPU: operations channel by channel over maps [rows, channels] of f32 or bf16. Internal.
 *
 * Elements are grouped into lines (simd_map.h), lines into chunks that fit the cache, and chunks into blocks, which the
 * threads share. Sums are f32 within a chunk, and f64 over lanes, chunks and blocks. Their order depends only on the
 * shape and the number of threads. */
#ifndef NETS_HOST_CHANNELS_H
#define NETS_HOST_CHANNELS_H

#include "mm/core/graph/code_strips.h"
#include "nets/host/partition.h"
#include "nets/host/simd_map.h"

typedef struct nets_channels {
    const nets_simd_map *lines;
    mm_host_pool *pool;
    nets_cut blocks; /* cuts the chunks */
    int places;      /* how many blocks are worked on at a time */
    int64_t rows, channels, elems;
    int64_t elem_bytes;    /* size of a map's element */
    int64_t lanes;         /* elements of a line: a multiple of the channels */
    int64_t chunk_elems;   /* a multiple of the lanes */
    int64_t scratch_bytes; /* scratch that every function here needs */
    int64_t by_x_bytes;    /* more scratch, for a backward that computes the ReLU's signs again from x */
    int64_t chunk_bytes;   /* more scratch, a chunk for each place, for a backward through a ReLU without dx */
} nets_channels;

/* `pool` is borrowed; NULL: only the caller's thread computes. */
nets_channels nets_channels_of(int64_t rows, int64_t channels, mm_dtype maps, mm_host_pool *pool);

/* Mean and biased variance. A chunk's mean is computed from the differences to its first row, its variance from the
 * differences to the mean, and chunks are joined as in Chan, Golub and LeVeque (1983). So nothing cancels, however far
 * from zero the values are. */
void nets_channels_statistics(const nets_channels *ch, const void *x, float *mean_out, float *var_out, void *scratch);

/* (x - mean) * scale / sqrt(var + eps) + shift */
typedef struct nets_channels_affine {
    const float *mean, *var, *scale, *shift; /* by channel */
    float eps;
} nets_channels_affine;

/* y is the affine map of x. With `relu`, x2 is added unless NULL, then negative numbers become zero. */
typedef struct nets_channels_norm {
    nets_channels_affine by;
    const void *x, *x2;
    bool relu;
    void *y; /* may be x or x2 */
    /* Codes of x and of y to be written, for f32 maps; NULL: none. With x_code, y must not be x. */
    const mm_coded *x_code, *y_code;
} nets_channels_norm;
void nets_channels_normalise(const nets_channels *ch, const nets_channels_norm *norm, void *scratch);

/* The gradients of nets_channels_norm with respect to its inputs. With `relu`, dy counts only where y is positive. y is
 * given as elements or as a sign mask (mm.h). Both may be NULL if there was no x2 and x has the forward's bits: then y
 * is computed again. */
typedef struct nets_channels_gradients {
    nets_channels_affine by;
    bool relu;
    const void *y;
    const uint32_t *mask;
    const mm_coded *x_code;                  /* if x is NULL, its code: each pass decodes it into the cache */
    void *window;                            /* with x_code: scratch of chunk_bytes and 2 strips a place */
    const void *x, *dy, *earlier, *earlier2; /* earlier ones are added to dx and dx2; NULL: nothing is added */
    void *dx, *dx2; /* NULL: not wanted. dx may be dy. dx2 may be earlier2 or, without earlier2, y */
    float *dscale, *dshift;
} nets_channels_gradients;
void nets_channels_backward(const nets_channels *ch, const nets_channels_gradients *g, void *scratch);

/* y = x + bias, or max(0, x + bias). y may be x. */
void nets_channels_add_bias(const nets_channels *ch, const void *x, const float *bias, bool relu, void *y,
                            void *scratch);

/* The bias's gradient: the sum of the rows of dy. If y or its sign mask is given, dy counts only where y is positive;
 * this gated gradient is also written to dx, which may be dy. */
typedef struct nets_channels_bias {
    const void *y;
    const uint32_t *mask;
    const void *dy, *earlier; /* earlier: added to dx; NULL: nothing is added */
    void *dx;
    float *dbias;
} nets_channels_bias;
void nets_channels_bias_backward(const nets_channels *ch, const nets_channels_bias *b, void *scratch);

#endif

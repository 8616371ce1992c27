/* What goes channel by channel on the CPU, over [rows, channels] of f32: batch norm, and biases. Internal.
 *
 * The elements are taken in lines (lines.h), the lines in chunks that stay in the cache, the chunks in blocks that
 * threads share out. Sums are f32 within a chunk, f64 from lane to lane, chunk to chunk and block to block: their order
 * hangs on the shape and the number of threads alone. */
#ifndef NETS_HOST_CHANNELS_H
#define NETS_HOST_CHANNELS_H

#include "nets/host/lines.h"
#include "nets/host/pieces.h"

typedef struct nets_channels {
    const nets_lines *lines;
    mm_host_pool *pool;
    nets_cut blocks; /* of chunks */
    int places;      /* blocks that are worked on at a time */
    int64_t rows, channels, elems;
    int64_t lanes;         /* of a line: a multiple of the channels */
    int64_t chunk_elems;   /* a multiple of the lanes */
    int64_t scratch_bytes; /* what every function here needs */
    int64_t by_x_bytes;    /* and beyond it, gradients of which x tells what passed a ReLU */
    int64_t chunk_bytes;   /* or those that take a gradient through a ReLU and do not write it to dx */
} nets_channels;

/* `pool` is borrowed; NULL: the caller's thread alone. */
nets_channels nets_channels_of(int64_t rows, int64_t channels, mm_host_pool *pool);

/* Mean and biased variance. In a chunk the mean is that of the distances from its first row, the squares are taken
 * about the mean, and chunks are joined as Chan, Golub and LeVeque (1983) do: nothing cancels, however far from zero
 * the values are. */
void nets_channels_statistics(const nets_channels *ch, const float *x, float *mean_out, float *var_out, void *scratch);

/* (x - mean) * scale / sqrt(var + eps) + shift */
typedef struct nets_channels_affine {
    const float *mean, *var, *scale, *shift; /* by channel */
    float eps;
} nets_channels_affine;

/* y is that of x. With `relu` x2, unless NULL, is added, then what is negative is made zero. */
typedef struct nets_channels_norm {
    nets_channels_affine by;
    const float *x, *x2;
    bool relu;
    float *y; /* may be x or x2 */
} nets_channels_norm;
void nets_channels_normalise(const nets_channels *ch, const nets_channels_norm *norm, void *scratch);

/* The gradients of that by its inputs. With `relu` dy counts only where y is positive: y is given, or its signs as
 * mm.h's mask; or neither, if there was no x2, and x has the bits that it had then: y is made again. */
typedef struct nets_channels_gradients {
    nets_channels_affine by;
    bool relu;
    const float *y;
    const uint32_t *mask;
    const float *x, *dy, *earlier, *earlier2; /* earlier ones are added into dx, dx2; or NULL */
    float *dx, *dx2;                          /* or NULL. dx may be dy, dx2 earlier2, or without that y */
    float *dscale, *dshift;
} nets_channels_gradients;
void nets_channels_backward(const nets_channels *ch, const nets_channels_gradients *g, void *scratch);

/* y = x + bias, or max(0, x + bias). y may be x. */
void nets_channels_add_bias(const nets_channels *ch, const float *x, const float *bias, bool relu, float *y,
                            void *scratch);

/* The bias's gradient: the sum of the rows of dy. With y or mask given, dy counts only where y was positive, and that
 * is also written to dx, which may be dy. */
typedef struct nets_channels_bias {
    const float *y;
    const uint32_t *mask;
    const float *dy, *earlier; /* added into dx; or NULL */
    float *dx, *dbias;
} nets_channels_bias;
void nets_channels_bias_backward(const nets_channels *ch, const nets_channels_bias *b, void *scratch);

#endif

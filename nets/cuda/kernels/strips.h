/* SPDX-License-Identifier: MIT */
/* How a map is cut for sums over its pixels, channel by channel, and in which order they are added. Both depend on the
 * shape alone, not on the GPU, nor on how many channels a thread takes, nor on whether it reads values or decodes them:
 * the same map gives the same bits. Plain C, so that CPU tests can add in this order, too.
 *
 * The cut is that of ZFP's 2-D blocks (pipeline/codec/zfp/zfp_layout.h). An image's pixels are taken as `lines` of
 * `columns`; four lines are a strip, and four columns of a strip a tile: 4 x 4 pixels of all channels, fewer at an
 * image's ends. Tiles are numbered along the strip, then strip by strip, then image by image. So the ZFP block of tile
 * t and channel c has the number t * channels + c.
 *
 *            columns                       order of a channel's sum
 *        +----+----+----+--+               chain    `each` tiles, every chains-th of a block's; of each tile line by
 *      4 | t0 | t1 | t2 |t3|  strip                 line, from left to right; f32
 *        +----+----+----+--+               block    its chains, joined in a tree; f32
 *      4 | t4 | t5 | t6 |t7|               group    `together` blocks: chain i takes every chains-th from the i-th on,
 *        +----+----+----+--+                        joined in the same tree; f64
 *      2 | t8 | t9 | ...   |  partial      all      the groups in the same way
 *        +----+----+----+--+
 *
 * In a tree chain i joins chain i + n / 2, for n = chains, chains / 2, ... 2. Internal. */
#ifndef NETS_CUDA_KERNELS_STRIPS_H
#define NETS_CUDA_KERNELS_STRIPS_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define NETS_STRIPS_FN static __host__ __device__ inline
#else
#define NETS_STRIPS_FN static inline
#endif

/* LEAST_CHAINS: with 32 vectors of channels they are a block of 256 threads. THREADS: four waves of an H100 or H200,
 * whose 132 multiprocessors hold 1024 threads of 64 registers each. So blocks are many and short: a kernel of higher
 * priority, such as a codec's, begins when the next block ends. */
enum { NETS_STRIPS_LEAST_CHAINS = 8, NETS_STRIPS_THREADS = 4 * 132 * 1024 };

/* Divides numbers below 2^31 by a divisor that the host knows: Granlund and Montgomery, "Division by invariant integers
 * using multiplication" (1994). A GPU has no instruction for a division, and takes some twenty. */
typedef struct nets_divisor {
    uint32_t factor;
    int shift;
} nets_divisor;

NETS_STRIPS_FN nets_divisor nets_divisor_of(int by) {
    int log = 0;
    while ((int64_t)1 << log < by) log++;
    const nets_divisor d = {(uint32_t)((((uint64_t)1 << (31 + log)) + (unsigned)by - 1) / (unsigned)by), 31 + log};
    return d;
}

NETS_STRIPS_FN unsigned nets_divided(nets_divisor by, unsigned n) {
    return (unsigned)((uint64_t)n * by.factor >> by.shift);
}

typedef struct nets_strips {
    int64_t rows; /* pixels of all images */
    int channels;
    int plane, columns, lines;     /* of an image: pixels, taken as `lines` of `columns` */
    int tiles_across, tiles_whole; /* of a strip, of an image */
    nets_divisor by_across, by_whole;
    int tiles;                    /* of all images */
    int chains, each;             /* chains of a block: a power of two; tiles of a chain */
    int blocks, together, groups; /* together: blocks of a group; the last may have fewer */
} nets_strips;

NETS_STRIPS_FN int nets_strips_ceil(int64_t a, int64_t b) { return (int)((a + b - 1) / b); }

/* Sets how many tiles a chain has, and what follows from that. */
NETS_STRIPS_FN void nets_strips_divide(nets_strips *s, int each) {
    s->each = each;
    s->blocks = nets_strips_ceil(s->tiles, (int64_t)each * s->chains);
    s->together = s->chains;
    while ((int64_t)s->together * s->together < s->blocks) s->together++;
    s->groups = nets_strips_ceil(s->blocks, s->together);
}

/* The cut of a map [images, height, width, channels] of fewer than 2^31 pixels. A matrix is one image of width 1, whose
 * tiles have up to 16 rows. */
NETS_STRIPS_FN nets_strips nets_strips_of(int64_t images, int64_t height, int64_t width, int64_t channels) {
    const int64_t vectors = channels % 4 ? channels : channels / 4;
    const int64_t fold = width % 4 == 0 ? 1 : width % 2 == 0 ? 2 : 4; /* lines that make a whole number of tiles */
    nets_strips s;
    s.rows = images * height * width;
    s.channels = (int)channels;
    s.plane = (int)(height * width);
    s.columns = (int)(height % fold == 0 ? width * fold : width);
    s.lines = s.plane / s.columns;
    s.tiles_across = nets_strips_ceil(s.columns, 4);
    s.tiles_whole = s.tiles_across * nets_strips_ceil(s.lines, 4);
    s.by_across = nets_divisor_of(s.tiles_across);
    s.by_whole = nets_divisor_of(s.tiles_whole);
    s.tiles = (int)(images * s.tiles_whole);
    s.chains = NETS_STRIPS_LEAST_CHAINS;
    while (s.chains < 32 && s.chains * vectors < 32) s.chains *= 2; /* a block has no fewer threads than a warp */
    nets_strips_divide(&s, nets_strips_ceil(s.tiles * vectors, NETS_STRIPS_THREADS));
    return s;
}

/* Pixels in the tiles before this one; 0 <= tile <= tiles. */
NETS_STRIPS_FN int64_t nets_strips_rows_before(const nets_strips *s, int64_t tile) {
    const unsigned t = (unsigned)tile, image = nets_divided(s->by_whole, t);
    const unsigned rest = t - image * (unsigned)s->tiles_whole, strip = nets_divided(s->by_across, rest);
    const unsigned across = rest - strip * (unsigned)s->tiles_across;
    const int left = s->lines - 4 * (int)strip;
    return image * (unsigned)s->plane + 4 * strip * (unsigned)s->columns + (unsigned)(left < 4 ? left : 4) * 4 * across;
}

/* Pixels in blocks first .. first + n - 1, as far as these exist. */
NETS_STRIPS_FN int64_t nets_strips_rows(const nets_strips *s, int64_t first, int64_t n) {
    const int64_t tiles = (int64_t)s->each * s->chains, end = (first + n) * tiles;
    return nets_strips_rows_before(s, end < s->tiles ? end : s->tiles) - nets_strips_rows_before(s, first * tiles);
}

/* Bytes that the sums of blocks and groups take: two quantities for each channel, in f32 and in f64. */
NETS_STRIPS_FN int64_t nets_strips_bytes(const nets_strips *s) {
    return (int64_t)s->channels * (8 * (int64_t)s->blocks + 16 * (int64_t)s->groups);
}

/* How many counters of ended blocks a reduction needs. A block takes 8 channels or more, unless the map has fewer. */
NETS_STRIPS_FN int64_t nets_strips_counters(const nets_strips *s) {
    return (int64_t)(s->groups + 1) * nets_strips_ceil(s->channels, 8);
}

/* A tile: its number, the row of its first pixel, and its size inside the image. Lines are `columns` rows apart. */
typedef struct nets_tile {
    int number, row, width, height;
} nets_tile;

NETS_STRIPS_FN nets_tile nets_tile_at(const nets_strips *s, int tile) {
    const unsigned t = (unsigned)tile, image = nets_divided(s->by_whole, t);
    const unsigned rest = t - image * (unsigned)s->tiles_whole, strip = nets_divided(s->by_across, rest);
    const int y = 4 * (int)strip, x = 4 * (int)(rest - strip * (unsigned)s->tiles_across);
    nets_tile at;
    at.number = tile;
    at.row = (int)image * s->plane + y * s->columns + x;
    at.width = s->columns - x < 4 ? s->columns - x : 4;
    at.height = s->lines - y < 4 ? s->lines - y : 4;
    return at;
}

/* ---------------------------------------------------------------- mean and squared deviations */

/* Welford's recurrence: x is the n-th value; weight = 1 / n. It avoids differences of large sums. */
NETS_STRIPS_FN void nets_moments_take(float x, float weight, float *mean, float *squares) {
    const float apart = x - *mean;
    *mean = fmaf(apart, weight, *mean);
    *squares = fmaf(apart, x - *mean, *squares);
}

/* Joins the moments of two groups as Chan et al., "Algorithms for computing the sample variance" (1983). n: number of
 * values in the first group; share: the other group's share of all values. */
NETS_STRIPS_FN void nets_moments_join(float *mean, float *squares, float n, float other_mean, float other_squares,
                                      float share) {
    const float apart = other_mean - *mean;
    *mean += apart * share;
    *squares += other_squares + apart * apart * n * share;
}

/* nets_parts_take adds the mean and the squares of a part of `rows` pixels to sums, as deviations from `origin`, the
 * first part's mean. nets_parts_close turns the sums over all parts into their common mean and squares. */
NETS_STRIPS_FN void nets_parts_take(double mean, double squares, double origin, double rows, double *sum,
                                    double *sum_squares) {
    const double apart = mean - origin, weighted = rows * apart;
    *sum += weighted;
    *sum_squares += squares + weighted * apart;
}

NETS_STRIPS_FN void nets_parts_close(double origin, double rows, double *mean, double *squares) {
    const double sum = *mean, apart = sum / rows;
    *mean = origin + apart;
    *squares -= sum * apart;
}

#endif

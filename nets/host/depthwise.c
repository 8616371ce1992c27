/* SPDX-License-Identifier: MIT */
/* An item of work is a piece of the images and a block of channels. Sums are over some rows of windows, then over all
 * rows of the piece's images, then over the pieces, in order. The scratch: sums[piece][kernel's pixel][channel]. */
#include "nets/host/depthwise.h"

#include <string.h>

#include "nets/contract/op_sizes.h"

/* The channels of a block, and windows that are summed at once: of 32 channels (simd_map_loops.h) they stay in the
 * fastest cache while the kernel goes over them. Chosen. */
enum { CHANNELS = 64, WINDOWS = 128 };

typedef struct depthwise_run {
    const nets_depthwise *d;
    const char *x, *dy;
    bool adds;
    float *dw, *sums;
} depthwise_run;

static int64_t pixels_of(const nets_depthwise *d) { return d->w.kernel[0] * d->w.kernel[1]; }
static int64_t blocks_of(const nets_depthwise *d) { return (d->w.x[3] + CHANNELS - 1) / CHANNELS; }

nets_depthwise nets_depthwise_of(const nets_dnn_windows *w, mm_host_pool *pool) {
    const mm_dtype maps = w->half ? MM_BF16 : MM_F32;
    return (nets_depthwise){pool, nets_simd_map_best(maps), mm_dtype_bytes(maps),
                            nets_cut_of(w->x[0], nets_pieces(pool), 1, 1), *w};
}

int64_t nets_depthwise_bytes(const nets_depthwise *d) {
    return nets_aligned(d->images.pieces * pixels_of(d) * d->w.x[3] * (int64_t)sizeof(float));
}

static int64_t ceil_div(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : 0; }

/* The windows whose element k of the kernel, along an axis, lies inside x: from `from` to below `end`. Window 0's lies
 * at `offset`. */
typedef struct met {
    int64_t from, end, offset;
} met;

static met windows_of(const nets_dnn_windows *w, int axis, int64_t k) {
    const int64_t offset = k * w->dilation[axis] - w->pad[axis], last = w->x[1 + axis] - 1 - offset;
    const int64_t fit = last < 0 ? 0 : last / w->stride[axis] + 1;
    return (met){ceil_div(-offset, w->stride[axis]), fit < w->y[1 + axis] ? fit : w->y[1 + axis], offset};
}

/* Adds the products of an image's windows in rows `from` to `to` - 1; x, dy and `sums` begin at `n` channels. */
static void add_rows(const depthwise_run *run, const char *x, const char *dy, int64_t from, int64_t to, int64_t n,
                     float *sums) {
    const nets_dnn_windows *w = &run->d->w;
    const int64_t channels = w->x[3], x_row = w->x[2] * channels, y_row = w->y[2] * channels;
    for (int64_t k = 0; k < w->kernel[0] * w->kernel[1]; k++) {
        const met rows = windows_of(w, 0, k / w->kernel[1]), columns = windows_of(w, 1, k % w->kernel[1]);
        const int64_t top = rows.from > from ? rows.from : from, bottom = rows.end < to ? rows.end : to;
        if (top >= bottom || columns.from >= columns.end) continue;
        const nets_simd_grid a = {y_row, channels}, b = {w->stride[0] * x_row, w->stride[1] * channels};
        const int64_t dy_at = top * y_row + columns.from * channels;
        const int64_t x_at =
            (top * w->stride[0] + rows.offset) * x_row + (columns.from * w->stride[1] + columns.offset) * channels;
        run->d->lines->add_products(dy + dy_at * run->d->elem_bytes, a, x + x_at * run->d->elem_bytes, b, bottom - top,
                                    columns.end - columns.from, n, sums + k * channels);
    }
}

/* `n` channels of an image, from `first` on, some rows of windows at a time. */
static void add_image(const depthwise_run *run, int64_t image, int64_t first, int64_t n, float *sums) {
    const nets_dnn_windows *w = &run->d->w;
    const int64_t some = nets_larger(WINDOWS / w->y[2], 1);
    const int64_t x_at = image * w->x[1] * w->x[2] * w->x[3] + first,
                  dy_at = image * w->y[1] * w->y[2] * w->x[3] + first;
    for (int64_t y = 0; y < w->y[1]; y += some)
        add_rows(run, run->x + x_at * run->d->elem_bytes, run->dy + dy_at * run->d->elem_bytes, y,
                 y + some < w->y[1] ? y + some : w->y[1], n, sums + first);
}

static void sum_items(const void *ctx, int64_t from, int64_t to) {
    const depthwise_run *run = ctx;
    const nets_depthwise *d = run->d;
    const int64_t channels = d->w.x[3], blocks = blocks_of(d), pixels = pixels_of(d);
    for (int64_t i = from; i < to; i++) {
        const int64_t first = i % blocks * CHANNELS, n = channels - first < CHANNELS ? channels - first : CHANNELS;
        const int64_t image = i / blocks * d->images.each, end = image + d->images.each;
        float *sums = run->sums + i / blocks * pixels * channels;
        for (int64_t k = 0; k < pixels; k++) memset(sums + k * channels + first, 0, (size_t)n * sizeof *sums);
        for (int64_t at = image; at < end && at < d->images.items; at++) add_image(run, at, first, n, sums);
    }
}

static void join(const void *ctx, int64_t from, int64_t to) {
    const depthwise_run *run = ctx;
    const int64_t channels = run->d->w.x[3], pixels = pixels_of(run->d);
    for (int64_t c = from; c < to; c++)
        for (int64_t k = 0; k < pixels; k++) {
            float sum = run->sums[k * channels + c];
            for (int64_t p = 1; p < run->d->images.pieces; p++) sum += run->sums[(p * pixels + k) * channels + c];
            run->dw[c * pixels + k] = run->adds ? run->dw[c * pixels + k] + sum : sum;
        }
}

void nets_depthwise_give_weights(const nets_depthwise *d, const void *x, const void *dy, bool adds, float *dw,
                                 void *scratch) {
    const depthwise_run run = {d, x, dy, adds, dw, scratch};
    const int64_t windows = d->images.each * d->w.y[1] * d->w.y[2];
    nets_ranges(d->pool, d->images.pieces * blocks_of(d), 1, windows * pixels_of(d) * CHANNELS, sum_items, &run);
    nets_ranges(d->pool, d->w.x[3], 1, pixels_of(d) * d->images.pieces, join, &run);
}

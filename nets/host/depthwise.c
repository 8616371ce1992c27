/* SPDX-License-Identifier: MIT */
/* An item of work is a piece of the images and a block of channels. Sums are over a row of windows, then over the rows
 * of the piece's images, then over the pieces, in order. The scratch: sums[piece][kernel's pixel][channel]. */
#include "nets/host/depthwise.h"

#include <string.h>

#include "nets/contract/op_sizes.h"

enum { CHANNELS = 64 }; /* of a block: a row of them stays in the fastest cache. Chosen */

typedef struct depthwise_run {
    const nets_depthwise *d;
    const float *x, *dy;
    bool adds;
    float *dw, *sums;
} depthwise_run;

static int64_t pixels_of(const nets_depthwise *d) { return d->w.kernel[0] * d->w.kernel[1]; }
static int64_t blocks_of(const nets_depthwise *d) { return (d->w.x[3] + CHANNELS - 1) / CHANNELS; }

nets_depthwise nets_depthwise_of(const nets_dnn_windows *w, mm_host_pool *pool) {
    return (nets_depthwise){pool, nets_simd_row_best(), nets_cut_of(w->x[0], nets_pieces(pool), 1, 1), *w};
}

int64_t nets_depthwise_bytes(const nets_depthwise *d) {
    return nets_aligned(d->images.pieces * pixels_of(d) * d->w.x[3] * (int64_t)sizeof(float));
}

static int64_t ceil_div(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : 0; }

/* Adds the products of a row of dy with the row of x that the kernel's row `ky` meets, to the sums of that row. */
static void add_row(const depthwise_run *run, const float *x, const float *dy, int64_t ky, int64_t n, float *sums) {
    const nets_dnn_windows *w = &run->d->w;
    const int64_t channels = w->x[3], stride = w->stride[1];
    for (int64_t kx = 0; kx < w->kernel[1]; kx++) {
        const int64_t offset = kx * w->dilation[1] - w->pad[1]; /* window 0 meets this column of x */
        const int64_t from = ceil_div(-offset, stride), last = w->x[2] - 1 - offset;
        const int64_t fit = last < 0 ? 0 : last / stride + 1, end = fit < w->y[2] ? fit : w->y[2];
        if (from >= end) continue;
        run->d->loops->products(dy + from * channels, channels, x + (from * stride + offset) * channels,
                                stride * channels, end - from, n, sums + (ky * w->kernel[1] + kx) * channels);
    }
}

/* `n` channels of an image, from `first` on. */
static void add_image(const depthwise_run *run, int64_t image, int64_t first, int64_t n, float *sums) {
    const nets_dnn_windows *w = &run->d->w;
    for (int64_t y = 0; y < w->y[1]; y++)
        for (int64_t ky = 0; ky < w->kernel[0]; ky++) {
            const int64_t row = y * w->stride[0] - w->pad[0] + ky * w->dilation[0];
            if (row < 0 || row >= w->x[1]) continue;
            add_row(run, run->x + (image * w->x[1] + row) * w->x[2] * w->x[3] + first,
                    run->dy + (image * w->y[1] + y) * w->y[2] * w->x[3] + first, ky, n, sums + first);
        }
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

void nets_depthwise_give_weights(const nets_depthwise *d, const float *x, const float *dy, bool adds, float *dw,
                                 void *scratch) {
    const depthwise_run run = {d, x, dy, adds, dw, scratch};
    const int64_t windows = d->images.each * d->w.y[1] * d->w.y[2];
    nets_ranges(d->pool, d->images.pieces * blocks_of(d), 1, windows * pixels_of(d) * CHANNELS, sum_items, &run);
    nets_ranges(d->pool, d->w.x[3], 1, pixels_of(d) * d->images.pieces, join, &run);
}

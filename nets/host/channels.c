/* SPDX-License-Identifier: MIT */
#include "nets/host/channels.h"

#include <math.h>
#include <stddef.h>

#include "nets/contract/op_sizes.h"
#include "nets/host/channels_codes.h"

/* A chunk begins with a word of the sign mask, so it has a multiple of 32 lines. The LEAST numbers are chosen. */
enum { MASK_BITS = 32, CHUNK_LINES = MASK_BITS, LEAST_LANES = 256, LEAST_CHUNKS = 2 };

/* How many arrays of lanes the passes need: for statistics, STATISTICS_LANES for each place; for sums of gradients,
 * SUMS_SHARED and SUMS_LANES for each place; for gradients, GRADIENT_LANES in all. */
enum { STATISTICS_LANES = 3, SUMS_SHARED = 1, SUMS_LANES = 2, GRADIENT_LANES = 4 };

static int64_t lane_count(int places) {
    int64_t passes = nets_larger(STATISTICS_LANES * (int64_t)places, SUMS_SHARED + SUMS_LANES * (int64_t)places);
    return nets_larger(passes, GRADIENT_LANES);
}

nets_channels nets_channels_of(int64_t rows, int64_t channels, mm_dtype maps, mm_host_pool *pool) {
    nets_channels ch = {.lines = nets_simd_map_best(maps),
                        .elem_bytes = mm_dtype_bytes(maps),
                        .pool = pool,
                        .rows = rows,
                        .channels = channels,
                        .elems = rows * channels};
    ch.lanes = (LEAST_LANES + channels - 1) / channels * channels;
    ch.chunk_elems = CHUNK_LINES * ch.lanes;
    ch.blocks = nets_cut_of((ch.elems + ch.chunk_elems - 1) / ch.chunk_elems, nets_pieces(pool), 1, LEAST_CHUNKS);
    ch.places = (int)nets_places(pool, ch.blocks.pieces);
    ch.scratch_bytes = lane_count(ch.places) * nets_aligned(ch.lanes * (int64_t)sizeof(float)) +
                       2 * (ch.places + ch.blocks.pieces) * nets_aligned(channels * (int64_t)sizeof(double));
    ch.by_x_bytes = 2 * nets_aligned(ch.lanes * (int64_t)sizeof(float));
    ch.chunk_bytes = ch.places * nets_aligned(ch.chunk_elems * (int64_t)sizeof(float));
    return ch;
}

/* The parts of the scratch, in order: arrays of lanes; arrays of channels, two for each place and for each block; then
 * a chunk for each place, or the arrays of lanes for by_x. No call needs both chunks and these arrays. */
typedef struct workspace {
    char *lanes, *parts, *totals, *rest;
    int64_t lane_bytes, channel_bytes, chunk_bytes;
} workspace;

static workspace divide(const nets_channels *ch, void *scratch) {
    workspace w = {.lanes = scratch,
                   .lane_bytes = nets_aligned(ch->lanes * (int64_t)sizeof(float)),
                   .channel_bytes = nets_aligned(ch->channels * (int64_t)sizeof(double)),
                   .chunk_bytes = ch->chunk_bytes / ch->places};
    w.parts = w.lanes + lane_count(ch->places) * w.lane_bytes;
    w.totals = w.parts + 2 * ch->places * w.channel_bytes;
    w.rest = w.totals + 2 * ch->blocks.pieces * w.channel_bytes;
    return w;
}

static float *lane_at(const workspace *w, int64_t i) { return (float *)(w->lanes + i * w->lane_bytes); }
static float *by_x_at(const workspace *w, int i) { return (float *)(w->rest + i * w->lane_bytes); }
static float *chunk_of(const workspace *w, int64_t place) { return (float *)(w->rest + place * w->chunk_bytes); }
/* The i-th of the two arrays of a place, or of a block. */
static double *part_of(const workspace *w, int64_t place, int i) {
    return (double *)(w->parts + (2 * place + i) * w->channel_bytes);
}
static double *total_of(const workspace *w, int64_t block, int i) {
    return (double *)(w->totals + (2 * block + i) * w->channel_bytes);
}

/* ---------------------------------------------------------------- blocks */

/* A pass over all blocks. */
typedef struct block_pass {
    const nets_channels *ch;
    const workspace *w;
    const void *of;
    void (*fn)(const struct block_pass *pass, int64_t block, int64_t place);
} block_pass;

static mm_status run_block(void *ctx, int64_t block, int thread) {
    const block_pass *pass = ctx;
    pass->fn(pass, block, nets_place(pass->ch->pool, pass->ch->blocks.pieces, block, thread));
    return MM_OK;
}

static void run_blocks(block_pass pass) {
    mm_status never_fails = mm_host_pool_run(pass.ch->pool, pass.ch->blocks.pieces, run_block, &pass);
    (void)never_fails;
}

/* A map from element `at` on; NULL for none. */
static const void *in_map(const nets_channels *ch, const void *map, int64_t at) {
    return map ? (const char *)map + at * ch->elem_bytes : NULL;
}
static void *to_map(const nets_channels *ch, void *map, int64_t at) {
    return map ? (char *)map + at * ch->elem_bytes : NULL;
}

static int64_t chunk_at(const nets_channels *ch, int64_t at) {
    return ch->elems - at < ch->chunk_elems ? ch->elems - at : ch->chunk_elems;
}

/* A block's elements: the first, and the one after the last. */
static int64_t block_begin(const nets_channels *ch, int64_t block) { return block * ch->blocks.each * ch->chunk_elems; }
static int64_t block_end(const nets_channels *ch, int64_t block) {
    int64_t end = block_begin(ch, block + 1);
    return end < ch->elems ? end : ch->elems;
}

#define FOR_EACH_CHUNK(ch, block)                                                                                      \
    for (int64_t at = block_begin(ch, block), n; at < block_end(ch, block) && (n = chunk_at(ch, at)) > 0; at += n)

/* Repeats the first lanes, one for each channel, in all lanes. */
static void spread(const nets_channels *ch, float *lane) {
    for (int64_t i = ch->channels; i < ch->lanes; i++) lane[i] = lane[i - ch->channels];
}

/* Writes each channel's value to all its lanes. */
static void put(const nets_channels *ch, const float *values, float *lane) {
    for (int64_t c = 0; c < ch->channels; c++) lane[c] = values[c];
    spread(ch, lane);
}

/* Adds each channel's lanes to `sum`. */
static void gather(const nets_channels *ch, const float *lane, double *sum) {
    for (int64_t at = 0; at < ch->lanes; at += ch->channels)
#pragma omp simd
        for (int64_t c = 0; c < ch->channels; c++) sum[c] += (double)lane[at + c];
}

static void clear(const nets_channels *ch, double *sum) {
    for (int64_t c = 0; c < ch->channels; c++) sum[c] = 0;
}

/* Adds the sums of all blocks to those of the first, in order. */
static void join_sums(const nets_channels *ch, const workspace *w, int i) {
    double *sum = total_of(w, 0, i);
    for (int64_t block = 1; block < ch->blocks.pieces; block++) {
        const double *more = total_of(w, block, i);
        for (int64_t c = 0; c < ch->channels; c++) sum[c] += more[c];
    }
}

/* ---------------------------------------------------------------- statistics */

/* Writes a chunk's means to the place's array 0, and the sums of squared differences from them to array 1. */
static void measure_chunk(const nets_channels *ch, const workspace *w, int64_t place, const void *x, int64_t n) {
    float *sum = lane_at(w, STATISTICS_LANES * place), *first = lane_at(w, STATISTICS_LANES * place + 1);
    float *mean = lane_at(w, STATISTICS_LANES * place + 2);
    double *means = part_of(w, place, 0), *squares = part_of(w, place, 1), rows = (double)(n / ch->channels);
    clear(ch, means);
    clear(ch, squares);
    ch->lines->widen(x, ch->channels, first);
    spread(ch, first);
    ch->lines->sums(x, first, n, ch->lanes, sum);
    gather(ch, sum, means);
    for (int64_t c = 0; c < ch->channels; c++) {
        means[c] = (double)first[c] + means[c] / rows;
        mean[c] = (float)means[c];
    }
    spread(ch, mean);
    ch->lines->squares(x, n, ch->lanes, mean, sum);
    gather(ch, sum, squares);
    for (int64_t c = 0; c < ch->channels; c++) { /* corrects for the rounding of `mean` */
        double off = means[c] - (double)mean[c], about = squares[c] - rows * off * off;
        squares[c] = about < 0 ? 0 : about;
    }
}

/* Joins the statistics of `rows` rows to those of the `before` rows ahead of them. */
static void join(const nets_channels *ch, double before, double *mean, double *squares, double rows,
                 const double *more_mean, const double *more_squares) {
    double weight = rows / (before + rows), both = before * weight;
    for (int64_t c = 0; c < ch->channels; c++) {
        double delta = more_mean[c] - mean[c];
        mean[c] += delta * weight;
        squares[c] += more_squares[c] + delta * delta * both;
    }
}

static void measure_block(const block_pass *pass, int64_t block, int64_t place) {
    const nets_channels *ch = pass->ch;
    double *mean = total_of(pass->w, block, 0), *squares = total_of(pass->w, block, 1);
    clear(ch, mean);
    clear(ch, squares);
    FOR_EACH_CHUNK(ch, block) {
        measure_chunk(ch, pass->w, place, in_map(ch, pass->of, at), n);
        join(ch, (double)((at - block_begin(ch, block)) / ch->channels), mean, squares, (double)(n / ch->channels),
             part_of(pass->w, place, 0), part_of(pass->w, place, 1));
    }
}

void nets_channels_statistics(const nets_channels *ch, const void *x, float *mean_out, float *var_out, void *scratch) {
    const workspace w = divide(ch, scratch);
    double *mean = total_of(&w, 0, 0), *squares = total_of(&w, 0, 1);
    run_blocks((block_pass){.ch = ch, .w = &w, .of = x, .fn = measure_block});
    for (int64_t block = 1; block < ch->blocks.pieces; block++) {
        int64_t begin = block_begin(ch, block), rows = (block_end(ch, block) - begin) / ch->channels;
        join(ch, (double)(begin / ch->channels), mean, squares, (double)rows, total_of(&w, block, 0),
             total_of(&w, block, 1));
    }
    for (int64_t c = 0; c < ch->channels; c++) {
        mean_out[c] = (float)mean[c];
        var_out[c] = (float)(squares[c] / (double)ch->rows);
    }
}

/* ---------------------------------------------------------------- batch norm */

/* y = (x - mean) * factor + shift */
static nets_lanes_map map_of(const nets_channels *ch, const nets_channels_affine *of, float *mean, float *factor,
                             float *shift) {
    for (int64_t c = 0; c < ch->channels; c++) factor[c] = of->scale[c] / sqrtf(of->var[c] + of->eps);
    spread(ch, factor);
    put(ch, of->mean, mean);
    put(ch, of->shift, shift);
    return (nets_lanes_map){.mean = mean, .factor = factor, .shift = shift};
}

typedef struct normalising {
    const nets_channels_norm *norm;
    nets_lanes_map with;
} normalising;

static void normalise(const nets_channels *ch, const normalising *of, int64_t at, int64_t n) {
    const nets_channels_norm *norm = of->norm;
    ch->lines->map(in_map(ch, norm->x, at), in_map(ch, norm->x2, at), n, ch->lanes, of->with, norm->relu,
                   to_map(ch, norm->y, at));
}

static void normalise_block(const block_pass *pass, int64_t block, int64_t place) {
    const nets_channels *ch = pass->ch;
    const normalising *of = pass->of;
    const nets_channels_norm *norm = of->norm;
    const int64_t begin = block_begin(ch, block);
    (void)place;
    if (!norm->x_code && !norm->y_code) {
        normalise(ch, of, begin, block_end(ch, block) - begin);
        return;
    }
    int64_t x_strip = nets_strip_from(norm->x_code, begin), y_strip = nets_strip_from(norm->y_code, begin);
    FOR_EACH_CHUNK(ch, block) { /* by chunks: elements are in the cache when they are encoded */
        normalise(ch, of, at, n);
        nets_encode_to(norm->x_code, norm->x, at + n, &x_strip);
        nets_encode_to(norm->y_code, norm->y, at + n, &y_strip);
    }
}

void nets_channels_normalise(const nets_channels *ch, const nets_channels_norm *norm, void *scratch) {
    const workspace w = divide(ch, scratch);
    const normalising of = {.norm = norm,
                            .with = map_of(ch, &norm->by, lane_at(&w, 0), lane_at(&w, 1), lane_at(&w, 2))};
    const int64_t block_elems = block_begin(ch, 1);
    run_blocks((block_pass){.ch = ch, .w = &w, .of = &of, .fn = normalise_block});
    nets_encode_across(norm->x_code, norm->x, block_elems, ch->blocks.pieces);
    nets_encode_across(norm->y_code, norm->y, block_elems, ch->blocks.pieces);
}

/* Writes a chunk of dy to `to`, zero where the mask says that y is not positive. Returns `to`. */
static const void *pass_gate(const nets_channels *ch, const uint32_t *mask, const void *dy, int64_t at, void *to) {
    ch->lines->gate(NULL, mask + at / MASK_BITS, in_map(ch, dy, at), chunk_at(ch, at), to);
    return to;
}

static nets_code_window window_of(const nets_channels *ch, const nets_channels_gradients *g, int64_t place) {
    if (g->x) return (nets_code_window){.elems = g->x, .elem_bytes = ch->elem_bytes};
    const int64_t elems = ch->chunk_elems + 2 * g->x_code->strips->strip_elems;
    return (nets_code_window){.code = g->x_code, .decoded = (float *)g->window + place * elems};
}

typedef struct backward {
    const nets_channels_gradients *g;
    bool by_x;        /* y's signs are computed from x */
    nets_lanes_map y; /* with by_x: the map from x to y */
    void *kept;       /* where the first pass writes g, the part of dy that passes the ReLU; NULL: nowhere */
    const void *from; /* where the second pass reads g or, with by_x or without a ReLU, dy */
    nets_lanes_gradient with;
} backward;

/* Sums g, the part of dy that passes the ReLU, and g * (x - mean). */
static void sum_block(const block_pass *pass, int64_t block, int64_t place) {
    const nets_channels *ch = pass->ch;
    const workspace *w = pass->w;
    const backward *of = pass->of;
    const nets_channels_gradients *g = of->g;
    float *mean = lane_at(w, 0), *sum = lane_at(w, SUMS_SHARED + SUMS_LANES * place);
    float *sum_x = lane_at(w, SUMS_SHARED + SUMS_LANES * place + 1);
    nets_code_window xs = window_of(ch, g, place);
    for (int i = 0; i < 2; i++) clear(ch, total_of(w, block, i));
    FOR_EACH_CHUNK(ch, block) {
        const void *x = nets_code_window_at(&xs, at, n), *g_dy = in_map(ch, g->dy, at);
        if (of->by_x) { /* g is not written: the second pass computes the signs, too */
            ch->lines->products_by_x(of->y, g_dy, x, n, ch->lanes, sum, sum_x);
        } else {
            void *to = of->kept ? to_map(ch, of->kept, at) : chunk_of(w, place);
            const void *y = g->relu && !g->mask ? in_map(ch, g->y, at) : NULL;
            const void *dy = g->relu && g->mask ? pass_gate(ch, g->mask, g->dy, at, to) : g_dy;
            ch->lines->products(y, dy, x, n, ch->lanes, mean, to, sum, sum_x);
            if (g->dx2 && g->earlier2) ch->lines->add(to, in_map(ch, g->earlier2, at), n, to_map(ch, g->dx2, at));
        }
        gather(ch, sum, total_of(w, block, 0));
        gather(ch, sum_x, total_of(w, block, 1));
    }
}

static void gradient(const nets_channels *ch, const backward *of, const void *x, int64_t at, int64_t n) {
    const nets_channels_gradients *g = of->g;
    const void *earlier = in_map(ch, g->earlier, at), *from = in_map(ch, of->from, at);
    void *dx = to_map(ch, g->dx, at);
    if (of->by_x)
        ch->lines->gradient_by_x(of->y, from, x, earlier, n, ch->lanes, of->with, dx);
    else
        ch->lines->gradient(from, x, earlier, n, ch->lanes, of->with, dx);
}

static void gradient_block(const block_pass *pass, int64_t block, int64_t place) {
    const nets_channels *ch = pass->ch;
    const backward *of = pass->of;
    const int64_t begin = block_begin(ch, block);
    nets_code_window xs = window_of(ch, of->g, place);
    if (!xs.code) {
        gradient(ch, of, in_map(ch, of->g->x, begin), begin, block_end(ch, block) - begin);
        return;
    }
    FOR_EACH_CHUNK(ch, block) gradient(ch, of, nets_code_window_at(&xs, at, n), at, n);
}

/* Computes the parameters' gradients and the lanes for dx. The sums are the first block's totals. */
static void conclude_sums(const nets_channels *ch, const nets_channels_gradients *g, const workspace *w) {
    const double *sum = total_of(w, 0, 0), *sum_x = total_of(w, 0, 1);
    for (int64_t c = 0; c < ch->channels; c++) {
        double inverse = 1 / sqrt((double)g->by.var[c] + (double)g->by.eps), rows = (double)ch->rows;
        g->dshift[c] = (float)sum[c];
        g->dscale[c] = (float)(sum_x[c] * inverse);
        lane_at(w, 0)[c] = g->by.mean[c];
        lane_at(w, 1)[c] = (float)((double)g->by.scale[c] * inverse);
        lane_at(w, 2)[c] = (float)(sum[c] / rows);
        lane_at(w, 3)[c] = (float)(sum_x[c] * inverse * inverse / rows);
    }
}

void nets_channels_backward(const nets_channels *ch, const nets_channels_gradients *g, void *scratch) {
    const workspace w = divide(ch, scratch);
    backward of = {
        .g = g,
        .by_x = g->relu && !g->y && !g->mask,
        .kept = g->dx2 && !g->earlier2 ? g->dx2 : g->dx,
        .with = {.mean = lane_at(&w, 0), .factor = lane_at(&w, 1), .mean_g = lane_at(&w, 2), .slope = lane_at(&w, 3)}};
    if (of.by_x)
        of.y = map_of(ch, &g->by, lane_at(&w, 0), by_x_at(&w, 0), by_x_at(&w, 1));
    else
        put(ch, g->by.mean, lane_at(&w, 0));
    of.from = g->relu && !of.by_x ? of.kept : g->dy;
    run_blocks((block_pass){.ch = ch, .w = &w, .of = &of, .fn = sum_block});
    for (int i = 0; i < 2; i++) join_sums(ch, &w, i);
    conclude_sums(ch, g, &w);
    if (!g->dx) return;
    for (int i = 0; i < GRADIENT_LANES; i++) spread(ch, lane_at(&w, i));
    run_blocks((block_pass){.ch = ch, .w = &w, .of = &of, .fn = gradient_block});
}

/* ---------------------------------------------------------------- biases */

typedef struct adding {
    const void *x;
    const float *lane;
    bool relu;
    void *y;
} adding;

static void add_bias_block(const block_pass *pass, int64_t block, int64_t place) {
    const nets_channels *ch = pass->ch;
    const adding *of = pass->of;
    int64_t at = block_begin(ch, block);
    (void)place;
    ch->lines->add_bias(in_map(ch, of->x, at), block_end(ch, block) - at, ch->lanes, of->lane, of->relu,
                        to_map(ch, of->y, at));
}

void nets_channels_add_bias(const nets_channels *ch, const void *x, const float *bias, bool relu, void *y,
                            void *scratch) {
    const workspace w = divide(ch, scratch);
    const adding of = {.x = x, .lane = lane_at(&w, 0), .relu = relu, .y = y};
    put(ch, bias, lane_at(&w, 0));
    run_blocks((block_pass){.ch = ch, .w = &w, .of = &of, .fn = add_bias_block});
}

static void bias_block(const block_pass *pass, int64_t block, int64_t place) {
    const nets_channels *ch = pass->ch;
    const nets_channels_bias *b = pass->of;
    float *sum = lane_at(pass->w, place);
    clear(ch, total_of(pass->w, block, 0));
    FOR_EACH_CHUNK(ch, block) {
        void *to = b->dx ? to_map(ch, b->dx, at) : chunk_of(pass->w, place);
        const void *g = in_map(ch, b->dy, at);
        if (b->mask) g = pass_gate(ch, b->mask, b->dy, at, to);
        if (b->y) {
            ch->lines->gate(in_map(ch, b->y, at), NULL, g, n, to);
            g = to;
        }
        ch->lines->sums(g, NULL, n, ch->lanes, sum);
        gather(ch, sum, total_of(pass->w, block, 0));
        if (b->dx && b->earlier) ch->lines->add(g, in_map(ch, b->earlier, at), n, to);
    }
}

void nets_channels_bias_backward(const nets_channels *ch, const nets_channels_bias *b, void *scratch) {
    const workspace w = divide(ch, scratch);
    run_blocks((block_pass){.ch = ch, .w = &w, .of = b, .fn = bias_block});
    join_sums(ch, &w, 0);
    for (int64_t c = 0; c < ch->channels; c++) b->dbias[c] = (float)total_of(&w, 0, 0)[c];
}

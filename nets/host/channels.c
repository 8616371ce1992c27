#include "nets/host/channels.h"

#include <math.h>
#include <stddef.h>

#include "nets/op_sizes.h"

/* A chunk begins with a mask's word. */
enum { MASK_BITS = 32, CHUNK_LINES = MASK_BITS, LEAST_LANES = 256, N_LANES = 4 };

nets_channels nets_channels_of(int64_t rows, int64_t channels) {
    nets_channels ch = {.lines = nets_lines_best(), .rows = rows, .channels = channels, .elems = rows * channels};
    ch.lanes = (LEAST_LANES + channels - 1) / channels * channels;
    ch.chunk_elems = CHUNK_LINES * ch.lanes;
    ch.scratch_bytes = N_LANES * nets_aligned(ch.lanes * (int64_t)sizeof(float)) +
                       4 * nets_aligned(channels * (int64_t)sizeof(double));
    ch.chunk_bytes = nets_aligned(ch.chunk_elems * (int64_t)sizeof(float));
    return ch;
}

/* Numbers of each lane, numbers of each channel. */
typedef struct workspace {
    float *lane[N_LANES];
    double *part[2], *total[2];
    float *chunk; /* behind the scratch */
} workspace;

static void *take(char **at, int64_t bytes) {
    void *taken = *at;
    *at += nets_aligned(bytes);
    return taken;
}

static workspace divide(const nets_channels *ch, void *scratch) {
    workspace w;
    char *at = scratch;
    for (int i = 0; i < N_LANES; i++) w.lane[i] = take(&at, ch->lanes * (int64_t)sizeof(float));
    for (int i = 0; i < 2; i++) w.part[i] = take(&at, ch->channels * (int64_t)sizeof(double));
    for (int i = 0; i < 2; i++) w.total[i] = take(&at, ch->channels * (int64_t)sizeof(double));
    w.chunk = (float *)at;
    return w;
}

/* Repeats what the first lanes have, one for each channel, for all of them. */
static void spread(const nets_channels *ch, float *lane) {
    for (int64_t i = ch->channels; i < ch->lanes; i++) lane[i] = lane[i - ch->channels];
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

static int64_t chunk_at(const nets_channels *ch, int64_t at) {
    return ch->elems - at < ch->chunk_elems ? ch->elems - at : ch->chunk_elems;
}

/* ---------------------------------------------------------------- statistics */

/* Means to part[0], squares about them to part[1]. */
static void measure_chunk(const nets_channels *ch, const workspace *w, const float *x, int64_t n) {
    float *sum = w->lane[0], *first = w->lane[1], *mean = w->lane[2];
    double rows = (double)(n / ch->channels);
    for (int i = 0; i < 2; i++) clear(ch, w->part[i]);
    for (int64_t c = 0; c < ch->channels; c++) first[c] = x[c];
    spread(ch, first);
    ch->lines->sums(x, first, n, ch->lanes, sum);
    gather(ch, sum, w->part[0]);
    for (int64_t c = 0; c < ch->channels; c++) {
        w->part[0][c] = (double)first[c] + w->part[0][c] / rows;
        mean[c] = (float)w->part[0][c];
    }
    spread(ch, mean);
    ch->lines->squares(x, n, ch->lanes, mean, sum);
    gather(ch, sum, w->part[1]);
    for (int64_t c = 0; c < ch->channels; c++) { /* about the mean before it was rounded */
        double off = w->part[0][c] - (double)mean[c], squares = w->part[1][c] - rows * off * off;
        w->part[1][c] = squares < 0 ? 0 : squares;
    }
}

/* Takes a chunk's statistics into those of the `before` rows ahead of it. */
static void join(const nets_channels *ch, const workspace *w, double before, double rows) {
    double *mean = w->total[0], *squares = w->total[1];
    double weight = rows / (before + rows), both = before * weight;
    for (int64_t c = 0; c < ch->channels; c++) {
        double delta = w->part[0][c] - mean[c];
        mean[c] += delta * weight;
        squares[c] += w->part[1][c] + delta * delta * both;
    }
}

void nets_channels_statistics(const nets_channels *ch, const float *x, float *mean_out, float *var_out, void *scratch) {
    workspace w = divide(ch, scratch);
    for (int i = 0; i < 2; i++) clear(ch, w.total[i]);
    for (int64_t at = 0; at < ch->elems; at += ch->chunk_elems) {
        int64_t n = chunk_at(ch, at);
        measure_chunk(ch, &w, x + at, n);
        join(ch, &w, (double)(at / ch->channels), (double)(n / ch->channels));
    }
    for (int64_t c = 0; c < ch->channels; c++) {
        mean_out[c] = (float)w.total[0][c];
        var_out[c] = (float)(w.total[1][c] / (double)ch->rows);
    }
}

/* ---------------------------------------------------------------- batch norm */

void nets_channels_normalise(const nets_channels *ch, const nets_channels_norm *norm, void *scratch) {
    workspace w = divide(ch, scratch);
    for (int64_t c = 0; c < ch->channels; c++) {
        w.lane[0][c] = norm->mean[c];
        w.lane[1][c] = norm->scale[c] / sqrtf(norm->var[c] + norm->eps);
        w.lane[2][c] = norm->shift[c];
    }
    for (int i = 0; i < 3; i++) spread(ch, w.lane[i]);
    const nets_lanes_map with = {.mean = w.lane[0], .factor = w.lane[1], .shift = w.lane[2]};
    ch->lines->map(norm->x, norm->x2, ch->elems, ch->lanes, with, norm->relu, norm->y);
}

/* A chunk of what passes the ReLU, by the mask. */
static const float *pass(const nets_channels *ch, const uint32_t *mask, const float *dy, int64_t at, float *to) {
    ch->lines->gate(NULL, mask + at / MASK_BITS, dy + at, chunk_at(ch, at), to);
    return to;
}

/* Sums of what passes the ReLU, g, and of g * (x - mean). g is left where the second pass can read it. */
static const float *sum_gradients(const nets_channels *ch, const nets_channels_gradients *g, const workspace *w) {
    float *mean = w->lane[0], *sum = w->lane[1], *sum_x = w->lane[2];
    float *kept = g->dx2 && !g->earlier2 ? g->dx2 : g->dx;
    for (int64_t c = 0; c < ch->channels; c++) mean[c] = g->mean[c];
    spread(ch, mean);
    for (int i = 0; i < 2; i++) clear(ch, w->total[i]);
    for (int64_t at = 0; at < ch->elems; at += ch->chunk_elems) {
        int64_t n = chunk_at(ch, at);
        float *to = kept ? kept + at : w->chunk;
        const float *y = g->relu && !g->mask ? g->y + at : NULL;
        const float *dy = g->relu && g->mask ? pass(ch, g->mask, g->dy, at, to) : g->dy + at;
        ch->lines->products(y, dy, g->x + at, n, ch->lanes, mean, to, sum, sum_x);
        gather(ch, sum, w->total[0]);
        gather(ch, sum_x, w->total[1]);
        if (g->dx2 && g->earlier2) ch->lines->add(to, g->earlier2 + at, n, g->dx2 + at);
    }
    return g->relu ? kept : g->dy;
}

void nets_channels_backward(const nets_channels *ch, const nets_channels_gradients *g, void *scratch) {
    workspace w = divide(ch, scratch);
    const float *passed = sum_gradients(ch, g, &w);
    for (int64_t c = 0; c < ch->channels; c++) {
        double inverse = 1 / sqrt((double)g->var[c] + (double)g->eps), rows = (double)ch->rows;
        g->dshift[c] = (float)w.total[0][c];
        g->dscale[c] = (float)(w.total[1][c] * inverse);
        w.lane[0][c] = g->mean[c];
        w.lane[1][c] = (float)((double)g->scale[c] * inverse);
        w.lane[2][c] = (float)(w.total[0][c] / rows);
        w.lane[3][c] = (float)(w.total[1][c] * inverse * inverse / rows);
    }
    if (!g->dx) return;
    for (int i = 0; i < 4; i++) spread(ch, w.lane[i]);
    const nets_lanes_gradient with = {.mean = w.lane[0], .factor = w.lane[1], .mean_g = w.lane[2], .slope = w.lane[3]};
    ch->lines->gradient(passed, g->x, g->earlier, ch->elems, ch->lanes, with, g->dx);
}

/* ---------------------------------------------------------------- biases */

void nets_channels_add_bias(const nets_channels *ch, const float *x, const float *bias, bool relu, float *y,
                            void *scratch) {
    workspace w = divide(ch, scratch);
    for (int64_t c = 0; c < ch->channels; c++) w.lane[0][c] = bias[c];
    spread(ch, w.lane[0]);
    ch->lines->add_bias(x, ch->elems, ch->lanes, w.lane[0], relu, y);
}

void nets_channels_bias_backward(const nets_channels *ch, const nets_channels_bias *b, void *scratch) {
    workspace w = divide(ch, scratch);
    clear(ch, w.total[0]);
    for (int64_t at = 0; at < ch->elems; at += ch->chunk_elems) {
        int64_t n = chunk_at(ch, at);
        float *to = b->dx ? b->dx + at : w.chunk;
        const float *g = b->dy + at;
        if (b->mask) g = pass(ch, b->mask, b->dy, at, to);
        if (b->y) {
            ch->lines->gate(b->y + at, NULL, g, n, to);
            g = to;
        }
        ch->lines->sums(g, NULL, n, ch->lanes, w.lane[0]);
        gather(ch, w.lane[0], w.total[0]);
        if (b->dx && b->earlier) ch->lines->add(g, b->earlier + at, n, to);
    }
    for (int64_t c = 0; c < ch->channels; c++) b->dbias[c] = (float)w.total[0][c];
}

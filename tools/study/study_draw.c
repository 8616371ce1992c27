/* SPDX-License-Identifier: MIT */
#include "tools/study/study_draw.h"

#include <math.h>

#include "nets/io/reader_random.h"

/* ---------------------------------------------------------------- how many zeros each layer has */

/* How much the log odds of a zero grow from the first ReLU to the last. Chosen by us: at 49.4 % zeros on average,
 * AlexNet's first ReLU then has 44 % (published: about a half), and its last one, after a dropout, 93 % (the largest
 * published share). */
static const double GROWTH = 2.0;

static double layer_zeros(const nets_net *net, int layer, double first, double depth, const double *before) {
    const nets_layer *l = nets_net_layer(net, layer);
    double sum = 0, channels = 0;
    switch (l->op) {
    case NETS_RELU:
        return 1 / (1 + exp(-first - GROWTH * depth));
    case NETS_MAX_POOL:
    case NETS_AVG_POOL:
    case NETS_GLOBAL_AVG_POOL: /* about two values of a window are independent, and both must be zero */
        return before[l->inputs[0]] * before[l->inputs[0]];
    case NETS_LRN:
    case NETS_CROP:
        return before[l->inputs[0]];
    case NETS_DROPOUT:
        return 1 - (1 - before[l->inputs[0]]) * (1 - (double)l->attrs.p);
    case NETS_CONCAT:
        for (int i = 0; i < l->n_inputs; i++) {
            const double c = (double)nets_shape_channels(&nets_net_layer(net, l->inputs[i])->shape);
            sum += c * before[l->inputs[i]];
            channels += c;
        }
        return sum / channels;
    default:
        return 0;
    }
}

/* Sets `zeros` of all layers from the log odds `first` of the first ReLU. Returns the average over counted layers. */
static double average(const nets_net *net, const bool *counted, double first, double *zeros) {
    int relus = 0, relu = 0;
    double sum = 0, all = 0;
    for (int i = 0; i < nets_net_layers(net); i++) relus += nets_net_layer(net, i)->op == NETS_RELU;
    for (int i = 0; i < nets_net_layers(net); i++) {
        zeros[i] = layer_zeros(net, i, first, relus > 1 ? (double)relu / (relus - 1) : 0, zeros);
        relu += nets_net_layer(net, i)->op == NETS_RELU;
        if (!counted[i]) continue;
        const double elems = (double)nets_shape_elems(&nets_net_layer(net, i)->shape);
        sum += elems * zeros[i];
        all += elems;
    }
    return all > 0 ? sum / all : 0;
}

mm_status study_draw_zeros(const nets_net *net, const bool *counted, double zeros, double *zeros_out) {
    double low = -20, high = 20;
    const double least = average(net, counted, low, zeros_out), most = average(net, counted, high, zeros_out);
    if (!(zeros >= least && zeros <= most))
        return mm_fail(MM_ERR_INVALID, "net %s: its maps cannot have a share of %g zeros, only %.2f to %.2f",
                       nets_net_name(net), zeros, least, most);
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (average(net, counted, middle, zeros_out) < zeros)
            low = middle;
        else
            high = middle;
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- one map */

/* The i-th pair of normally distributed numbers (Box-Muller). */
static void normals(uint64_t key, uint64_t i, double *a, double *b) {
    const uint64_t bits = nets_random_at(key, i);
    const double u = ((double)(bits >> 32) + 0.5) * 0x1p-32, v = (double)(bits & 0xffffffff) * 0x1p-32;
    const double size = sqrt(-2 * log(u)), angle = 2 * acos(-1) * v;
    *a = size * cos(angle);
    *b = size * sin(angle);
}

/* The value below which a normally distributed number lies with this probability. */
static double quantile(double share) {
    double low = -40, high = 40;
    for (int i = 0; i < 80; i++) {
        const double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2)) / 2 < share)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* LIKE: correlation of neighbours in a plane. PLANE: share of the variance that is between planes. Chosen by us: with
 * these, deflate is better than zvc in NCHW and worse in other layouts, as published. */
static const double LIKE = 0.8, PLANE = 0.3;

void study_draw(float *map, const int64_t dims[4], double zeros, uint64_t seed) {
    const int64_t n = dims[0], h = dims[1], w = dims[2], c = dims[3], elems = n * h * w * c;
    const double fresh = sqrt(1 - LIKE * LIKE), border = quantile(zeros);
    const uint64_t key = mm_random_mix(seed), planes = mm_random_mix(seed + 1);
    double a, b;
    for (int64_t i = 0; i < elems; i += 2) {
        normals(key, (uint64_t)i, &a, &b);
        map[i] = (float)a;
        if (i + 1 < elems) map[i + 1] = (float)b;
    }
    /* Autoregression along rows, then along columns. Every value stays normally distributed with variance 1. */
    for (int64_t i = 0; i < elems; i++)
        if (i / c % w > 0) map[i] = (float)(LIKE * map[i - c] + fresh * map[i]);
    for (int64_t i = 0; i < elems; i++)
        if (i / (c * w) % h > 0) map[i] = (float)(LIKE * map[i - c * w] + fresh * map[i]);
    for (int64_t plane = 0; plane < n * c; plane++) {
        float *const at = map + plane / c * h * w * c + plane % c;
        normals(planes, (uint64_t)plane, &a, &b);
        for (int64_t i = 0; i < h * w; i++) {
            const double value = sqrt(1 - PLANE) * at[i * c] + sqrt(PLANE) * a - border;
            at[i * c] = value > 0 ? (float)value : 0;
        }
    }
}

/* SPDX-License-Identifier: MIT */
#include "policies/comet.h"

#include <float.h>
#include <math.h>

/* ---------------------------------------------------------------- bounds */

/* The standard deviation of the weight gradient's error for a bound of 1. */
static double sigma_of_one(const mm_comet_config *config, const mm_layer_sample *s) {
    if (config->rule == MM_BOUND_EQ9) return config->a * s->gradient_max * sqrt((double)s->batch * s->nonzero_share);
    return sqrt(s->nonzero_share * s->coverage * s->gradient_sum2 / (3 * (double)s->channels));
}

double mm_comet_sigma(const mm_comet_config *config, const mm_layer_sample *sample, double bound) {
    return bound > 0 ? bound * sigma_of_one(config, sample) : 0;
}

mm_layer_verdict mm_comet_observe(const mm_comet_config *config, const mm_layer_sample *sample, float before) {
    const double one = sigma_of_one(config, sample);
    mm_layer_verdict v = {.before = before,
                          .target_sigma = config->sigma * sample->momentum_mean,
                          .predicted_sigma = mm_comet_sigma(config, sample, before)};
    v.rule_bound = one > 0 ? v.target_sigma / one : one == 0 ? before : 0;
    double bound = v.rule_bound;
    const double measured = isnan(sample->measured_sigma) ? (double)INFINITY : sample->measured_sigma;
    if (config->guard && measured > 0 && before > 0) {
        const double guarded = before * (v.target_sigma / measured);
        v.tightened = guarded < bound;
        if (v.tightened) bound = guarded;
    }
    if (sample->map_max > 0 && bound > sample->map_max) bound = sample->map_max;
    v.bound = isfinite(bound) && bound >= FLT_MIN && bound <= FLT_MAX ? (float)bound : 0;
    return v;
}

/* ---------------------------------------------------------------- which layers are sampled */

/* The largest tensor of this kind that the step uses with this access. -1: none. */
static mm_tensor used(const mm_graph *graph, const mm_step_info *step, mm_access access, mm_tensor_kind kind) {
    mm_tensor found = -1;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_tensor tensor = step->uses[u].tensor;
        const mm_tensor_info *info = mm_graph_tensor(graph, tensor);
        if (step->uses[u].access != access || info->kind != kind) continue;
        if (found < 0 || info->bytes > mm_graph_tensor(graph, found)->bytes) found = tensor;
    }
    return found;
}

/* The loss's gradient with respect to the layer's output. The step may also read the gradient with respect to its
 * input, to add to what other layers have put there; that one is skipped, because it is the input of a pair. */
static mm_tensor output_gradient(const mm_graph *graph, const mm_step_info *step) {
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        bool is_read = use->access == MM_READ && mm_graph_tensor(graph, use->tensor)->kind == MM_GRADIENT_MAP;
        for (int p = 0; p < step->n_pairs; p++) is_read &= step->pairs[p].input != use->tensor;
        if (is_read) return use->tensor;
    }
    return -1;
}

/* The optimizer's first state of as many bytes as the weight (the momentum of SGD, the mean of Adam); the weight's
 * gradient if there is none. */
static mm_tensor momentum_of(const mm_graph *graph, mm_tensor weight) {
    const mm_tensor_info *info = mm_graph_tensor(graph, weight);
    for (mm_tensor t = 0; t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *state = mm_graph_tensor(graph, t);
        if (state->weight == weight && state->kind == MM_OPTIMIZER && state->bytes == info->bytes) return t;
    }
    return info->gradient;
}

/* Along one dimension: the share of a kernel's taps, over all `out` positions, that lie within the `in` elements rather
 * than in the padding. Stride and padding are derived from these numbers. */
static double coverage_along(int64_t in, int64_t out, int64_t taps) {
    const int64_t stride = 2 * in > out ? (2 * in + out) / (2 * out) : 1, missing = (out - 1) * stride + taps - in;
    const int64_t before = missing > 0 ? (missing + 1) / 2 : 0;
    int64_t inside = 0;
    for (int64_t p = 0; p < out; p++)
        for (int64_t t = 0; t < taps; t++) inside += p * stride + t >= before && p * stride + t - before < in;
    return (double)inside / (double)(out * taps);
}

/* mm_watched.coverage, for NHWC maps and a square kernel of one group; 1 for others. */
static double coverage_of(const mm_graph *graph, const mm_watched *w) {
    const mm_tensor_info *x = mm_graph_tensor(graph, w->map), *g = mm_graph_tensor(graph, w->gradient);
    const int64_t weights = mm_graph_tensor(graph, w->weight)->bytes / (int64_t)sizeof(float);
    const int64_t channels = x->dims[3] * g->dims[3];
    const int64_t taps = llround(sqrt((double)weights / (double)channels));
    if (x->rank != 4 || g->rank != 4 || taps < 1 || taps * taps * channels != weights) return 1;
    const double coverage = coverage_along(x->dims[1], g->dims[1], taps) * coverage_along(x->dims[2], g->dims[2], taps);
    return coverage > 0 ? coverage : 1;
}

static bool is_float(const mm_graph *graph, mm_tensor tensor) {
    return tensor >= 0 && mm_graph_tensor(graph, tensor)->dtype == MM_F32;
}

static bool watch(const mm_graph *graph, mm_layer layer, mm_watched *watched) {
    const mm_layer_info *info = mm_graph_layer(graph, layer);
    if (info->kind != MM_LAYER_CONV || info->step[MM_FORWARD] < 0 || info->step[MM_BACKWARD] < 0) return false;
    const mm_step_info *forward = mm_graph_step(graph, info->step[MM_FORWARD]);
    const mm_step_info *backward = mm_graph_step(graph, info->step[MM_BACKWARD]);
    *watched = (mm_watched){.layer = layer,
                            .map = used(graph, forward, MM_READ, MM_FEATURE_MAP),
                            .gradient = output_gradient(graph, backward),
                            .weight = used(graph, forward, MM_READ, MM_WEIGHT)};
    if (watched->weight < 0 || mm_graph_tensor(graph, watched->weight)->gradient < 0) return false;
    watched->momentum = momentum_of(graph, watched->weight);
    if (!is_float(graph, watched->map) || !is_float(graph, watched->gradient) || !is_float(graph, watched->momentum))
        return false;
    watched->coverage = coverage_of(graph, watched);
    return true;
}

int mm_comet_watch(const mm_graph *graph, mm_watched *watched_out) {
    int n = 0;
    for (mm_layer layer = 0; layer < mm_graph_layers(graph); layer++) n += watch(graph, layer, &watched_out[n]);
    return n;
}

const mm_observer mm_comet_observer = {.watch = mm_comet_watch, .observe = mm_comet_observe};

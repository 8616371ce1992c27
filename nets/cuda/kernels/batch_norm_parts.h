/* SPDX-License-Identifier: MIT */
/* What batch norm's kernels compute for one element. Those that read the map and those that decode it share this
 * (op_batch_norm_*kernels.cu), so both give the same bits. For .cu files; C++. */
#ifndef NETS_CUDA_KERNELS_BATCH_NORM_PARTS_H
#define NETS_CUDA_KERNELS_BATCH_NORM_PARTS_H

#include "nets/cuda/kernels/reduce.h"

/* Pixels that a thread loads at once to add them up: chosen so that the registers suffice for BLOCKS_AT_ONCE. */
enum { SUMMED_ROWS = 2 };

/* scale / sqrt(var + eps) for the thread's channels. */
template <int V> static __device__ inline vec<V> factors(const float *scale, const float *var, float eps, int c) {
    vec<V> f = loaded<V>(scale + c);
    const vec<V> v = loaded<V>(var + c);
    for (int k = 0; k < V; k++) f.at[k] /= sqrtf(v.at[k] + eps);
    return f;
}

/* Normalises the thread's channels, with the same bits in the backward as in the forward. */
template <int V> struct affine {
    vec<V> mean, factor, shift;

    __device__ vec<V> of(vec<V> x) const {
        for (int k = 0; k < V; k++) x.at[k] = fmaf(x.at[k] - mean.at[k], factor.at[k], shift.at[k]);
        return x;
    }
    /* g where the ReLU's output, rounded to T, is positive; else 0. */
    template <typename T> __device__ vec<V> through(vec<V> g, const vec<V> &x) const {
        const vec<V> v = of(x);
        for (int k = 0; k < V; k++) g.at[k] = is_positive<T>(v.at[k]) ? g.at[k] : 0;
        return g;
    }
};

/* ---------------------------------------------------------------- backward: sums */

/* Writes a vector's bits of the mask. 32 / V threads write a word together, so rows must be whole words. */
template <int V> static __device__ inline void write_signs(uint32_t *mask, int64_t at, const vec<V> &y) {
    constexpr unsigned N = 32 / V;
    const unsigned lane = (threadIdx.y * blockDim.x + threadIdx.x) % 32;
    uint32_t bits = 0;
    for (int k = 0; k < V; k++) bits |= (uint32_t)(y.at[k] > 0) << (at % 32 + k);
    for (int apart = 1; apart < (int)N; apart *= 2)
        bits |= __shfl_xor_sync(((1u << N) - 1) << (lane & (32 - N)), bits, apart);
    if (at % 32 == 0) mask[at / 32] = bits;
}
static __device__ inline void write_signs(uint32_t *, int64_t, const vec<1> &) {}

/* Sums of the gradient, and of the gradient times the deviation from the mean. */
template <typename T, int V, gate_kind GATE> struct gradient_sums_of {
    enum { ROWS = SUMMED_ROWS, BLOCKS = BLOCKS_OF < V, GATE == FROM_X || GATE == BY_VALUE >, MATRICES = 0 };
    typedef sums<V> total;
    struct item {
        gated<T, V> g;
        held<T, V> x;
    };
    gradient<T, GATE> from;
    const T *x;
    const float *mean, *var, *scale, *shift;
    const T *earlier2;
    float eps;
    T *dx2;
    uint32_t *mask; /* NULL: not wanted */
    affine<V> by;

    __device__ void start(int c) {
        load(mean + c, &by.mean);
        if (GATE != FROM_X) return;
        by.factor = factors<V>(scale, var, eps, c);
        load(shift + c, &by.shift);
    }
    __device__ void fetch_gradient(int64_t at, item *i) const { from.fetch(at, &i->g, dx2 && !earlier2); }
    __device__ void fetch(int64_t at, item *i) const {
        fetch_gradient(at, i);
        load(x + at, &i->x);
    }
    __device__ void take(int64_t at, const item &i, total *t) const {
        vec<V> g = from.get(at, i.g);
        if (GATE == FROM_X) g = by.template through<T>(g, i.x.floats());
        /* earlier2 is mostly NULL: fetching it ahead is not worth registers. */
        if (dx2) store(dx2 + at, plus(g, earlier2, at));
        if (GATE == BY_VALUE && mask) write_signs(mask, at, i.g.y.floats());
        for (int k = 0; k < V; k++) {
            t->q[0][k] += g.at[k];
            t->q[1][k] = fmaf(g.at[k], i.x.floats().at[k] - by.mean.at[k], t->q[1][k]);
        }
    }
};

struct finish_gradient_sums {
    enum { FROM_ORIGIN = 0 };
    const float *var;
    float eps;
    float *dscale, *dshift;
    float *mean_dy, *slope; /* for the gradient by x */

    __device__ void part(const wide &q, double, double, wide *w) const { join(w, q); }
    __device__ void close(double, double, wide *) const {}
    __device__ void finish(int c, const wide &w, double rows) const {
        const double inverse = 1 / sqrt((double)var[c] + eps);
        dshift[c] = (float)w.q[0];
        dscale[c] = (float)(w.q[1] * inverse);
        mean_dy[c] = (float)(w.q[0] / rows);
        slope[c] = (float)(w.q[1] * inverse * inverse / rows);
    }
};

/* ---------------------------------------------------------------- backward: by x */

/* dx = scale / sqrt(var + eps) * (g - mean of g - (x - mean) * slope) */
template <int V> struct by_input {
    vec<V> mean, factor, away, tilt; /* away: the mean of g; tilt: the slope */

    __device__ vec<V> of(vec<V> g, const vec<V> &x) const {
        for (int k = 0; k < V; k++)
            g.at[k] = factor.at[k] * (g.at[k] - away.at[k] - (x.at[k] - mean.at[k]) * tilt.at[k]);
        return g;
    }
};

/* Offsets in the scratch, which begins with the sums: mean_dy and slope of each channel, then the mask. */
struct places {
    int64_t mean_dy, slope, mask, end;
};

static inline int64_t padded(int64_t bytes) { return ceil_div(bytes, 256) * 256; }

static inline places places_of(nets_cuda_batch_norm bn) {
    const nets_strips &s = bn.over.strips;
    const bool has_mask = bn.keep_mask && s.channels % 32 == 0;
    places p;
    p.mean_dy = padded(nets_strips_bytes(&s));
    p.slope = p.mean_dy + padded(s.channels * (int64_t)sizeof(float));
    p.mask = p.slope + padded(s.channels * (int64_t)sizeof(float));
    p.end = p.mask + (has_mask ? s.rows * s.channels / 8 : 0);
    return p;
}

#endif

// SPDX-License-Identifier: MIT
/* Activations but ReLU, and the product with a SiLU. */
#include "nets/cuda/kernels/elements.h"

/* __fdividef is off by at most 2 units in the last place. */
#define NETS_ACTIVATION_FUNCTION     static __device__ inline
#define NETS_ACTIVATION_EXP(x)       expf(x)
#define NETS_ACTIVATION_DIVIDE(a, b) __fdividef(a, b)
#include "nets/activation.h"

template <int ACTIVATION> struct functions;
#define FUNCTIONS(NAME, name, OP, BY)                                                                                  \
    template <> struct functions<NETS_ACTIVATION_##NAME> {                                                             \
        static __device__ float value(float x, float slope) { return nets_##name##_value(x, slope); }                  \
        static __device__ float slope(float at, float slope) { return nets_##name##_slope(at, slope); }                \
    };
NETS_ACTIVATIONS(FUNCTIONS)

template <typename T, int ACTIVATION> struct activate {
    float slope;
    const T *x;
    T *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        vec<V> v = loaded<V>(x + i);
        for (int k = 0; k < V; k++) v.at[k] = functions<ACTIVATION>::value(v.at[k], slope);
        return v;
    }
};

template <typename T, int ACTIVATION> struct activate_backward {
    float slope;
    const T *in;          /* the input or the output */
    const uint32_t *mask; /* its signs, in place of it */
    const T *dy, *earlier;
    T *out;

    /* A vector's bits are in one word of the mask: i is a multiple of V. */
    template <int V> __device__ vec<V> at(int64_t i) const {
        vec<V> from, v = loaded<V>(dy + i);
        const uint32_t bits = mask ? mask[i / 32] >> i % 32 : 0;
        for (int k = 0; k < V; k++) from.at[k] = (float)(bits >> k & 1);
        if (!mask) from = loaded<V>(in + i);
        for (int k = 0; k < V; k++) v.at[k] *= functions<ACTIVATION>::slope(from.at[k], slope);
        return plus(v, earlier, i);
    }
};

/* ---------------------------------------------------------------- gated products */

template <typename T> struct gated_product {
    const T *x, *x2;
    T *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        vec<V> v = loaded<V>(x + i);
        const vec<V> factor = loaded<V>(x2 + i);
        for (int k = 0; k < V; k++) v.at[k] = nets_silu_value(v.at[k], 0) * factor.at[k];
        return v;
    }
};

template <typename T> struct gated_maps {
    const T *x, *x2, *dy, *earlier, *earlier2;
    T *dx, *dx2;
};

/* What a thread loads at once, and the gradients of it. */
template <typename T, int V> struct gated_item {
    held<T, V> x, x2, dy, earlier, earlier2;

    __device__ void fetch(const gated_maps<T> &g, int64_t i) {
        load(g.x + i, &x);
        load(g.x2 + i, &x2);
        load(g.dy + i, &dy);
        if (g.earlier) load(g.earlier + i, &earlier);
        if (g.earlier2) load(g.earlier2 + i, &earlier2);
    }
    __device__ void give(const gated_maps<T> &g, int64_t i) const {
        vec<V> by_x, by_x2;
        for (int k = 0; k < V; k++) {
            const float at_x = x.floats().at[k], at_dy = dy.floats().at[k];
            by_x2.at[k] = at_dy * nets_silu_value(at_x, 0);
            by_x.at[k] = at_dy * x2.floats().at[k] * nets_silu_slope(at_x, 0);
        }
        if (g.dx2) store(g.dx2 + i, g.earlier2 ? sum_of(by_x2, earlier2.floats()) : by_x2);
        if (g.dx) store(g.dx + i, g.earlier ? sum_of(by_x, earlier.floats()) : by_x);
    }
};

/* Vectors that a thread loads before it stores the first; three or more maps of each. Chosen. */
enum { GATED_AT_ONCE = 2 };

/* Both gradients in one pass. */
template <typename T, int V> static __global__ void gated_backward(gated_maps<T> g, int64_t n) {
    constexpr int64_t CHUNK = V * GATED_AT_ONCE * THREADS;
    const int64_t begin = (int64_t)blockIdx.x * CHUNK, mine = begin + V * threadIdx.x;
    if (begin + CHUNK <= n) {
        gated_item<T, V> items[GATED_AT_ONCE];
#pragma unroll
        for (int k = 0; k < GATED_AT_ONCE; k++) items[k].fetch(g, mine + V * THREADS * k);
#pragma unroll
        for (int k = 0; k < GATED_AT_ONCE; k++) items[k].give(g, mine + V * THREADS * k);
        return;
    }
    for (int64_t i = begin + threadIdx.x; i < n; i += THREADS) {
        gated_item<T, 1> item;
        item.fetch(g, i);
        item.give(g, i);
    }
}

/* ---------------------------------------------------------------- launchers */

template <typename T> static void launch_gated(const void *x, const void *x2, void *y, int64_t n, cudaStream_t stream) {
    const gated_product<T> f = {static_cast<const T *>(x), static_cast<const T *>(x2), static_cast<T *>(y)};
    launch_elements<T, PER_LOAD<T>>(f, n, stream);
}

void nets_cuda_gated_product(mm_dtype maps, const void *x, const void *x2, void *y, int64_t n, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_gated, x, x2, y, n, stream);
}

template <typename T> static void launch_gated_backward(const nets_cuda_gated &of, int64_t n, cudaStream_t stream) {
    constexpr int V = PER_LOAD<T>;
    const gated_maps<T> g = {static_cast<const T *>(of.x),
                             static_cast<const T *>(of.x2),
                             static_cast<const T *>(of.dy),
                             static_cast<const T *>(of.earlier),
                             static_cast<const T *>(of.earlier2),
                             static_cast<T *>(of.dx),
                             static_cast<T *>(of.dx2)};
    MM_LAUNCH((gated_backward<T, V>), (unsigned)ceil_div(n, V * GATED_AT_ONCE * THREADS), THREADS, 0, stream, g, n);
}

void nets_cuda_gated_product_backward(mm_dtype maps, const nets_cuda_gated *g, int64_t n, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_gated_backward, *g, n, stream);
}

template <typename T, int ACTIVATION>
static void launch(float slope, const void *x, void *y, int64_t n, cudaStream_t stream) {
    const activate<T, ACTIVATION> f = {slope, static_cast<const T *>(x), static_cast<T *>(y)};
    launch_elements<T, PER_LOAD<T>>(f, n, stream);
}

template <typename T, int ACTIVATION>
static void launch_backward(float slope, const void *in, const uint32_t *mask, const void *dy, const void *earlier,
                            void *dx, int64_t n, cudaStream_t stream) {
    const activate_backward<T, ACTIVATION> f = {slope,
                                                static_cast<const T *>(in),
                                                mask,
                                                static_cast<const T *>(dy),
                                                static_cast<const T *>(earlier),
                                                static_cast<T *>(dx)};
    launch_elements<T, PER_LOAD<T>>(f, n, stream);
}

template <typename T>
static void launch_any(nets_cuda_activation a, const void *x, void *y, int64_t n, cudaStream_t stream) {
#define LAUNCH(NAME, name, OP, BY) launch<T, NETS_ACTIVATION_##NAME>,
    void (*const launches[])(float, const void *, void *, int64_t, cudaStream_t) = {NETS_ACTIVATIONS(LAUNCH)};
#undef LAUNCH
    launches[a.activation](a.slope, x, y, n, stream);
}

void nets_cuda_activate(mm_dtype maps, nets_cuda_activation a, const void *x, void *y, int64_t n, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_any, a, x, y, n, stream);
}

template <typename T>
static void launch_any_backward(nets_cuda_activation a, const void *in, const uint32_t *mask, const void *dy,
                                const void *earlier, void *dx, int64_t n, cudaStream_t stream) {
#define LAUNCH(NAME, name, OP, BY) launch_backward<T, NETS_ACTIVATION_##NAME>,
    void (*const launches[])(float, const void *, const uint32_t *, const void *, const void *, void *, int64_t,
                             cudaStream_t) = {NETS_ACTIVATIONS(LAUNCH)};
#undef LAUNCH
    launches[a.activation](a.slope, in, mask, dy, earlier, dx, n, stream);
}

void nets_cuda_activate_backward(mm_dtype maps, nets_cuda_activation a, const void *in, const uint32_t *mask,
                                 const void *dy, const void *earlier, void *dx, int64_t n, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_any_backward, a, in, mask, dy, earlier, dx, n, stream);
}

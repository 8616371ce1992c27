// SPDX-License-Identifier: MIT
/* Activations but ReLU. */
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

/* ---------------------------------------------------------------- launchers */

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

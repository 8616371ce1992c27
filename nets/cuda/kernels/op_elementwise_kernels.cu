// SPDX-License-Identifier: MIT
/* ReLU, sums, products and dropout. */
#include "nets/cuda/kernels/elements.h"

#define MM_PHILOX_FUNCTION static __device__ inline
#include "mm/core/philox.h"

/* ---------------------------------------------------------------- ReLU */

template <typename T> struct relu {
    const T *x;
    T *out;

    template <int V> __device__ vec<V> at(int64_t i) const { return positive(loaded<V>(x + i)); }
};

template <typename T, gate_kind GATE> struct relu_backward {
    gradient<T, GATE> from;
    const T *earlier;
    T *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        gated<T, V> g;
        from.fetch(i, &g);
        return plus(from.get(i, g), earlier, i);
    }
};

/* ---------------------------------------------------------------- sum */

template <typename T> struct sum {
    const T *a, *b;
    T *out;

    template <int V> __device__ vec<V> at(int64_t i) const { return plus(loaded<V>(a + i), b, i); }
};

/* ---------------------------------------------------------------- product */

template <typename T> struct product {
    const T *a, *b, *earlier;
    T *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        const vec<V> factor = loaded<V>(b + i);
        vec<V> v = loaded<V>(a + i);
        for (int k = 0; k < V; k++) v.at[k] *= factor.at[k];
        return plus(v, earlier, i);
    }
};

/* ---------------------------------------------------------------- dropout */

/* words[at], at < 4. An index that the compiler does not know would put the words in local memory. */
static __device__ inline uint32_t word_at(const uint32_t *words, int at) {
    const uint32_t low = at & 1 ? words[1] : words[0], high = at & 1 ? words[3] : words[2];
    return at & 2 ? high : low;
}

template <typename T> struct drop {
    nets_cuda_dropout how;
    const T *in, *earlier;
    T *out;

    /* Draws the random words of elements 4 * block to 4 * block + 3 of the whole batch. */
    __device__ void draw(uint64_t block, uint32_t words[4]) const {
        const uint32_t key[2] = {how.rng[0], how.rng[1]};
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), how.layer, how.rng[2]};
        mm_philox(key, counter, words);
    }

    /* What an element of the image is multiplied by. */
    __device__ float factor_of(uint64_t image) const {
        uint32_t words[4];
        draw(image / 4, words);
        return word_at(words, (int)(image % 4)) < how.threshold ? 0 : how.scale;
    }

    template <int V> __device__ vec<V> of_samples(int64_t i) const {
        uint64_t image = how.rng[NETS_RNG_IMAGE] + (uint64_t)(i / how.image_elems);
        int64_t left = how.image_elems - i % how.image_elems;
        float factor = factor_of(image);
        vec<V> v;
        load(in + i, &v);
        for (int k = 0; k < V; k++) {
            if (left-- == 0) {
                factor = factor_of(++image);
                left = how.image_elems - 1;
            }
            v.at[k] = factor == 0 ? 0 : v.at[k] * factor;
        }
        return plus(v, earlier, i);
    }

    template <int V> __device__ vec<V> at(int64_t i) const {
        if (how.by_sample) return of_samples<V>(i);
        const uint64_t element = (uint64_t)i + (uint64_t)how.rng[NETS_RNG_IMAGE] * (uint64_t)how.image_elems;
        const int first = (int)(element % 4);
        uint32_t words[V > 4 ? 12 : 8] = {};
        draw(element / 4, words);
        if (first + V > 4) draw(element / 4 + 1, words + 4);
        if (first + V > 8) draw(element / 4 + 2, words + 8);
        vec<V> v;
        load(in + i, &v);
#pragma unroll
        for (int k = 0; k < V; k++) v.at[k] = word_at(words + k, first) < how.threshold ? 0 : v.at[k] * how.scale;
        return plus(v, earlier, i);
    }
};

/* ---------------------------------------------------------------- launchers */

template <typename T> static void launch_relu(const void *x, void *y, int64_t n, cudaStream_t stream) {
    const relu<T> f = {static_cast<const T *>(x), static_cast<T *>(y)};
    launch_elements<T, PER_LOAD<T>>(f, n, stream);
}

void nets_cuda_relu(mm_dtype maps, const void *x, void *y, int64_t n, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_relu, x, y, n, stream);
}

template <typename T>
static void launch_relu_backward(const void *dy, nets_cuda_gate gate, const void *earlier, void *dx, int64_t n,
                                 cudaStream_t stream) {
    const T *from = static_cast<const T *>(dy), *more = static_cast<const T *>(earlier);
    const relu_backward<T, BY_MASK> by_mask = {{from, gate}, more, static_cast<T *>(dx)};
    const relu_backward<T, BY_VALUE> by_value = {{from, gate}, more, static_cast<T *>(dx)};
    if (gate.mask)
        launch_elements<T, PER_LOAD<T>>(by_mask, n, stream);
    else
        launch_elements<T, PER_LOAD<T>>(by_value, n, stream);
}

void nets_cuda_relu_backward(mm_dtype maps, const void *dy, nets_cuda_gate gate, const void *earlier, void *dx,
                             int64_t n, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_relu_backward, dy, gate, earlier, dx, n, stream);
}

template <typename T> static void launch_sum(const void *a, const void *b, void *y, int64_t n, cudaStream_t stream) {
    const sum<T> f = {static_cast<const T *>(a), static_cast<const T *>(b), static_cast<T *>(y)};
    launch_elements<T, PER_LOAD<T>>(f, n, stream);
}

void nets_cuda_sum(mm_dtype maps, const void *a, const void *b, void *y, int64_t n, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_sum, a, b, y, n, stream);
}

template <typename T>
static void launch_product(const void *a, const void *b, const void *earlier, void *y, int64_t n, cudaStream_t stream) {
    const product<T> f = {static_cast<const T *>(a), static_cast<const T *>(b), static_cast<const T *>(earlier),
                          static_cast<T *>(y)};
    launch_elements<T, PER_LOAD<T>>(f, n, stream);
}

void nets_cuda_product(mm_dtype maps, const void *a, const void *b, const void *earlier, void *y, int64_t n,
                       cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_product, a, b, earlier, y, n, stream);
}

template <typename T>
static void launch_drop(const nets_cuda_dropout &how, const void *in, const void *earlier, void *out, int64_t n,
                        cudaStream_t stream) {
    const drop<T> f = {how, static_cast<const T *>(in), static_cast<const T *>(earlier), static_cast<T *>(out)};
    launch_elements<T, PER_LOAD<T>>(f, n, stream);
}

void nets_cuda_drop(mm_dtype maps, nets_cuda_dropout how, const void *in, const void *earlier, void *out, int64_t n,
                    cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_drop, how, in, earlier, out, n, stream);
}

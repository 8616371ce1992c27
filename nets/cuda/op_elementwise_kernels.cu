/* ReLU, sums and dropout: element by element, so in place or not is the same. */
#include "nets/cuda/vector.h"

#define MM_PHILOX_FUNCTION static __device__ inline
#include "mm/core/philox.h"

enum { CHUNK = 4 * AT_ONCE * THREADS };

/* f.at<V>(i) gives elements i .. i + V - 1 of f.out; i is a multiple of V. A block does a chunk of them. */
template <typename F> static __global__ void over_elements(F f, int64_t n) {
    const int64_t begin = (int64_t)blockIdx.x * CHUNK, mine = begin + 4 * threadIdx.x;
    if (begin + CHUNK <= n) {
        vec<4> v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) v[k] = f.template at<4>(mine + 4 * THREADS * k);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) store(f.out + mine + 4 * THREADS * k, v[k]);
        return;
    }
    for (int64_t i = mine; i + 4 <= n; i += 4 * THREADS) store(f.out + i, f.template at<4>(i));
    for (int64_t i = n / 4 * 4 + threadIdx.x; i < n; i += THREADS) store(f.out + i, f.template at<1>(i));
}

template <typename F> static void launch(F f, int64_t n, cudaStream_t stream) {
    MM_LAUNCH(over_elements<F>, (unsigned)ceil_div(n, CHUNK), THREADS, 0, stream, f, n);
}

/* ---------------------------------------------------------------- ReLU */

struct relu {
    const float *x;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const { return positive(loaded<V>(x + i)); }
};

template <gate_kind GATE> struct relu_backward {
    gradient<GATE> from;
    const float *earlier;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        gated<V> g;
        from.fetch(i, &g);
        return plus(from.get(i, g), earlier, i);
    }
};

/* ---------------------------------------------------------------- sum */

struct sum {
    const float *a, *b;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const { return plus(loaded<V>(a + i), b, i); }
};

/* ---------------------------------------------------------------- dropout */

struct drop {
    nets_cuda_dropout how;
    const float *in, *earlier;
    float *out;

    /* The random words of elements 4 block to 4 block + 3 of the whole batch. */
    __device__ void draw(uint64_t block, uint32_t words[4]) const {
        const uint32_t key[2] = {how.rng[0], how.rng[1]};
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), how.layer, how.rng[2]};
        mm_philox(key, counter, words);
    }

    template <int V> __device__ vec<V> at(int64_t i) const {
        const uint64_t element = (uint64_t)i + (uint64_t)how.rng[NETS_RNG_IMAGE] * (uint64_t)how.image_elems;
        const int first = (int)(element % 4);
        uint32_t words[8];
        draw(element / 4, words);
        if (first + V > 4) draw(element / 4 + 1, words + 4);
        vec<V> v;
        load(in + i, &v);
        for (int k = 0; k < V; k++) v.at[k] = words[first + k] < how.threshold ? 0 : v.at[k] * how.scale;
        return plus(v, earlier, i);
    }
};

/* ---------------------------------------------------------------- launchers */

void nets_cuda_relu(const float *x, float *y, int64_t n, cudaStream_t stream) {
    const relu f = {x, y};
    launch(f, n, stream);
}

void nets_cuda_relu_backward(const float *dy, nets_cuda_gate gate, const float *earlier, float *dx, int64_t n,
                             cudaStream_t stream) {
    const relu_backward<BY_MASK> by_mask = {{dy, gate}, earlier, dx};
    const relu_backward<BY_VALUE> by_value = {{dy, gate}, earlier, dx};
    if (gate.mask)
        launch(by_mask, n, stream);
    else
        launch(by_value, n, stream);
}

void nets_cuda_sum(const float *a, const float *b, float *y, int64_t n, cudaStream_t stream) {
    const sum f = {a, b, y};
    launch(f, n, stream);
}

void nets_cuda_drop(nets_cuda_dropout how, const float *in, const float *earlier, float *out, int64_t n,
                    cudaStream_t stream) {
    const drop f = {how, in, earlier, out};
    launch(f, n, stream);
}

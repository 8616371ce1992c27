/* ReLU, sums and dropout: element by element, so in place or not is the same. */
#define NETS_PHILOX_FUNCTION static __device__ inline

#include "nets/cuda_vector.h"
#include "nets/philox.h"

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

    template <int V> __device__ vec<V> at(int64_t i) const {
        vec<V> v;
        load(x + i, &v);
        /* Written so that a NaN stays one: a training that diverges shows. */
        for (int k = 0; k < V; k++) v.at[k] = v.at[k] < 0 ? 0 : v.at[k];
        return v;
    }
};

struct relu_backward {
    const float *y;
    const uint32_t *mask;
    const float *dy, *earlier;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        vec<V> v, gradient;
        load(dy + i, &gradient);
        if (mask) {
            const uint32_t bits = mask[i / 32] >> (i % 32); /* of V elements: they do not cross a word */
            for (int k = 0; k < V; k++) v.at[k] = bits >> k & 1 ? gradient.at[k] : 0;
        } else {
            load(y + i, &v);
            for (int k = 0; k < V; k++) v.at[k] = v.at[k] > 0 ? gradient.at[k] : 0;
        }
        return plus(v, earlier, i);
    }
};

/* ---------------------------------------------------------------- sum */

struct sum {
    const float *a, *b;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        vec<V> v;
        load(a + i, &v);
        return plus(v, b, i);
    }
};

/* ---------------------------------------------------------------- dropout */

struct drop {
    nets_cuda_dropout how;
    const float *in, *earlier;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        const uint64_t block = (uint64_t)i / 4;
        const uint32_t key[2] = {how.rng[0], how.rng[1]};
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), how.layer, how.rng[2]};
        uint32_t words[4];
        nets_philox(key, counter, words);
        vec<V> v;
        load(in + i, &v);
        const int first = V == 4 ? 0 : (int)(i % 4);
        for (int k = 0; k < V; k++) v.at[k] = words[first + k] < how.threshold ? 0 : v.at[k] * how.scale;
        return plus(v, earlier, i);
    }
};

/* ---------------------------------------------------------------- launchers */

void nets_cuda_relu(const float *x, float *y, int64_t n, cudaStream_t stream) {
    const relu f = {x, y};
    launch(f, n, stream);
}

void nets_cuda_relu_backward(const float *y, const uint32_t *mask, const float *dy, const float *earlier, float *dx,
                             int64_t n, cudaStream_t stream) {
    const relu_backward f = {y, mask, dy, earlier, dx};
    launch(f, n, stream);
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

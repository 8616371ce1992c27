// SPDX-License-Identifier: MIT
/* Embeddings, positions and class tokens. The order of every sum depends only on the shape, and no two threads add to
 * the same number. */
#include "nets/cuda/kernels/cuda_token_kernels.h"
#include "nets/cuda/kernels/elements.h"

enum { WARP = 32, WARPS = THREADS / WARP };

/* ---------------------------------------------------------------- tokens */

/* The token that a number stands for; -1: it is none of the vocabulary. */
static __device__ inline int64_t token_of(float number, int64_t vocabulary) {
    const bool is_token = number >= 0 && number < (float)vocabulary && number == floorf(number);
    return is_token ? (int64_t)number : -1;
}

template <typename T, typename W> struct look_up {
    nets_cuda_tokens t;
    const float *tokens;
    const W *weight;
    T *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        const int64_t row = i / t.channels, token = token_of(tokens[row], t.vocabulary);
        vec<V> v;
        for (int k = 0; k < V; k++) v.at[k] = nanf("");
        if (token >= 0) load(weight + token * t.channels + (i - row * t.channels), &v);
        return v;
    }
};

/* A block takes the token of row blockIdx.x. Only the block of a token's first row sums the token's gradient; the
 * token's other blocks return. Each warp sums over its part of the rows, then the warps' sums are added in order. A
 * lane has V channels. */
template <typename T, int V>
static __global__ void sum_token(nets_cuda_tokens t, const float *tokens, const T *dy, bool adds, float *dweight) {
    __shared__ vec<V> all[WARPS][WARP];
    const float number = tokens[blockIdx.x];
    const int64_t token = token_of(number, t.vocabulary), first = blockIdx.x;
    const int64_t channel = ((int64_t)blockIdx.y * WARP + threadIdx.x) * V;
    bool earlier = token < 0;
    for (int64_t row = threadIdx.y * WARP + threadIdx.x; row < first; row += THREADS) earlier |= tokens[row] == number;
    if (__syncthreads_or(earlier)) return;

    const int64_t each = (t.rows - first + WARPS - 1) / WARPS, from = first + threadIdx.y * each;
    const int64_t end = from + each < t.rows ? from + each : t.rows;
    vec<V> sum = {};
    for (int64_t row = from; row < end; row += WARP) {
        const bool same = row + threadIdx.x < end && tokens[row + threadIdx.x] == number;
        for (unsigned left = __ballot_sync(0xffffffffu, same); left; left &= left - 1)
            if (channel < t.channels)
                sum = sum_of(sum, loaded<V>(dy + (row + __ffs((int)left) - 1) * t.channels + channel));
    }
    all[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || channel >= t.channels) return;
    for (int warp = 1; warp < WARPS; warp++) sum = sum_of(sum, all[warp][threadIdx.x]);
    float *to = dweight + token * t.channels + channel;
    store(to, adds ? sum_of(loaded<V>(to), sum) : sum);
}

template <typename T, typename W>
static void embed_from(nets_cuda_tokens t, const float *tokens, const void *weight, void *y, cudaStream_t stream) {
    const look_up<T, W> f = {t, tokens, static_cast<const W *>(weight), static_cast<T *>(y)};
    launch_in_rows<T, PER_LOAD<T>>(f, t.rows * t.channels, t.channels, stream);
}

template <typename T>
static void embed(nets_cuda_tokens t, const float *tokens, mm_dtype weights, const void *weight, void *y,
                  cudaStream_t stream) {
    if (weights == MM_F32)
        embed_from<T, float>(t, tokens, weight, y, stream);
    else
        embed_from<T, T>(t, tokens, weight, y, stream);
}

void nets_cuda_embed(mm_dtype maps, nets_cuda_tokens t, const float *tokens, mm_dtype weights, const void *weight,
                     void *y, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, embed, t, tokens, weights, weight, y, stream);
}

template <typename T>
static void embed_backward(nets_cuda_tokens t, const float *tokens, const void *dy, bool adds, float *dweight,
                           cudaStream_t stream) {
    constexpr int MOST = PER_LOAD<T>;
    const T *from = static_cast<const T *>(dy);
    const int V = t.channels % MOST ? 1 : MOST;
    const dim3 grid((unsigned)t.rows, (unsigned)ceil_div(t.channels, WARP * V)), block(WARP, WARPS);
    /* An error stays for cudaGetLastError. */
    if (!adds) (void)cudaMemsetAsync(dweight, 0, (size_t)(t.vocabulary * t.channels) * sizeof *dweight, stream);
    if (V == 1)
        MM_LAUNCH((sum_token<T, 1>), grid, block, 0, stream, t, tokens, from, adds, dweight);
    else
        MM_LAUNCH((sum_token<T, MOST>), grid, block, 0, stream, t, tokens, from, adds, dweight);
}

void nets_cuda_embed_backward(mm_dtype maps, nets_cuda_tokens t, const float *tokens, const void *dy, bool adds,
                              float *dweight, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, embed_backward, t, tokens, dy, adds, dweight, stream);
}

/* ---------------------------------------------------------------- places */

template <typename T> struct add_place {
    int64_t sample; /* elements of a sample */
    const T *x;
    const float *weight;
    T *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        return sum_of(loaded<V>(x + i), loaded<V>(weight + i % sample));
    }
};

/* Sums each element of a sample over all samples. */
template <typename T> struct sum_places {
    int64_t sample, elems; /* elements of a sample, and of all */
    const T *dy;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        vec<V> sum = loaded<V>(dy + i);
        for (int64_t at = i + sample; at < elems; at += sample) sum = sum_of(sum, loaded<V>(dy + at));
        return sum;
    }
};

template <typename T> struct pass {
    const T *dy, *earlier;
    T *out;

    template <int V> __device__ vec<V> at(int64_t i) const { return plus(loaded<V>(dy + i), earlier, i); }
};

template <typename T>
static void add_places(nets_cuda_tokens t, const void *x, const float *weight, void *y, cudaStream_t stream) {
    const add_place<T> f = {t.places * t.channels, static_cast<const T *>(x), weight, static_cast<T *>(y)};
    launch_in_rows<T, PER_LOAD<T>>(f, t.rows * t.channels, t.channels, stream);
}

void nets_cuda_place(mm_dtype maps, nets_cuda_tokens t, const void *x, const float *weight, void *y,
                     cudaStream_t stream) {
    NETS_BY_STORAGE(maps, add_places, t, x, weight, y, stream);
}

template <typename T>
static void place_backward(nets_cuda_tokens t, const void *dy, const void *earlier, void *dx, float *dweight,
                           cudaStream_t stream) {
    const int64_t sample = t.places * t.channels, elems = t.rows * t.channels;
    const T *from = static_cast<const T *>(dy);
    const sum_places<T> sums = {sample, elems, from, dweight};
    const pass<T> all = {from, static_cast<const T *>(earlier), static_cast<T *>(dx)};
    launch_in_rows<float, PER_LOAD<T>>(sums, sample, t.channels, stream);
    if (dx && (earlier || dx != dy)) launch_elements<T, PER_LOAD<T>>(all, elems, stream);
}

void nets_cuda_place_backward(mm_dtype maps, nets_cuda_tokens t, const void *dy, const void *earlier, void *dx,
                              float *dweight, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, place_backward, t, dy, earlier, dx, dweight, stream);
}

/* ---------------------------------------------------------------- class tokens */

template <typename T> struct put_token {
    int64_t sample; /* elements of a sample of the output */
    int64_t channels;
    const T *x;
    const float *token, *position;
    T *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        const int64_t e = i % sample;
        const vec<V> own = e < channels ? loaded<V>(token + e) : loaded<V>(x + (i - (i / sample + 1) * channels));
        return sum_of(own, loaded<V>(position + e));
    }
};

/* The gradient with respect to x: dy without each sample's first row. */
template <typename T> struct pass_rest {
    int64_t sample; /* elements of a sample of x */
    int64_t channels;
    const T *dy, *earlier;
    T *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        return plus(loaded<V>(dy + i + (i / sample + 1) * channels), earlier, i);
    }
};

template <typename T>
static void put_tokens(nets_cuda_tokens t, const void *x, const float *token, const float *position, void *y,
                       cudaStream_t stream) {
    const put_token<T> f = {t.places * t.channels, t.channels, static_cast<const T *>(x), token, position,
                            static_cast<T *>(y)};
    launch_in_rows<T, PER_LOAD<T>>(f, t.rows * t.channels, t.channels, stream);
}

void nets_cuda_class_token(mm_dtype maps, nets_cuda_tokens t, const void *x, const float *token, const float *position,
                           void *y, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, put_tokens, t, x, token, position, y, stream);
}

template <typename T>
static void class_token_backward(nets_cuda_tokens t, const void *dy, const void *earlier, void *dx, float *dtoken,
                                 float *dposition, cudaStream_t stream) {
    const int64_t sample = t.places * t.channels, elems = t.rows * t.channels, samples = t.rows / t.places;
    const T *from = static_cast<const T *>(dy);
    const sum_places<T> by_position = {sample, elems, from, dposition}, by_token = {sample, elems, from, dtoken};
    const pass_rest<T> rest = {sample - t.channels, t.channels, from, static_cast<const T *>(earlier),
                               static_cast<T *>(dx)};
    launch_in_rows<float, PER_LOAD<T>>(by_position, sample, t.channels, stream);
    launch_in_rows<float, PER_LOAD<T>>(by_token, t.channels, t.channels, stream);
    if (dx) launch_in_rows<T, PER_LOAD<T>>(rest, elems - samples * t.channels, t.channels, stream);
}

void nets_cuda_class_token_backward(mm_dtype maps, nets_cuda_tokens t, const void *dy, const void *earlier, void *dx,
                                    float *dtoken, float *dposition, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, class_token_backward, t, dy, earlier, dx, dtoken, dposition, stream);
}

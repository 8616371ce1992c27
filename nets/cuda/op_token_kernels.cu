/* Embeddings and GELU. Where sums are taken, their order hangs on the shape alone, and no two threads add to one number. */
#include "nets/cuda/cuda_token_kernels.h"
#include "nets/cuda/vector.h"

enum { WARP = 32, WARPS = THREADS / WARP };

/* f.out[i] = f.at(i), by vectors of V neighbours. A thread loads AT_ONCE of them before it stores the first, so that loads
 * overlap though outputs may lie over inputs. */
template <int V, typename F> static __global__ void over_vectors(F f, int64_t vectors) {
    const int64_t first = (int64_t)blockIdx.x * (AT_ONCE * THREADS) + threadIdx.x;
    vec<V> v[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        if (first + i * THREADS < vectors) v[i] = f.template at<V>((first + i * THREADS) * V);
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        if (first + i * THREADS < vectors) store(f.out + (first + i * THREADS) * V, v[i]);
}

/* `unit`: no vector reaches over a multiple of it. */
template <typename F> static void launch(F f, int64_t elems, int64_t unit, cudaStream_t stream) {
    const int64_t vectors = unit % 4 ? elems : elems / 4;
    const unsigned blocks = (unsigned)ceil_div(vectors, AT_ONCE * THREADS);
    if (unit % 4)
        MM_LAUNCH((over_vectors<1, F>), blocks, THREADS, 0, stream, f, vectors);
    else
        MM_LAUNCH((over_vectors<4, F>), blocks, THREADS, 0, stream, f, vectors);
}

/* ---------------------------------------------------------------- tokens */

/* -1: none of the vocabulary. */
static __device__ inline int64_t token_of(float number, int64_t vocabulary) {
    const bool is_token = number >= 0 && number < (float)vocabulary && number == floorf(number);
    return is_token ? (int64_t)number : -1;
}

struct look_up {
    nets_cuda_tokens t;
    const float *tokens, *weight;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        const int64_t row = i / t.channels, token = token_of(tokens[row], t.vocabulary);
        vec<V> v;
        for (int k = 0; k < V; k++) v.at[k] = nanf("");
        if (token >= 0) load(weight + token * t.channels + (i - row * t.channels), &v);
        return v;
    }
};

/* A block's token is that of row blockIdx.x; the first row of a token gives its gradient, the other rows' blocks end. Each
 * warp sums over its part of the rows, then the warps' sums are added in their order. Lanes have V channels each. */
template <int V>
static __global__ void sum_token(nets_cuda_tokens t, const float *tokens, const float *dy, bool adds, float *dweight) {
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

void nets_cuda_embed(nets_cuda_tokens t, const float *tokens, const float *weight, float *y, cudaStream_t stream) {
    const look_up f = {t, tokens, weight, y};
    launch(f, t.rows * t.channels, t.channels, stream);
}

void nets_cuda_embed_backward(nets_cuda_tokens t, const float *tokens, const float *dy, bool adds, float *dweight,
                              cudaStream_t stream) {
    const int V = t.channels % 4 ? 1 : 4;
    const dim3 grid((unsigned)t.rows, (unsigned)ceil_div(t.channels, WARP * V)), block(WARP, WARPS);
    /* An error stays for cudaGetLastError. */
    if (!adds) (void)cudaMemsetAsync(dweight, 0, (size_t)(t.vocabulary * t.channels) * sizeof *dweight, stream);
    if (V == 1)
        MM_LAUNCH(sum_token<1>, grid, block, 0, stream, t, tokens, dy, adds, dweight);
    else
        MM_LAUNCH(sum_token<4>, grid, block, 0, stream, t, tokens, dy, adds, dweight);
}

/* ---------------------------------------------------------------- places */

struct add_place {
    int64_t sample; /* elements */
    const float *x, *weight;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        return sum_of(loaded<V>(x + i), loaded<V>(weight + i % sample));
    }
};

/* Of a sample's elements. */
struct sum_places {
    int64_t sample, elems; /* elements of a sample, and of all */
    const float *dy;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        vec<V> sum = loaded<V>(dy + i);
        for (int64_t at = i + sample; at < elems; at += sample) sum = sum_of(sum, loaded<V>(dy + at));
        return sum;
    }
};

struct pass {
    const float *dy, *earlier;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const { return plus(loaded<V>(dy + i), earlier, i); }
};

void nets_cuda_place(nets_cuda_tokens t, const float *x, const float *weight, float *y, cudaStream_t stream) {
    const add_place f = {t.places * t.channels, x, weight, y};
    launch(f, t.rows * t.channels, t.channels, stream);
}

void nets_cuda_place_backward(nets_cuda_tokens t, const float *dy, const float *earlier, float *dx, float *dweight,
                              cudaStream_t stream) {
    const int64_t sample = t.places * t.channels, elems = t.rows * t.channels;
    const sum_places sums = {sample, elems, dy, dweight};
    const pass all = {dy, earlier, dx};
    launch(sums, sample, t.channels, stream);
    if (dx && (earlier || dx != dy)) launch(all, elems, t.channels, stream);
}

/* ---------------------------------------------------------------- GELU */

/* The normal distribution's share below x, and x times its density: the slope is their sum. erfc, because 1 + erf cancels
 * for x below 0. */
template <bool BY_TANH> static __device__ inline float share_below(float x) {
    const float root = 0.7978845608f, cubic = 0.044715f;
    if (BY_TANH) return 1.0f / (1.0f + expf(-2.0f * root * (x + cubic * x * x * x)));
    return 0.5f * erfcf(x * -0.7071067812f);
}

template <bool BY_TANH> static __device__ inline float slope(float x) {
    const float root = 0.7978845608f, cubic = 0.044715f, share = share_below<BY_TANH>(x);
    if (BY_TANH) return share + x * share * (1.0f - share) * 2.0f * root * (1.0f + 3.0f * cubic * x * x);
    return share + x * 0.3989422804f * expf(-0.5f * x * x);
}

template <bool BY_TANH> struct gelu {
    const float *x;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        vec<V> v = loaded<V>(x + i);
        for (int k = 0; k < V; k++) v.at[k] *= share_below<BY_TANH>(v.at[k]);
        return v;
    }
};

template <bool BY_TANH> struct gelu_backward {
    const float *x, *dy, *earlier;
    float *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        const vec<V> at_x = loaded<V>(x + i);
        vec<V> v = loaded<V>(dy + i);
        for (int k = 0; k < V; k++) v.at[k] *= slope<BY_TANH>(at_x.at[k]);
        return plus(v, earlier, i);
    }
};

void nets_cuda_gelu(bool by_tanh, const float *x, float *y, int64_t n, cudaStream_t stream) {
    const gelu<true> approximated = {x, y};
    const gelu<false> exact = {x, y};
    if (by_tanh)
        launch(approximated, n, n, stream);
    else
        launch(exact, n, n, stream);
}

void nets_cuda_gelu_backward(bool by_tanh, const float *x, const float *dy, const float *earlier, float *dx, int64_t n,
                             cudaStream_t stream) {
    const gelu_backward<true> approximated = {x, dy, earlier, dx};
    const gelu_backward<false> exact = {x, dy, earlier, dx};
    if (by_tanh)
        launch(approximated, n, n, stream);
    else
        launch(exact, n, n, stream);
}

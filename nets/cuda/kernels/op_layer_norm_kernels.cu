// SPDX-License-Identifier: MIT
/* Layer norm: a warp has a row. RMS norm (RMS) is a layer norm that takes each row's mean for 0, and has no bias. The
 * gradients by weight and bias are summed over the rows of each part, then over the
 * parts, in order. The parts depend only on the shape. */
#include "nets/cuda/kernels/cuda_token_kernels.h"
#include "nets/cuda/kernels/vector.h"

/* At most PARTS parts, of at least LEAST_ROWS rows: enough blocks for a GPU, and few sums to add up. HELD: vectors of a
 * row that a lane has in registers. All are chosen. */
enum { WARP = 32, WARPS = THREADS / WARP, PARTS = 256, LEAST_ROWS = 64, HELD = 4 };

/* Channels that a lane takes at a time; the same for both types, so that sums have the same order. */
enum { SOME = PER_LOAD<bf16> };

static int64_t rows_of_part(int64_t rows) { return larger(LEAST_ROWS, ceil_div(rows, PARTS)); }

/* The sum over a warp, in all lanes. */
static __device__ inline float sum_of_warp(float v) {
    for (int apart = WARP / 2; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
    return v;
}

static __device__ inline int64_t row_of_warp() { return (int64_t)blockIdx.x * WARPS + threadIdx.y; }

/* A lane reads its own elements of the row several times, from cache, and writes no others; so y may be x. */
template <typename T, int V, bool RMS>
static __global__ void normalise(nets_cuda_layer_norm ln, const T *x, const float *weight, const float *bias, T *y,
                                 float *means, float *factors) {
    const int64_t row = row_of_warp();
    if (row >= ln.rows) return;
    const T *own = x + row * ln.channels;
    const int first = (int)threadIdx.x * V;
    float sum = 0, squares = 0;
    for (int c = first; c < ln.channels && !RMS; c += WARP * V) {
        const vec<V> v = loaded<V>(own + c);
        for (int k = 0; k < V; k++) sum += v.at[k];
    }
    const float mean = RMS ? 0 : sum_of_warp(sum) / (float)ln.channels;
    for (int c = first; c < ln.channels; c += WARP * V) {
        const vec<V> v = loaded<V>(own + c);
        for (int k = 0; k < V; k++) squares += (v.at[k] - mean) * (v.at[k] - mean);
    }
    const float factor = 1.0f / sqrtf(sum_of_warp(squares) / (float)ln.channels + ln.eps);
    for (int c = first; c < ln.channels; c += WARP * V) {
        const vec<V> w = loaded<V>(weight + c), b = RMS ? vec<V>{} : loaded<V>(bias + c);
        vec<V> v = loaded<V>(own + c);
        for (int k = 0; k < V; k++) v.at[k] = (v.at[k] - mean) * factor * w.at[k] + b.at[k];
        store(y + row * ln.channels + c, v);
    }
    if (threadIdx.x) return;
    if (means) means[row] = mean;
    if (factors) factors[row] = factor;
}

/* dx = factor (g - mean(g) - xhat mean(g xhat)), where g = dy weight, and xhat = (x - mean) factor. */
template <typename T, int V, bool RMS>
static __global__ void give_dx(nets_cuda_layer_norm ln, const T *x, const float *weight, const float *means,
                               const float *factors, const T *dy, const T *earlier, T *dx) {
    const int64_t row = row_of_warp();
    if (row >= ln.rows) return;
    const int64_t begin = row * ln.channels;
    const int first = (int)threadIdx.x * V;
    const float mean = RMS ? 0 : means[row], factor = factors[row];
    float by_mean = 0, by_factor = 0;
    for (int c = first; c < ln.channels; c += WARP * V) {
        const vec<V> w = loaded<V>(weight + c), d = loaded<V>(dy + begin + c), v = loaded<V>(x + begin + c);
        for (int k = 0; k < V; k++) {
            const float g = d.at[k] * w.at[k];
            by_mean += g;
            by_factor += g * ((v.at[k] - mean) * factor);
        }
    }
    by_mean = RMS ? 0 : sum_of_warp(by_mean) / (float)ln.channels;
    by_factor = sum_of_warp(by_factor) / (float)ln.channels;
    for (int c = first; c < ln.channels; c += WARP * V) {
        const vec<V> w = loaded<V>(weight + c), d = loaded<V>(dy + begin + c), v = loaded<V>(x + begin + c);
        vec<V> out;
        for (int k = 0; k < V; k++)
            out.at[k] = factor * (d.at[k] * w.at[k] - by_mean - (v.at[k] - mean) * factor * by_factor);
        store(dx + begin + c, plus(out, earlier, begin + c));
    }
}

/* Adds up the warps' sums of each channel in the order of the warps, and writes the total. */
template <int V>
static __device__ inline void put_sums(vec<V> all[2][WARPS][WARP], const vec<V> &by_weight, const vec<V> &by_bias,
                                       int c, int channels, float *sums) {
    all[0][threadIdx.y][threadIdx.x] = by_weight;
    all[1][threadIdx.y][threadIdx.x] = by_bias;
    __syncthreads();
    if (threadIdx.y > 1 || c >= channels) return;
    vec<V> sum = all[threadIdx.y][0][threadIdx.x];
    for (int warp = 1; warp < WARPS; warp++) sum = sum_of(sum, all[threadIdx.y][warp][threadIdx.x]);
    store(sums + ((int64_t)blockIdx.x * 2 + threadIdx.y) * channels + c, sum);
}

/* sums[part] = {by weight [channels], by bias [channels]} over the part's rows; each warp has every eighth row. */
template <typename T, int V, bool RMS>
static __global__ void sum_part(nets_cuda_layer_norm ln, int64_t each, const T *x, const float *means,
                                const float *factors, const T *dy, float *sums) {
    __shared__ vec<V> all[2][WARPS][WARP];
    const int c = (int)(blockIdx.y * WARP + threadIdx.x) * V;
    const int64_t from = blockIdx.x * each, end = from + each < ln.rows ? from + each : ln.rows;
    vec<V> by_weight = {}, by_bias = {};
    for (int64_t row = from + threadIdx.y; row < end && c < ln.channels; row += WARPS) {
        const vec<V> d = loaded<V>(dy + row * ln.channels + c), v = loaded<V>(x + row * ln.channels + c);
        const float mean = RMS ? 0 : means[row], factor = factors[row];
        for (int k = 0; k < V; k++) by_weight.at[k] += d.at[k] * ((v.at[k] - mean) * factor);
        by_bias = sum_of(by_bias, d);
    }
    put_sums(all, by_weight, by_bias, c, ln.channels, sums);
}

/* Computes dx and the sums in one pass over x and dy: a warp holds a row, N vectors a lane. */
template <typename T, int N, bool RMS>
static __global__ void __launch_bounds__(THREADS, sizeof(T) == sizeof(bf16) && N < HELD ? 2 : 1)
    give_all(nets_cuda_layer_norm ln, int64_t each, const T *x, const float *weight, const float *means,
             const float *factors, const T *dy, const T *earlier, T *dx, float *sums) {
    constexpr int V = SOME;
    __shared__ vec<V> all[2][WARPS][WARP];
    const int64_t from = blockIdx.x * each, end = from + each < ln.rows ? from + each : ln.rows;
    vec<V> by_weight[N] = {}, by_bias[N] = {};
    const int first = (int)threadIdx.x * V;
#pragma unroll 1
    for (int64_t row = from + threadIdx.y; row < end; row += WARPS) {
        const int64_t begin = row * ln.channels;
        const float mean = RMS ? 0 : means[row], factor = factors[row];
        held<T, V> v[N], d[N];
        float by_mean = 0, by_factor = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int c = first + i * WARP * V;
            if (c < ln.channels) load(x + begin + c, &v[i]);
            if (c < ln.channels) load(dy + begin + c, &d[i]);
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int c = first + i * WARP * V;
            if (c >= ln.channels) break;
            const vec<V> w = loaded<V>(weight + c);
            for (int k = 0; k < V; k++) {
                const float at_d = d[i].floats().at[k], at_x = (v[i].floats().at[k] - mean) * factor;
                by_mean += at_d * w.at[k];
                by_factor += at_d * w.at[k] * at_x;
                by_weight[i].at[k] += at_d * at_x;
                by_bias[i].at[k] += at_d;
            }
        }
        by_mean = RMS ? 0 : sum_of_warp(by_mean) / (float)ln.channels;
        by_factor = sum_of_warp(by_factor) / (float)ln.channels;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int c = first + i * WARP * V;
            if (c >= ln.channels) break;
            const vec<V> w = loaded<V>(weight + c);
            vec<V> out;
            for (int k = 0; k < V; k++)
                out.at[k] = factor * (d[i].floats().at[k] * w.at[k] - by_mean -
                                      (v[i].floats().at[k] - mean) * factor * by_factor);
            store(dx + begin + c, plus(out, earlier, begin + c));
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i > 0) __syncthreads();
        put_sums(all, by_weight[i], by_bias[i], first + i * WARP * V, ln.channels, sums);
    }
}

/* Adds up the parts' sums. Each lane has one of the 2 * channels sums; each of the eight warps adds up every eighth
 * part of it. dbias NULL: RMS norm has no bias. */
static __global__ void join_parts(int channels, int parts, const float *sums, float *dweight, float *dbias) {
    __shared__ float all[WARPS][WARP];
    const int i = (int)(blockIdx.x * WARP + threadIdx.x);
    float sum = 0;
#pragma unroll 4
    for (int part = (int)threadIdx.y; part < parts && i < 2 * channels; part += WARPS)
        sum += sums[(int64_t)part * 2 * channels + i];
    all[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || i >= (dbias ? 2 : 1) * channels) return;
    for (int warp = 1; warp < WARPS; warp++) sum += all[warp][threadIdx.x];
    *(i < channels ? dweight + i : dbias + (i - channels)) = sum;
}

/* ---------------------------------------------------------------- launchers */

#define LAUNCH_VECTORS(kernel, T, RMS, grid, ...)                                                                      \
    do {                                                                                                               \
        if (ln.channels % SOME)                                                                                        \
            MM_LAUNCH((kernel<T, 1, RMS>), grid, dim3(WARP, WARPS), 0, stream, ln, __VA_ARGS__);                       \
        else                                                                                                           \
            MM_LAUNCH((kernel<T, SOME, RMS>), grid, dim3(WARP, WARPS), 0, stream, ln, __VA_ARGS__);                    \
    } while (0)

template <typename T, bool RMS>
static void forward(nets_cuda_layer_norm ln, const void *x, const float *weight, const float *bias, void *y,
                    float *means, float *factors, cudaStream_t stream) {
    LAUNCH_VECTORS(normalise, T, RMS, (unsigned)ceil_div(ln.rows, WARPS), static_cast<const T *>(x), weight, bias,
                   static_cast<T *>(y), means, factors);
}

template <typename T>
static void forward_any(nets_cuda_layer_norm ln, const void *x, const float *weight, const float *bias, void *y,
                        float *means, float *factors, cudaStream_t stream) {
    if (ln.rms)
        forward<T, true>(ln, x, weight, bias, y, means, factors, stream);
    else
        forward<T, false>(ln, x, weight, bias, y, means, factors, stream);
}

void nets_cuda_layer_norm_forward(mm_dtype maps, nets_cuda_layer_norm ln, const void *x, const float *weight,
                                  const float *bias, void *y, float *means, float *factors, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, forward_any, ln, x, weight, bias, y, means, factors, stream);
}

int64_t nets_cuda_layer_norm_backward_bytes(nets_cuda_layer_norm ln) {
    return ceil_div(ln.rows, rows_of_part(ln.rows)) * 2 * ln.channels * (int64_t)sizeof(float);
}

/* Computes the sums before dx, or together with it, because dx may lie at dy. */
template <typename T, bool RMS>
static void backward(nets_cuda_layer_norm ln, const void *x, const float *weight, const float *means,
                     const float *factors, const void *dy, const void *earlier, void *scratch, void *dx, float *dweight,
                     float *dbias, cudaStream_t stream) {
    const int64_t each = rows_of_part(ln.rows), parts = ceil_div(ln.rows, each);
    const int64_t tiles = ceil_div(ln.channels, WARP * (ln.channels % SOME ? 1 : SOME));
    const dim3 grid((unsigned)parts, (unsigned)tiles), block(WARP, WARPS);
    const T *in = static_cast<const T *>(x), *from = static_cast<const T *>(dy),
            *more = static_cast<const T *>(earlier);
    T *to = static_cast<T *>(dx);
    float *sums = static_cast<float *>(scratch);
    const bool whole = dx && ln.channels % SOME == 0 && tiles <= HELD;
    void (*const of_rows[HELD])(nets_cuda_layer_norm, int64_t, const T *, const float *, const float *, const float *,
                                const T *, const T *, T *, float *) = {give_all<T, 1, RMS>, give_all<T, 2, RMS>,
                                                                       give_all<T, 3, RMS>, give_all<T, HELD, RMS>};
    if (whole)
        MM_LAUNCH(of_rows[tiles - 1], (unsigned)parts, block, 0, stream, ln, each, in, weight, means, factors, from,
                  more, to, sums);
    else
        LAUNCH_VECTORS(sum_part, T, RMS, grid, each, in, means, factors, from, sums);
    MM_LAUNCH(join_parts, (unsigned)ceil_div(2 * ln.channels, WARP), block, 0, stream, ln.channels, (int)parts, sums,
              dweight, dbias);
    if (dx && !whole)
        LAUNCH_VECTORS(give_dx, T, RMS, (unsigned)ceil_div(ln.rows, WARPS), in, weight, means, factors, from, more, to);
}

template <typename T>
static void backward_any(nets_cuda_layer_norm ln, const void *x, const float *weight, const float *means,
                         const float *factors, const void *dy, const void *earlier, void *scratch, void *dx,
                         float *dweight, float *dbias, cudaStream_t stream) {
    if (ln.rms)
        backward<T, true>(ln, x, weight, means, factors, dy, earlier, scratch, dx, dweight, dbias, stream);
    else
        backward<T, false>(ln, x, weight, means, factors, dy, earlier, scratch, dx, dweight, dbias, stream);
}

void nets_cuda_layer_norm_backward(mm_dtype maps, nets_cuda_layer_norm ln, const void *x, const float *weight,
                                   const float *means, const float *factors, const void *dy, const void *earlier,
                                   void *scratch, void *dx, float *dweight, float *dbias, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, backward_any, ln, x, weight, means, factors, dy, earlier, scratch, dx, dweight, dbias,
                    stream);
}

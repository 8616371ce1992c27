// SPDX-License-Identifier: MIT
/* Attention (Dao et al. 2022, "FlashAttention"). All scores would take the square of the context; each block of
 * threads has only one tile of them at a time. With s = scale q k for each query and the keys up to it, or
 * with full attention all keys:
 *
 *   attend     a block of threads has a tile of queries and goes over the tiles of keys; top = the largest s so far:
 *                l = sum of e^(s - top), o = sum of e^(s - top) v; both are rescaled when a tile raises the top.
 *                y = o / l; log l + top is saved
 *   by_query   the same tiles:                      p = e^(s - saved); ds = p (dy v - y dy); dq = scale sum of ds k
 *   by_key     a tile of keys, and over queries:    the same p and ds;  dv = sum of p dy;    dk = scale sum of ds q
 *
 * So p and ds are computed twice, and every sum has one thread and a fixed order: no atomics. Where several heads of
 * queries share one of keys and values, by_key goes over their queries one head after the other.
 *
 * Kernels are templates over E, by_units or by_cores of attention_tiles.h. */
#include <math.h>

#include "nets/cuda/kernels/attention_tiles.h"

enum { WARPS = THREADS / WARP };

/* ---------------------------------------------------------------- what the kernels share */

/* Loads the next tiles of two maps, once all threads are done with those before. */
template <typename E, typename X, typename Y>
static __device__ inline void go_on(const nets_cuda_attention &a, const typename E::T *x, int64_t x_pitch,
                                    const typename E::T *y, int64_t y_pitch, int64_t first, X *x_tile, Y *y_tile) {
    __syncthreads();
    E::fetch(a, x, x_pitch, first, x_tile);
    E::fetch(a, y, y_pitch, first, y_tile);
    __syncthreads();
}

/* Loops over a thread's own sums are unrolled: indexed at run time, the sums would lie in local memory. */
template <typename E> static __device__ inline void clear(float sums[E::ROWS][E::CHANNELS]) {
#pragma unroll
    for (int i = 0; i < E::ROWS; i++)
#pragma unroll
        for (int j = 0; j < E::CHANNELS; j++) sums[i][j] = 0;
}

/* Writes the block's rows: factors[i] * sums, plus `earlier` unless NULL. */
template <typename E>
static __device__ inline void put(const nets_cuda_attention &a, const float sums[E::ROWS][E::CHANNELS],
                                  const float *factors, int64_t first, int64_t pitch, const typename E::T *earlier,
                                  typename E::T *to) {
#pragma unroll
    for (int i = 0; i < E::ROWS; i++) {
        const int64_t row = first + E::row(i);
#pragma unroll
        for (int j = 0; j < E::CHANNELS; j += E::PAIR) {
            const int c = E::channel(j);
            vec<E::PAIR> v;
#pragma unroll
            for (int k = 0; k < E::PAIR; k++) v.at[k] = factors[i] * sums[i][j + k];
            if (row < a.tokens && c < a.size) store(to + row * pitch + c, plus(v, earlier, row * pitch + c));
        }
    }
}

static __device__ inline bool is_seen(const nets_cuda_attention &a, int64_t row, int64_t key) {
    return a.full ? key < a.tokens : key <= row;
}

/* The keys that the tile of rows from `first` on sees end before this one. */
template <typename E> static __device__ inline int64_t end_of_keys(const nets_cuda_attention &a, int64_t first) {
    return a.full || first + E::OWN > a.tokens ? a.tokens : first + E::OWN;
}

/* ---------------------------------------------------------------- forward */

/* The maximum, or the sum, over the LANES neighbours in a warp that share a row; all of them get it. */
template <int LANES> static __device__ inline float highest_of_row(float v) {
    for (int apart = LANES / 2; apart > 0; apart /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, apart));
    return v;
}

template <int LANES> static __device__ inline float sum_of_row(float v) {
    for (int apart = LANES / 2; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
    return v;
}

template <typename E>
static __global__ void __launch_bounds__(E::TEAM, 3)
    attend(nets_cuda_attention a, const typename E::T *x, typename E::T *y, float *log_sums) {
    typedef typename E::T T;
    __shared__ typename E::own q;
    __shared__ typename E::rows k;
    __shared__ typename E::columns v;
    __shared__ typename E::exchange between;
    const head<T> h = head_at(a, x, blockIdx.y);
    const int64_t first = (int64_t)(gridDim.x - 1 - blockIdx.x) * E::OWN; /* blocks with the most keys begin first */
    float o[E::ROWS][E::CHANNELS], top[E::ROWS], l[E::ROWS];
    clear<E>(o);
    for (int i = 0; i < E::ROWS; i++) {
        top[i] = -INFINITY;
        l[i] = 0;
    }
    E::fetch(a, h.q, h.x_pitch, first, &q);
    for (int64_t key = 0; key < end_of_keys<E>(a, first); key += E::OTHER) {
        float s[E::ROWS][E::SCORES];
        go_on<E>(a, h.k, h.x_pitch, h.v, h.x_pitch, key, &k, &v);
        E::multiply(q, k, s);
        for (int i = 0; i < E::ROWS; i++) {
            const int64_t row = first + E::row(i);
            float most = -INFINITY, sum = 0;
            for (int j = 0; j < E::SCORES; j++) {
                s[i][j] = is_seen(a, row, key + E::column(j)) ? s[i][j] * a.scale : -INFINITY;
                most = fmaxf(most, s[i][j]);
            }
            most = fmaxf(top[i], highest_of_row<E::LANES>(most)); /* not minus infinity: every row sees the first key */
            const float less = expf(top[i] - most);
            top[i] = most;
            for (int j = 0; j < E::SCORES; j++) {
                s[i][j] = expf(s[i][j] - most);
                sum += s[i][j];
            }
            l[i] = l[i] * less + sum_of_row<E::LANES>(sum);
            for (int j = 0; j < E::CHANNELS; j++) o[i][j] *= less;
        }
        E::gather(s, v, &between, o);
    }
    float factors[E::ROWS];
    for (int i = 0; i < E::ROWS; i++) {
        const int64_t row = first + E::row(i);
        factors[i] = 1.0f / l[i];
        if (log_sums && E::column(0) == 0 && row < a.tokens) log_sums[h.row_at + row] = top[i] + logf(l[i]);
    }
    put<E>(a, o, factors, first, h.y_pitch, static_cast<const T *>(NULL), y + h.y_at);
}

/* ---------------------------------------------------------------- backward */

/* at_y[row] = the dot product of y and dy, for each row of each head; a warp computes one. */
template <typename T>
static __global__ void dot_rows(nets_cuda_attention a, const T *y, const T *dy, int64_t rows, float *at_y) {
    const int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (i >= rows) return;
    const int64_t head = i / a.tokens, token = i % a.tokens, width = (int64_t)a.heads * a.size;
    const int64_t begin = (head / a.heads * a.tokens + token) * width + head % a.heads * a.size;
    float sum = 0;
    for (int c = (int)threadIdx.x; c < a.size; c += WARP)
        sum = fmaf(loaded<1>(y + begin + c).at[0], loaded<1>(dy + begin + c).at[0], sum);
    for (int apart = WARP / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (threadIdx.x == 0) at_y[i] = sum;
}

/* p and ds of one query and key. */
struct shares {
    float p, ds;
};

static __device__ inline shares shares_of(const nets_cuda_attention &a, int64_t row, int64_t key, float s, float dp,
                                          float log_sum, float at_y) {
    const float p = row < a.tokens && is_seen(a, row, key) ? expf(s * a.scale - log_sum) : 0;
    const shares of = {p, p * (dp - at_y)};
    return of;
}

template <typename E>
static __global__ void __launch_bounds__(E::TEAM, 3)
    by_query(nets_cuda_attention a, const typename E::T *x, const typename E::T *dy, const float *log_sums,
             const float *at_y, const typename E::T *earlier, typename E::T *dx) {
    __shared__ typename E::own q, g;
    __shared__ typename E::both k;
    __shared__ typename E::rows v;
    __shared__ typename E::exchange between;
    const head<typename E::T> h = head_at(a, x, blockIdx.y);
    const int64_t first = (int64_t)(gridDim.x - 1 - blockIdx.x) * E::OWN;
    float dq[E::ROWS][E::CHANNELS], factors[E::ROWS];
    clear<E>(dq);
    E::fetch(a, h.q, h.x_pitch, first, &q);
    E::fetch(a, dy + h.y_at, h.y_pitch, first, &g);
    for (int64_t key = 0; key < end_of_keys<E>(a, first); key += E::OTHER) {
        float s[E::ROWS][E::SCORES], dp[E::ROWS][E::SCORES];
        go_on<E>(a, h.k, h.x_pitch, h.v, h.x_pitch, key, &k, &v);
        E::multiply(q, k, s);
        E::multiply(g, v, dp);
        for (int i = 0; i < E::ROWS; i++) {
            const int64_t row = first + E::row(i), saved = h.row_at + (row < a.tokens ? row : 0);
            for (int j = 0; j < E::SCORES; j++)
                s[i][j] = shares_of(a, row, key + E::column(j), s[i][j], dp[i][j], log_sums[saved], at_y[saved]).ds;
        }
        E::gather(s, k, &between, dq);
    }
    for (int i = 0; i < E::ROWS; i++) factors[i] = a.scale;
    put<E>(a, dq, factors, first, h.x_pitch, earlier ? earlier + h.x_at : NULL, dx + h.x_at);
}

template <typename E>
static __global__ void __launch_bounds__(E::TEAM, 3)
    by_key(nets_cuda_attention a, const typename E::T *x, const typename E::T *dy, const float *log_sums,
           const float *at_y, const typename E::T *earlier, typename E::T *dx) {
    __shared__ typename E::own k, v;
    __shared__ typename E::both q, g;
    __shared__ typename E::exchange between;
    const int group = a.heads / a.kv_heads;
    head<typename E::T> h = head_at(a, x, (int64_t)blockIdx.y * group);
    const int64_t first = (int64_t)blockIdx.x * E::OWN;
    float dk[E::ROWS][E::CHANNELS], dv[E::ROWS][E::CHANNELS], ones[E::ROWS], factors[E::ROWS];
    clear<E>(dk);
    clear<E>(dv);
    E::fetch(a, h.k, h.x_pitch, first, &k);
    E::fetch(a, h.v, h.x_pitch, first, &v);
    const typename E::index begin = a.full ? 0 : first / E::OTHER * E::OTHER; /* the first row that sees these keys */
    for (int member = 0; member < group; member++) {
        h = head_at(a, x, (int64_t)blockIdx.y * group + member);
        for (typename E::index row = begin; row < a.tokens; row += E::OTHER) {
            float s[E::ROWS][E::SCORES], dp[E::ROWS][E::SCORES];
            go_on<E>(a, h.q, h.x_pitch, dy + h.y_at, h.y_pitch, row, &q, &g);
            E::multiply(k, q, s);
            E::multiply(v, g, dp);
            for (int i = 0; i < E::ROWS; i++)
                for (int j = 0; j < E::SCORES; j++) {
                    const int64_t query = row + E::column(j), saved = h.row_at + (query < a.tokens ? query : 0);
                    const shares of =
                        shares_of(a, query, first + E::row(i), s[i][j], dp[i][j], log_sums[saved], at_y[saved]);
                    s[i][j] = of.p;
                    dp[i][j] = of.ds;
                }
            E::gather(s, g, &between, dv);
            E::gather(dp, q, &between, dk);
        }
    }
    for (int i = 0; i < E::ROWS; i++) {
        factors[i] = a.scale;
        ones[i] = 1;
    }
    put<E>(a, dk, factors, first, h.x_pitch, earlier ? earlier + h.k_at : NULL, dx + h.k_at);
    put<E>(a, dv, ones, first, h.x_pitch, earlier ? earlier + h.v_at : NULL, dx + h.v_at);
}

/* ---------------------------------------------------------------- launchers */

/* Arguments of the kernels; launch casts them to the type of E. */
struct attention_forward {
    const void *x;
    void *y;
    float *log_sums;
};

struct attention_gradients {
    const void *x, *y, *dy;
    const float *log_sums;
    const void *earlier;
    float *at_y;
    void *dx;
};

template <typename E> static dim3 grid_of(const nets_cuda_attention &a, int heads) {
    return dim3((unsigned)ceil_div(a.tokens, E::OWN), (unsigned)(a.samples * heads));
}

template <typename E>
static void launch(const nets_cuda_attention &a, const attention_forward &f, cudaStream_t stream) {
    typedef typename E::T T;
    MM_LAUNCH(attend<E>, grid_of<E>(a, a.heads), E::TEAM, 0, stream, a, static_cast<const T *>(f.x),
              static_cast<T *>(f.y), f.log_sums);
}

template <typename E>
static void launch(const nets_cuda_attention &a, const attention_gradients &g, cudaStream_t stream) {
    typedef typename E::T T;
    const T *x = static_cast<const T *>(g.x), *dy = static_cast<const T *>(g.dy);
    const T *earlier = static_cast<const T *>(g.earlier);
    T *dx = static_cast<T *>(g.dx);
    MM_LAUNCH(by_query<E>, grid_of<E>(a, a.heads), E::TEAM, 0, stream, a, x, dy, g.log_sums, g.at_y, earlier, dx);
    MM_LAUNCH(by_key<E>, grid_of<E>(a, a.kv_heads), E::TEAM, 0, stream, a, x, dy, g.log_sums, g.at_y, earlier, dx);
}

/* bf16 maps use tensor cores if rows are whole 16-byte loads. */
template <int D, typename What>
static void launch_by(mm_dtype maps, const nets_cuda_attention &a, const What &what, cudaStream_t stream) {
    if (maps != MM_BF16)
        launch<by_units<D, float>>(a, what, stream);
    else if (a.size % PER_LOAD<bf16> == 0)
        launch<by_cores<D>>(a, what, stream);
    else
        launch<by_units<D, bf16>>(a, what, stream);
}

template <typename What>
static void launch_for(mm_dtype maps, const nets_cuda_attention &a, const What &what, cudaStream_t stream) {
    if (a.size <= 32)
        launch_by<32>(maps, a, what, stream);
    else if (a.size <= 64)
        launch_by<64>(maps, a, what, stream);
    else
        launch_by<128>(maps, a, what, stream);
}

void nets_cuda_attention_forward(mm_dtype maps, nets_cuda_attention a, const void *x, void *y, float *log_sums,
                                 cudaStream_t stream) {
    const attention_forward f = {x, y, log_sums};
    launch_for(maps, a, f, stream);
}

int64_t nets_cuda_attention_backward_bytes(nets_cuda_attention a) {
    return a.samples * a.heads * a.tokens * (int64_t)sizeof(float);
}

template <typename T> static void dot(const nets_cuda_attention &a, const attention_gradients &g, cudaStream_t stream) {
    const int64_t rows = a.samples * a.heads * a.tokens;
    MM_LAUNCH(dot_rows<T>, (unsigned)ceil_div(rows, WARPS), dim3(WARP, WARPS), 0, stream, a,
              static_cast<const T *>(g.y), static_cast<const T *>(g.dy), rows, g.at_y);
}

void nets_cuda_attention_backward(mm_dtype maps, nets_cuda_attention a, const void *x, const void *y, const void *dy,
                                  const float *log_sums, const void *earlier, void *scratch, void *dx,
                                  cudaStream_t stream) {
    const attention_gradients g = {x, y, dy, log_sums, earlier, static_cast<float *>(scratch), dx};
    NETS_BY_STORAGE(maps, dot, a, g, stream);
    launch_for(maps, a, g, stream);
}

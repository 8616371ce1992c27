/* Causal attention (Dao et al. 2022, "FlashAttention"): of the scores, which are the square of the context, no more than a
 * tile per block of threads exists, in shared memory. With s = scale q k for each query and the keys up to it:
 *
 *   attend     a block of threads has a tile of queries and goes over the tiles of keys:
 *                top, l = sum of e^(s - top), o = sum of e^(s - top) v; both are rescaled when a tile raises the top.
 *                y = o / l; log l + top is saved
 *   by_query   the same tiles:                      p = e^(s - saved); ds = p (dy v - y dy); dq = scale sum of ds k
 *   by_key     a tile of keys, and over queries:    the same p and ds;  dv = sum of p dy;    dk = scale sum of ds q
 *
 * So p and ds are computed twice, and every sum has one thread and a fixed order: no atomics.
 *
 * Tiles lie in shared memory as f32, whatever maps are. Threads are 16 across, which take the other tile's rows or channels,
 * and 8 down, which take the rows of what the block gives. */
#include <math.h>

#include "nets/cuda/cuda_token_kernels.h"
#include "nets/cuda/vector.h"

enum { ACROSS = 16, DOWN = 8, TEAM = ACROSS * DOWN, WARP = 32, WARPS = THREADS / WARP };

/* Of heads of up to D channels, a multiple of ACROSS: rows of the tile that a block gives, and of those that it goes over.
 * All tiles together take less than 48 KiB. */
template <int D> struct tiles {
    enum { OWN = D > 64 ? 16 : D > 32 ? 32 : 64, OTHER = D > 64 ? 16 : 32, PITCH = D + 4, WIDE = OTHER + 4 };
    enum { OF_EACH = OWN / DOWN, CHANNELS = D / ACROSS, SCORES = OTHER / ACROSS };
};

template <int D, int ROWS> struct tile { float at[ROWS][tiles<D>::PITCH]; };

/* Scores of the block's rows by the other tile's. */
template <int D> struct grid_of_scores { float at[tiles<D>::OWN][tiles<D>::WIDE]; };

static __device__ inline int across() { return (int)threadIdx.x % ACROSS; }
static __device__ inline int down() { return (int)threadIdx.x / ACROSS; }

/* Where one head of one sample lies. */
template <typename T> struct head {
    const T *q, *k, *v;
    int64_t x_pitch, y_pitch; /* elements from token to token */
    int64_t x_at, y_at;       /* of q, and of y */
    int64_t row_at;           /* of what is saved by row */
};

template <typename T> static __device__ inline head<T> head_at(const nets_cuda_attention &a, const T *x) {
    const int64_t sample = (int64_t)blockIdx.y / a.heads, first = (int64_t)blockIdx.y % a.heads * a.size;
    const int64_t width = (int64_t)a.heads * a.size;
    head<T> h;
    h.x_pitch = 3 * width;
    h.y_pitch = width;
    h.x_at = sample * a.tokens * h.x_pitch + first;
    h.y_at = sample * a.tokens * h.y_pitch + first;
    h.row_at = (int64_t)blockIdx.y * a.tokens;
    h.q = x + h.x_at;
    h.k = h.q + width;
    h.v = h.k + width;
    return h;
}

/* Rows from `first` on, with zeros behind the last token and the last channel. */
template <int V, int D, int ROWS, typename T>
static __device__ inline void fetch_by(const nets_cuda_attention &a, const T *from, int64_t pitch, int64_t first,
                                       tile<D, ROWS> *to) {
    for (int i = (int)threadIdx.x; i < ROWS * (D / V); i += TEAM) {
        const int row = i / (D / V), c = i % (D / V) * V;
        vec<V> v = {};
        if (first + row < a.tokens && c < a.size) v = loaded<V>(from + (first + row) * pitch + c);
        for (int k = 0; k < V; k++) to->at[row][c + k] = v.at[k];
    }
}

template <int D, int ROWS, typename T>
static __device__ inline void fetch(const nets_cuda_attention &a, const T *from, int64_t pitch, int64_t first,
                                    tile<D, ROWS> *to) {
    if (a.size % PER_LOAD<T> == 0)
        fetch_by<PER_LOAD<T>>(a, from, pitch, first, to);
    else
        fetch_by<1>(a, from, pitch, first, to);
}

/* The next tiles of both maps that a block goes over, once all threads have done with those before. */
template <int D, typename T>
static __device__ inline void go_on(const nets_cuda_attention &a, const T *x, int64_t x_pitch, const T *y,
                                    int64_t y_pitch, int64_t first, tile<D, tiles<D>::OTHER> *x_tile,
                                    tile<D, tiles<D>::OTHER> *y_tile) {
    __syncthreads();
    fetch(a, x, x_pitch, first, x_tile);
    fetch(a, y, y_pitch, first, y_tile);
    __syncthreads();
}

/* products[i][j] = own[down() + i DOWN] other[across() + j ACROSS], over the channels. */
template <int D>
static __device__ inline void multiply(const tile<D, tiles<D>::OWN> &own, const tile<D, tiles<D>::OTHER> &other,
                                       float products[tiles<D>::OF_EACH][tiles<D>::SCORES]) {
    typedef tiles<D> t;
    for (int i = 0; i < t::OF_EACH; i++)
        for (int j = 0; j < t::SCORES; j++) products[i][j] = 0;
#pragma unroll 4
    for (int c = 0; c < D; c += 4) {
        vec<4> a[t::OF_EACH], b[t::SCORES];
#pragma unroll
        for (int i = 0; i < t::OF_EACH; i++) load(&own.at[down() + i * DOWN][c], &a[i]);
#pragma unroll
        for (int j = 0; j < t::SCORES; j++) load(&other.at[across() + j * ACROSS][c], &b[j]);
#pragma unroll
        for (int i = 0; i < t::OF_EACH; i++)
#pragma unroll
            for (int j = 0; j < t::SCORES; j++)
#pragma unroll
                for (int k = 0; k < 4; k++) products[i][j] = fmaf(a[i].at[k], b[j].at[k], products[i][j]);
    }
}

/* sums[i][j] += the row down() + i DOWN of the scores, by the channels across() + j ACROSS of the other tile. */
template <int D>
static __device__ inline void gather(const grid_of_scores<D> &scores, const tile<D, tiles<D>::OTHER> &other,
                                     float sums[tiles<D>::OF_EACH][tiles<D>::CHANNELS]) {
    typedef tiles<D> t;
#pragma unroll 2
    for (int r = 0; r < t::OTHER; r += 4) {
        vec<4> s[t::OF_EACH];
#pragma unroll
        for (int i = 0; i < t::OF_EACH; i++) load(&scores.at[down() + i * DOWN][r], &s[i]);
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int j = 0; j < t::CHANNELS; j++) {
                const float value = other.at[r + k][across() + j * ACROSS];
#pragma unroll
                for (int i = 0; i < t::OF_EACH; i++) sums[i][j] = fmaf(s[i].at[k], value, sums[i][j]);
            }
    }
}

template <int D> static __device__ inline void clear(float sums[tiles<D>::OF_EACH][tiles<D>::CHANNELS]) {
    for (int i = 0; i < tiles<D>::OF_EACH; i++)
        for (int j = 0; j < tiles<D>::CHANNELS; j++) sums[i][j] = 0;
}

/* Writes the block's rows: factor * sums, plus what is there earlier. */
template <int D, typename T>
static __device__ inline void put(const nets_cuda_attention &a, const float sums[tiles<D>::OF_EACH][tiles<D>::CHANNELS],
                                  const float *factors, int64_t first, int64_t pitch, const T *earlier, T *to) {
    for (int i = 0; i < tiles<D>::OF_EACH; i++) {
        const int64_t row = first + down() + i * DOWN;
        for (int j = 0; row < a.tokens && j < tiles<D>::CHANNELS; j++) {
            const int c = across() + j * ACROSS;
            vec<1> v = {{factors[i] * sums[i][j]}};
            if (c < a.size) store(to + row * pitch + c, plus(v, earlier, row * pitch + c));
        }
    }
}

/* ---------------------------------------------------------------- forward */

/* Over the 16 threads that have a row, which are neighbours in a warp; the same in all of them. */
static __device__ inline float highest_of_row(float v) {
    for (int apart = ACROSS / 2; apart > 0; apart /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, apart));
    return v;
}

static __device__ inline float sum_of_row(float v) {
    for (int apart = ACROSS / 2; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
    return v;
}

template <int D, typename T>
static __global__ void __launch_bounds__(TEAM) attend(nets_cuda_attention a, const T *x, T *y, float *log_sums) {
    typedef tiles<D> t;
    __shared__ tile<D, t::OWN> q;
    __shared__ tile<D, t::OTHER> k, v;
    __shared__ grid_of_scores<D> scores;
    const head<T> h = head_at(a, x);
    const int64_t first = (int64_t)(gridDim.x - 1 - blockIdx.x) * t::OWN; /* those that see the most keys begin first */
    float o[t::OF_EACH][t::CHANNELS], top[t::OF_EACH], l[t::OF_EACH];
    clear<D>(o);
    for (int i = 0; i < t::OF_EACH; i++) {
        top[i] = -INFINITY;
        l[i] = 0;
    }
    fetch(a, h.q, h.x_pitch, first, &q);
    for (int64_t key = 0; key < first + t::OWN && key < a.tokens; key += t::OTHER) {
        float s[t::OF_EACH][t::SCORES];
        go_on(a, h.k, h.x_pitch, h.v, h.x_pitch, key, &k, &v);
        multiply<D>(q, k, s);
        for (int i = 0; i < t::OF_EACH; i++) {
            const int64_t row = first + down() + i * DOWN;
            float most = -INFINITY, sum = 0;
            for (int j = 0; j < t::SCORES; j++) {
                s[i][j] = key + across() + j * ACROSS <= row ? s[i][j] * a.scale : -INFINITY;
                most = fmaxf(most, s[i][j]);
            }
            most = fmaxf(top[i], highest_of_row(most)); /* a number: every row sees the first key */
            const float less = expf(top[i] - most);
            top[i] = most;
            for (int j = 0; j < t::SCORES; j++) {
                const float p = expf(s[i][j] - most);
                scores.at[down() + i * DOWN][across() + j * ACROSS] = p;
                sum += p;
            }
            l[i] = l[i] * less + sum_of_row(sum);
            for (int j = 0; j < t::CHANNELS; j++) o[i][j] *= less;
        }
        __syncthreads();
        gather<D>(scores, v, o);
    }
    float factors[t::OF_EACH];
    for (int i = 0; i < t::OF_EACH; i++) {
        const int64_t row = first + down() + i * DOWN;
        factors[i] = 1.0f / l[i];
        if (log_sums && across() == 0 && row < a.tokens) log_sums[h.row_at + row] = top[i] + logf(l[i]);
    }
    put<D>(a, o, factors, first, h.y_pitch, static_cast<const T *>(NULL), y + h.y_at);
}

/* ---------------------------------------------------------------- backward */

/* at_y[row] = y dy, of each head's rows; a warp has one. */
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
    const float p = row < a.tokens && key <= row ? expf(s * a.scale - log_sum) : 0;
    const shares of = {p, p * (dp - at_y)};
    return of;
}

template <int D, typename T>
static __global__ void __launch_bounds__(TEAM)
    by_query(nets_cuda_attention a, const T *x, const T *dy, const float *log_sums, const float *at_y, const T *earlier,
             T *dx) {
    typedef tiles<D> t;
    __shared__ tile<D, t::OWN> q, g;
    __shared__ tile<D, t::OTHER> k, v;
    __shared__ grid_of_scores<D> scores;
    const head<T> h = head_at(a, x);
    const int64_t first = (int64_t)(gridDim.x - 1 - blockIdx.x) * t::OWN;
    float dq[t::OF_EACH][t::CHANNELS], factors[t::OF_EACH];
    clear<D>(dq);
    fetch(a, h.q, h.x_pitch, first, &q);
    fetch(a, dy + h.y_at, h.y_pitch, first, &g);
    for (int64_t key = 0; key < first + t::OWN && key < a.tokens; key += t::OTHER) {
        float s[t::OF_EACH][t::SCORES], dp[t::OF_EACH][t::SCORES];
        go_on(a, h.k, h.x_pitch, h.v, h.x_pitch, key, &k, &v);
        multiply<D>(q, k, s);
        multiply<D>(g, v, dp);
        for (int i = 0; i < t::OF_EACH; i++) {
            const int64_t row = first + down() + i * DOWN, saved = h.row_at + (row < a.tokens ? row : 0);
            for (int j = 0; j < t::SCORES; j++) {
                const int at = across() + j * ACROSS;
                scores.at[down() + i * DOWN][at] =
                    shares_of(a, row, key + at, s[i][j], dp[i][j], log_sums[saved], at_y[saved]).ds;
            }
        }
        __syncthreads();
        gather<D>(scores, k, dq);
    }
    for (int i = 0; i < t::OF_EACH; i++) factors[i] = a.scale;
    put<D>(a, dq, factors, first, h.x_pitch, earlier ? earlier + h.x_at : NULL, dx + h.x_at);
}

template <int D, typename T>
static __global__ void __launch_bounds__(TEAM)
    by_key(nets_cuda_attention a, const T *x, const T *dy, const float *log_sums, const float *at_y, const T *earlier,
           T *dx) {
    typedef tiles<D> t;
    __shared__ tile<D, t::OWN> k, v;
    __shared__ tile<D, t::OTHER> q, g;
    __shared__ grid_of_scores<D> scores;
    const head<T> h = head_at(a, x);
    const int64_t first = (int64_t)blockIdx.x * t::OWN, width = (int64_t)a.heads * a.size;
    float dk[t::OF_EACH][t::CHANNELS], dv[t::OF_EACH][t::CHANNELS], ones[t::OF_EACH], factors[t::OF_EACH];
    clear<D>(dk);
    clear<D>(dv);
    fetch(a, h.k, h.x_pitch, first, &k);
    fetch(a, h.v, h.x_pitch, first, &v);
    for (int64_t row = first / t::OTHER * t::OTHER; row < a.tokens; row += t::OTHER) {
        float s[t::OF_EACH][t::SCORES], dp[t::OF_EACH][t::SCORES];
        go_on(a, h.q, h.x_pitch, dy + h.y_at, h.y_pitch, row, &q, &g);
        multiply<D>(k, q, s);
        multiply<D>(v, g, dp);
        for (int i = 0; i < t::OF_EACH; i++)
            for (int j = 0; j < t::SCORES; j++) {
                const int64_t query = row + across() + j * ACROSS, saved = h.row_at + (query < a.tokens ? query : 0);
                const shares of =
                    shares_of(a, query, first + down() + i * DOWN, s[i][j], dp[i][j], log_sums[saved], at_y[saved]);
                scores.at[down() + i * DOWN][across() + j * ACROSS] = of.p;
                s[i][j] = of.ds;
            }
        __syncthreads();
        gather<D>(scores, g, dv);
        __syncthreads();
        for (int i = 0; i < t::OF_EACH; i++)
            for (int j = 0; j < t::SCORES; j++) scores.at[down() + i * DOWN][across() + j * ACROSS] = s[i][j];
        __syncthreads();
        gather<D>(scores, q, dk);
    }
    for (int i = 0; i < t::OF_EACH; i++) {
        factors[i] = a.scale;
        ones[i] = 1;
    }
    const T *before = earlier ? earlier + h.x_at + width : NULL;
    put<D>(a, dk, factors, first, h.x_pitch, before, dx + h.x_at + width);
    put<D>(a, dv, ones, first, h.x_pitch, before ? before + width : NULL, dx + h.x_at + 2 * width);
}

/* ---------------------------------------------------------------- launchers */

template <int D> static dim3 grid_of(const nets_cuda_attention &a) {
    return dim3((unsigned)ceil_div(a.tokens, tiles<D>::OWN), (unsigned)(a.samples * a.heads));
}

template <int D, typename T>
static void forward_by(const nets_cuda_attention &a, const void *x, void *y, float *log_sums, cudaStream_t stream) {
    MM_LAUNCH((attend<D, T>), grid_of<D>(a), TEAM, 0, stream, a, static_cast<const T *>(x), static_cast<T *>(y),
              log_sums);
}

template <typename T>
static void forward(const nets_cuda_attention &a, const void *x, void *y, float *log_sums, cudaStream_t stream) {
    if (a.size <= 32)
        forward_by<32, T>(a, x, y, log_sums, stream);
    else if (a.size <= 64)
        forward_by<64, T>(a, x, y, log_sums, stream);
    else
        forward_by<128, T>(a, x, y, log_sums, stream);
}

void nets_cuda_attention_forward(mm_dtype maps, nets_cuda_attention a, const void *x, void *y, float *log_sums,
                                 cudaStream_t stream) {
    NETS_BY_STORAGE(maps, forward, a, x, y, log_sums, stream);
}

int64_t nets_cuda_attention_backward_bytes(nets_cuda_attention a) {
    return a.samples * a.heads * a.tokens * (int64_t)sizeof(float);
}

/* As floats and bf16, for the kernels. */
struct attention_gradients {
    const void *x, *y, *dy;
    const float *log_sums;
    const void *earlier;
    float *at_y;
    void *dx;
};

template <int D, typename T>
static void backward_by(const nets_cuda_attention &a, const attention_gradients &g, cudaStream_t stream) {
    const T *x = static_cast<const T *>(g.x), *dy = static_cast<const T *>(g.dy);
    const T *earlier = static_cast<const T *>(g.earlier);
    T *dx = static_cast<T *>(g.dx);
    MM_LAUNCH((by_query<D, T>), grid_of<D>(a), TEAM, 0, stream, a, x, dy, g.log_sums, g.at_y, earlier, dx);
    MM_LAUNCH((by_key<D, T>), grid_of<D>(a), TEAM, 0, stream, a, x, dy, g.log_sums, g.at_y, earlier, dx);
}

template <typename T>
static void backward(const nets_cuda_attention &a, const attention_gradients &g, cudaStream_t stream) {
    const int64_t rows = a.samples * a.heads * a.tokens;
    MM_LAUNCH(dot_rows<T>, (unsigned)ceil_div(rows, WARPS), dim3(WARP, WARPS), 0, stream, a,
              static_cast<const T *>(g.y), static_cast<const T *>(g.dy), rows, g.at_y);
    if (a.size <= 32)
        backward_by<32, T>(a, g, stream);
    else if (a.size <= 64)
        backward_by<64, T>(a, g, stream);
    else
        backward_by<128, T>(a, g, stream);
}

void nets_cuda_attention_backward(mm_dtype maps, nets_cuda_attention a, const void *x, const void *y, const void *dy,
                                  const float *log_sums, const void *earlier, void *scratch, void *dx,
                                  cudaStream_t stream) {
    const attention_gradients g = {x, y, dy, log_sums, earlier, static_cast<float *>(scratch), dx};
    NETS_BY_STORAGE(maps, backward, a, g, stream);
}

/* What goes by channels: biases, sums over rows, batch norm.
 *
 * Sums are made in two steps. In the first, a block walks down a chunk of rows of its tile of channels; its threads' sums
 * are joined in shared memory, neighbours first, and become one of the chunk's rows in the scratch:
 *
 *   | quantity 0: chunk 0 [channels], chunk 1, ... | quantity 1: chunk 0, ... |
 *
 * In the second, they are joined in double. Chunks are made from the shape alone: one order, whatever the device. */
#include "nets/cuda_vector.h"

enum { FINISH_LANES = 32, FINISH_HEIGHT = 8 };

/* The first step's division of [rows, channels]. */
struct chunks_of {
    int64_t rows, rows_each;
    int channels, n;
};

static chunks_of divide(int64_t rows, int64_t channels, const map_grid &g) {
    chunks_of c;
    const int64_t most = larger(1, MOST_BLOCKS / 2 / g.tiles), least_rows = 4 * g.block.y;
    c.rows = rows;
    c.rows_each = larger(least_rows, ceil_div(rows, most));
    c.channels = (int)channels;
    c.n = (int)ceil_div(rows, c.rows_each);
    return c;
}

int64_t nets_cuda_reduction_bytes(int64_t rows, int64_t channels) {
    const map_grid g = map_over(rows, channels, channels % 4 ? 1 : 4);
    return 2 * (int64_t)sizeof(float) * channels * divide(rows, channels, g).n;
}

static __device__ inline int64_t rows_in(const chunks_of &c, int chunk) {
    const int64_t begin = chunk * c.rows_each;
    return c.rows - begin < c.rows_each ? c.rows - begin : c.rows_each;
}

/* ---------------------------------------------------------------- first step: what is summed */

/* Mean and sum of squared deviations, by Welford's recurrence, joined as by Chan et al., "Algorithms for computing the
 * sample variance" (1983): no difference of large sums. */
template <int V> struct moments {
    enum { QUANTITIES = 2 };
    float n, q[2][V];
};

template <int V> struct sums {
    enum { QUANTITIES = 2 };
    float q[2][V];
};

template <int V> struct sum {
    enum { QUANTITIES = 1 };
    float q[1][V];
};

template <int V> static __device__ inline void join(moments<V> *a, const moments<V> &b) {
    if (b.n == 0) return;
    const float n = a->n + b.n, share = b.n / n;
    for (int k = 0; k < V; k++) {
        const float apart = b.q[0][k] - a->q[0][k];
        a->q[0][k] += apart * share;
        a->q[1][k] += b.q[1][k] + apart * apart * a->n * share;
    }
    a->n = n;
}

template <typename S> static __device__ inline void add(S *a, const S &b) {
    for (int i = 0; i < S::QUANTITIES; i++)
        for (int k = 0; k < (int)(sizeof a->q[0] / sizeof a->q[0][0]); k++) a->q[i][k] += b.q[i][k];
}

template <int V> static __device__ inline void join(sums<V> *a, const sums<V> &b) { add(a, b); }
template <int V> static __device__ inline void join(sum<V> *a, const sum<V> &b) { add(a, b); }

template <int V> struct moments_of {
    typedef moments<V> total;
    const float *x;

    __device__ void start(int) {}
    __device__ void take(total *t, int64_t at) const {
        vec<V> v;
        load(x + at, &v);
        t->n += 1;
        const float weight = 1 / t->n;
        for (int k = 0; k < V; k++) {
            const float apart = v.at[k] - t->q[0][k];
            t->q[0][k] = fmaf(apart, weight, t->q[0][k]);
            t->q[1][k] = fmaf(apart, v.at[k] - t->q[0][k], t->q[1][k]);
        }
    }
};

/* Of dy, and of dy times the deviation from the mean. */
template <int V> struct gradient_sums_of {
    typedef sums<V> total;
    const float *dy, *x, *mean;
    vec<V> my_mean;

    __device__ void start(int c) { load(mean + c, &my_mean); }
    __device__ void take(total *t, int64_t at) const {
        vec<V> gradient, v;
        load(dy + at, &gradient);
        load(x + at, &v);
        for (int k = 0; k < V; k++) {
            t->q[0][k] += gradient.at[k];
            t->q[1][k] = fmaf(gradient.at[k], v.at[k] - my_mean.at[k], t->q[1][k]);
        }
    }
};

template <int V> struct sum_of {
    typedef sum<V> total;
    const float *values;

    __device__ void start(int) {}
    __device__ void take(total *t, int64_t at) const {
        vec<V> v;
        load(values + at, &v);
        for (int k = 0; k < V; k++) t->q[0][k] += v.at[k];
    }
};

template <int V, typename Source> static __global__ void reduce(Source source, chunks_of c, float *parts) {
    typedef typename Source::total total;
    __shared__ total all[THREADS];
    const int channel = my_channel<V>(), lane = (int)threadIdx.x, lanes = (int)blockDim.x, chunk = (int)blockIdx.x;
    const bool mine = channel < c.channels;
    total t = {};
    if (mine) {
        const int64_t begin = chunk * c.rows_each, end = begin + rows_in(c, chunk);
        source.start(channel);
#pragma unroll 4
        for (int64_t row = begin + threadIdx.y; row < end; row += blockDim.y)
            source.take(&t, row * c.channels + channel);
    }
    all[threadIdx.y * lanes + lane] = t;
    for (int half = (int)blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.y < half)
            join(&all[threadIdx.y * lanes + lane], all[(threadIdx.y + half) * lanes + lane]);
    }
    if (!mine || threadIdx.y) return;
    for (int i = 0; i < total::QUANTITIES; i++) {
        vec<V> out;
        for (int k = 0; k < V; k++) out.at[k] = all[lane].q[i][k];
        store(parts + ((int64_t)i * c.n + chunk) * c.channels + channel, out);
    }
}

/* ---------------------------------------------------------------- second step: what becomes of the sums */

/* Of one channel, in double; as moments or plain sums. */
struct wide {
    double n, q[2];
};

struct finish_moments {
    float *mean, *var, *running_mean, *running_var;
    float momentum;

    static __device__ void join(wide *a, const wide &b) {
        if (b.n == 0) return;
        const double n = a->n + b.n, share = b.n / n, apart = b.q[0] - a->q[0];
        a->q[0] += apart * share;
        a->q[1] += b.q[1] + apart * apart * a->n * share;
        a->n = n;
    }
    __device__ void finish(int c, const wide &w) const {
        const float m = (float)w.q[0], v = (float)(w.q[1] / w.n);
        mean[c] = m;
        var[c] = v;
        if (!running_mean) return; /* recomputed: this batch has been counted */
        const float unbias = w.n > 1 ? (float)(w.n / (w.n - 1)) : 1.0f;
        running_mean[c] += momentum * (m - running_mean[c]);
        running_var[c] += momentum * (v * unbias - running_var[c]);
    }
};

struct finish_gradient_sums {
    const float *var;
    float eps;
    float *dscale, *dshift;
    float *mean_dy, *slope; /* for the gradient by x */

    static __device__ void join(wide *a, const wide &b) {
        a->n += b.n;
        a->q[0] += b.q[0];
        a->q[1] += b.q[1];
    }
    __device__ void finish(int c, const wide &w) const {
        const double inverse = 1 / sqrt((double)var[c] + eps);
        dshift[c] = (float)w.q[0];
        dscale[c] = (float)(w.q[1] * inverse);
        mean_dy[c] = (float)(w.q[0] / w.n);
        slope[c] = (float)(w.q[1] * inverse * inverse / w.n);
    }
};

struct finish_sum {
    float *sums;

    static __device__ void join(wide *a, const wide &b) { a->q[0] += b.q[0]; }
    __device__ void finish(int c, const wide &w) const { sums[c] = (float)w.q[0]; }
};

template <int QUANTITIES, typename Finish>
static __global__ void finish(Finish f, chunks_of c, const float *parts) {
    __shared__ wide all[FINISH_HEIGHT][FINISH_LANES];
    const int channel = (int)(blockIdx.x * FINISH_LANES + threadIdx.x), down = (int)threadIdx.y;
    wide w = {};
    for (int chunk = down; chunk < c.n && channel < c.channels; chunk += FINISH_HEIGHT) {
        wide part = {};
        part.n = (double)rows_in(c, chunk);
        for (int i = 0; i < QUANTITIES; i++) part.q[i] = parts[((int64_t)i * c.n + chunk) * c.channels + channel];
        Finish::join(&w, part);
    }
    all[down][threadIdx.x] = w;
    __syncthreads();
    if (down || channel >= c.channels) return;
    for (int i = 1; i < FINISH_HEIGHT; i++) Finish::join(&w, all[i][threadIdx.x]);
    f.finish(channel, w);
}

template <int V, typename Source, typename Finish>
static void sum_up(const Source &source, const Finish &f, int64_t rows, int64_t channels, void *scratch,
                   cudaStream_t stream) {
    const map_grid g = map_over(rows, channels, V);
    const chunks_of c = divide(rows, channels, g);
    float *parts = static_cast<float *>(scratch);
    void (*first)(Source, chunks_of, float *) = reduce<V, Source>;
    void (*second)(Finish, chunks_of, const float *) = finish<Source::total::QUANTITIES, Finish>;
    MM_LAUNCH(first, dim3((unsigned)c.n, (unsigned)g.tiles), g.block, 0, stream, source, c, parts);
    MM_LAUNCH(second, (unsigned)ceil_div(channels, FINISH_LANES), dim3(FINISH_LANES, FINISH_HEIGHT), 0, stream, f, c,
              parts);
}

/* ---------------------------------------------------------------- biases */

template <int V> static __global__ void add_bias(float *values, const float *bias, int64_t rows, int channels) {
    const int c = my_channel<V>();
    if (c >= channels) return;
    vec<V> b;
    load(bias + c, &b);
    for (int64_t row = my_row(); row < rows; row += row_step()) store_sum(values + row * channels + c, b, values + row * channels + c);
}

void nets_cuda_add_bias(float *values, const float *bias, int64_t rows, int64_t channels, cudaStream_t stream) {
    LAUNCH_MAP(add_bias, rows, channels, values, bias, rows, (int)channels);
}

void nets_cuda_sum_rows(const float *values, int64_t rows, int64_t channels, void *scratch, float *sums,
                        cudaStream_t stream) {
    const finish_sum f = {sums};
    if (channels % 4) {
        const sum_of<1> source = {values};
        sum_up<1>(source, f, rows, channels, scratch, stream);
    } else {
        const sum_of<4> source = {values};
        sum_up<4>(source, f, rows, channels, scratch, stream);
    }
}

/* ---------------------------------------------------------------- batch norm */

void nets_cuda_batch_norm_statistics(nets_cuda_batch_norm bn, const float *x, void *scratch, float *mean, float *var,
                                     float *running_mean, float *running_var, cudaStream_t stream) {
    const finish_moments f = {mean, var, running_mean, running_var, bn.momentum};
    if (bn.channels % 4) {
        const moments_of<1> source = {x};
        sum_up<1>(source, f, bn.rows, bn.channels, scratch, stream);
    } else {
        const moments_of<4> source = {x};
        sum_up<4>(source, f, bn.rows, bn.channels, scratch, stream);
    }
}

template <int V>
static __global__ void normalise(nets_cuda_batch_norm bn, const float *x, const float *mean, const float *var,
                                 const float *scale, const float *shift, float *y) {
    const int c = my_channel<V>();
    if (c >= bn.channels) return;
    vec<V> m, factor, offset;
    load(mean + c, &m);
    load(var + c, &factor);
    load(shift + c, &offset);
    for (int k = 0; k < V; k++) factor.at[k] = scale[c + k] / sqrtf(factor.at[k] + bn.eps);
    for (int64_t row = my_row(); row < bn.rows; row += row_step()) {
        const int64_t at = row * bn.channels + c;
        vec<V> v;
        load(x + at, &v);
        for (int k = 0; k < V; k++) v.at[k] = fmaf(v.at[k] - m.at[k], factor.at[k], offset.at[k]);
        store(y + at, v);
    }
}

void nets_cuda_batch_norm_apply(nets_cuda_batch_norm bn, const float *x, const float *mean, const float *var,
                                const float *scale, const float *shift, float *y, cudaStream_t stream) {
    LAUNCH_MAP(normalise, bn.rows, bn.channels, bn, x, mean, var, scale, shift, y);
}

/* dx = scale / sqrt(var + eps) * (dy - mean of dy - (x - mean) * slope) */
template <int V>
static __global__ void normalise_backward(nets_cuda_batch_norm bn, nets_cuda_batch_norm_gradients g,
                                          const float *mean_dy, const float *slope) {
    const int c = my_channel<V>();
    if (c >= bn.channels) return;
    vec<V> m, factor, away, tilt;
    load(g.mean + c, &m);
    load(g.var + c, &factor);
    load(mean_dy + c, &away);
    load(slope + c, &tilt);
    for (int k = 0; k < V; k++) factor.at[k] = g.scale[c + k] / sqrtf(factor.at[k] + bn.eps);
    for (int64_t row = my_row(); row < bn.rows; row += row_step()) {
        const int64_t at = row * bn.channels + c;
        vec<V> v, gradient;
        load(g.x + at, &v);
        load(g.dy + at, &gradient);
        for (int k = 0; k < V; k++)
            v.at[k] = factor.at[k] * (gradient.at[k] - away.at[k] - (v.at[k] - m.at[k]) * tilt.at[k]);
        store_sum(g.dx + at, v, g.earlier ? g.earlier + at : NULL);
    }
}

/* The rows of channels begin where vectors may. */
static int64_t padded(int64_t bytes) { return ceil_div(bytes, 256) * 256; }

int64_t nets_cuda_batch_norm_backward_bytes(int64_t rows, int64_t channels) {
    return padded(nets_cuda_reduction_bytes(rows, channels)) + 2 * padded(channels * (int64_t)sizeof(float));
}

void nets_cuda_batch_norm_backward(nets_cuda_batch_norm bn, nets_cuda_batch_norm_gradients g, void *scratch,
                                   cudaStream_t stream) {
    char *behind = static_cast<char *>(scratch) + padded(nets_cuda_reduction_bytes(bn.rows, bn.channels));
    float *mean_dy = reinterpret_cast<float *>(behind);
    float *slope = reinterpret_cast<float *>(behind + padded(bn.channels * (int64_t)sizeof(float)));
    const finish_gradient_sums f = {g.var, bn.eps, g.dscale, g.dshift, mean_dy, slope};
    if (bn.channels % 4) {
        const gradient_sums_of<1> source = {g.dy, g.x, g.mean, {}};
        sum_up<1>(source, f, bn.rows, bn.channels, scratch, stream);
    } else {
        const gradient_sums_of<4> source = {g.dy, g.x, g.mean, {}};
        sum_up<4>(source, f, bn.rows, bn.channels, scratch, stream);
    }
    if (g.dx) LAUNCH_MAP(normalise_backward, bn.rows, bn.channels, bn, g, mean_dy, slope);
}

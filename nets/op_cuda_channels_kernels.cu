/* What goes by channels: biases, sums over rows, batch norm.
 *
 * Sums are made in two steps. In the first, a block walks down a chunk of rows of its tile of channels; its threads' sums
 * are joined in shared memory, neighbours first, and become one of the chunk's rows in the scratch:
 *
 *   | quantity 0: chunk 0 [channels], chunk 1, ... | quantity 1: chunk 0, ... |
 *
 * In the second, they are joined in double. Chunks are made from the shape alone: one order, whatever the device. */
#include "nets/cuda_vector.h"

/* REDUCE_BLOCKS: what 128 multiprocessors run at once, four each: one wave on an H100 or H200. */
enum { FINISH_LANES = 32, FINISH_HEIGHT = 32, REDUCE_BLOCKS = 512 };

/* The first step's division of [rows, channels]. */
struct chunks_of {
    int64_t rows, rows_each;
    int channels, n;
};

static chunks_of divide(int64_t rows, int64_t channels, const map_grid &g) {
    chunks_of c;
    const int64_t most = larger(1, REDUCE_BLOCKS / g.tiles), least_rows = 4 * g.block.y;
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

/* Sources: fetch loads what one row gives, take counts it in. */
template <int V> struct moments_of {
    typedef moments<V> total;
    typedef vec<V> item;
    const float *x;

    __device__ void start(int) {}
    __device__ item fetch(int64_t at) const {
        item v;
        load(x + at, &v);
        return v;
    }
    __device__ void take(total *t, const item &v) const {
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
    struct item {
        vec<V> gradient, x;
    };
    const float *dy, *x, *mean;
    vec<V> my_mean;

    __device__ void start(int c) { load(mean + c, &my_mean); }
    __device__ item fetch(int64_t at) const {
        item i;
        load(dy + at, &i.gradient);
        load(x + at, &i.x);
        return i;
    }
    __device__ void take(total *t, const item &i) const {
        for (int k = 0; k < V; k++) {
            t->q[0][k] += i.gradient.at[k];
            t->q[1][k] = fmaf(i.gradient.at[k], i.x.at[k] - my_mean.at[k], t->q[1][k]);
        }
    }
};

template <int V> struct sum_of {
    typedef sum<V> total;
    typedef vec<V> item;
    const float *values;

    __device__ void start(int) {}
    __device__ item fetch(int64_t at) const {
        item v;
        load(values + at, &v);
        return v;
    }
    __device__ void take(total *t, const item &v) const {
        for (int k = 0; k < V; k++) t->q[0][k] += v.at[k];
    }
};

/* Rows begin .. end - 1, `step` apart, of one thread's channels. */
template <typename Source>
static __device__ inline void take_rows(const Source &source, typename Source::total *t, int64_t begin, int64_t end,
                                        int64_t step, int64_t pitch, int channel) {
    int64_t row = begin;
    for (; row + (AT_ONCE - 1) * step < end; row += AT_ONCE * step) {
        typename Source::item item[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) item[i] = source.fetch((row + i * step) * pitch + channel);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) source.take(t, item[i]);
    }
    for (; row < end; row += step) source.take(t, source.fetch(row * pitch + channel));
}

template <int V, typename Source> static __global__ void reduce(Source source, chunks_of c, float *parts) {
    typedef typename Source::total total;
    __shared__ total all[THREADS];
    const int channel = my_channel<V>(), lane = (int)threadIdx.x, lanes = (int)blockDim.x, chunk = (int)blockIdx.x;
    const bool mine = channel < c.channels;
    total t = {};
    if (mine) {
        const int64_t begin = chunk * c.rows_each, end = begin + rows_in(c, chunk);
        source.start(channel);
        take_rows(source, &t, begin + threadIdx.y, end, blockDim.y, c.channels, channel);
    }
    all[threadIdx.y * lanes + lane] = t;
    for (int half = (int)blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.y < half) join(&all[threadIdx.y * lanes + lane], all[(threadIdx.y + half) * lanes + lane]);
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

/* blockDim.y threads join a channel's chunks. */
template <int QUANTITIES, typename Finish> static __global__ void finish(Finish f, chunks_of c, const float *parts) {
    __shared__ wide all[FINISH_HEIGHT][FINISH_LANES];
    const int channel = (int)(blockIdx.x * FINISH_LANES + threadIdx.x), down = (int)threadIdx.y;
    const int height = (int)blockDim.y;
    wide w = {};
#pragma unroll 4
    for (int chunk = down; chunk < c.n && channel < c.channels; chunk += height) {
        wide part = {};
        part.n = (double)rows_in(c, chunk);
        for (int i = 0; i < QUANTITIES; i++) part.q[i] = parts[((int64_t)i * c.n + chunk) * c.channels + channel];
        Finish::join(&w, part);
    }
    all[down][threadIdx.x] = w;
    for (int half = height / 2; half > 0; half /= 2) {
        __syncthreads();
        if (down < half) Finish::join(&all[down][threadIdx.x], all[down + half][threadIdx.x]);
    }
    if (down == 0 && channel < c.channels) f.finish(channel, all[0][threadIdx.x]);
}

/* No more threads a channel than it has chunks. */
static unsigned finish_height(int chunks) {
    unsigned height = 1;
    while (height < FINISH_HEIGHT && (int)height < chunks) height *= 2;
    return height;
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
    MM_LAUNCH(second, (unsigned)ceil_div(channels, FINISH_LANES), dim3(FINISH_LANES, finish_height(c.n)), 0, stream, f,
              c, parts);
}

/* ---------------------------------------------------------------- biases */

template <int V> static __global__ void add_bias(float *values, const float *bias, int64_t rows, int channels) {
    const int c = my_channel<V>();
    if (c >= channels) return;
    vec<V> b;
    load(bias + c, &b);
    write_rows<V>(rows, channels, values + c, [&](int64_t row) { return plus(b, values, row * channels + c); });
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
    write_rows<V>(bn.rows, bn.channels, y + c, [&](int64_t row) {
        vec<V> v;
        load(x + row * bn.channels + c, &v);
        for (int k = 0; k < V; k++) v.at[k] = fmaf(v.at[k] - m.at[k], factor.at[k], offset.at[k]);
        return v;
    });
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
    write_rows<V>(bn.rows, bn.channels, g.dx + c, [&](int64_t row) {
        const int64_t at = row * bn.channels + c;
        vec<V> v, gradient;
        load(g.x + at, &v);
        load(g.dy + at, &gradient);
        for (int k = 0; k < V; k++)
            v.at[k] = factor.at[k] * (gradient.at[k] - away.at[k] - (v.at[k] - m.at[k]) * tilt.at[k]);
        return plus(v, g.earlier, at);
    });
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

/* Sums over a map's rows, channel by channel, in two steps. In the first step block i of n takes every n-th stripe of
 * blockDim.y rows in its tile of channels, so that all blocks go down the map together. It joins its threads' sums in
 * shared memory, in a tree, and writes them to the scratch:
 *
 *   | quantity 0: block 0 [channels], block 1, ... | quantity 1: block 0, ... |
 *
 * The second step joins the blocks' sums in double. The number of blocks depends only on the shape, so the order of
 * sums is the same on every device. For .cu files; C++. */
#ifndef NETS_CUDA_REDUCE_H
#define NETS_CUDA_REDUCE_H

#include "nets/cuda/vector.h"

/* REDUCE_BLOCKS: four for each of the 132 multiprocessors of an H100 or H200, whose registers suffice for that: one
 * wave. LEAST_ROWS: rows of a thread. This and the others are chosen. */
enum { REDUCE_BLOCKS = 528, BLOCKS_AT_ONCE = 4, LEAST_ROWS = 4, FINISH_LANES = 16, FINISH_HEIGHT = 64 };

/* How the first step divides [rows, channels] among n blocks for each tile. */
struct stripes {
    int64_t rows;
    int channels, n, height;
    int each, rest; /* rows that every block takes; rows of the last, incomplete round */
};

static inline stripes divide(int64_t rows, int64_t channels, const map_grid &g) {
    stripes s;
    const int64_t most = larger(1, REDUCE_BLOCKS / g.tiles);
    s.rows = rows;
    s.channels = (int)channels;
    s.height = (int)g.block.y;
    s.n = (int)lesser(most, ceil_div(rows, LEAST_ROWS * (int64_t)s.height));
    const int64_t round = (int64_t)s.n * s.height;
    s.each = (int)(rows / round * s.height);
    s.rest = (int)(rows % round);
    return s;
}

static __device__ inline int rows_of(const stripes &s, int block) {
    return s.each + max(0, min(s.height, s.rest - block * s.height));
}

/* ---------------------------------------------------------------- first step: what is summed */

template <int V> struct sums {
    enum { QUANTITIES = 2 };
    float q[2][V];
};

template <int V> struct sum {
    enum { QUANTITIES = 1 };
    float q[1][V];
};

template <typename S> static __device__ inline void add(S *a, const S &b) {
    for (int i = 0; i < S::QUANTITIES; i++)
        for (int k = 0; k < (int)(sizeof a->q[0] / sizeof a->q[0][0]); k++) a->q[i][k] += b.q[i][k];
}

template <int V> static __device__ inline void join(sums<V> *a, const sums<V> &b) { add(a, b); }
template <int V> static __device__ inline void join(sum<V> *a, const sum<V> &b) { add(a, b); }

/* A Source has `fetch`, which loads what it needs of a row, and `take`, which adds that to the thread's total. Both get
 * the index of the thread's first element in the row. ROWS rows are fetched before the first is taken, so that their
 * loads overlap. */
template <typename Source>
static __device__ inline void take_rows(Source &source, typename Source::total *t, const stripes &s, int channel) {
    const unsigned step = (unsigned)row_step(), rows = (unsigned)s.rows;
    for (unsigned row = (unsigned)my_row(); row < rows; row += Source::ROWS * step) {
        typename Source::item item[Source::ROWS];
#pragma unroll
        for (int i = 0; i < Source::ROWS; i++)
            if (row + i * step < rows) source.fetch((int64_t)(row + i * step) * s.channels + channel, &item[i]);
#pragma unroll
        for (int i = 0; i < Source::ROWS; i++)
            if (row + i * step < rows) source.take((int64_t)(row + i * step) * s.channels + channel, item[i], t);
    }
}

template <int V, typename Source>
static __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE) reduce(Source source, stripes s, float *parts) {
    typedef typename Source::total total;
    __shared__ total all[THREADS];
    const int channel = my_channel<V>(), lane = (int)threadIdx.x, lanes = (int)blockDim.x;
    const bool mine = channel < s.channels;
    total t = {};
    if (mine) {
        source.start(channel);
        take_rows(source, &t, s, channel);
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
        store(parts + ((int64_t)i * s.n + blockIdx.x) * s.channels + channel, out);
    }
}

/* ---------------------------------------------------------------- second step: the sums are joined and used */

struct wide {
    double q[2];
};

/* blockDim.y threads join the blocks' sums of a channel. A Finish has `start`, which loads what it needs of the
 * channel, `part`, which adds a block's quantities to a thread's sums, and `finish`, which uses the channel's sums. */
template <int QUANTITIES, typename Finish>
static __global__ void __launch_bounds__(FINISH_LANES *FINISH_HEIGHT) finish(Finish f, stripes s, const float *parts) {
    __shared__ wide all[FINISH_HEIGHT][FINISH_LANES];
    const int channel = (int)(blockIdx.x * FINISH_LANES + threadIdx.x), down = (int)threadIdx.y;
    const int height = (int)blockDim.y;
    const bool mine = channel < s.channels;
    wide w = {};
    if (mine) {
        f.start(channel);
        for (int block = down; block < s.n; block += AT_ONCE * height) {
            float q[AT_ONCE][QUANTITIES] = {};
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                for (int i = 0; i < QUANTITIES && block + k * height < s.n; i++)
                    q[k][i] = parts[((int64_t)i * s.n + block + k * height) * s.channels + channel];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (block + k * height < s.n) f.part(q[k], rows_of(s, block + k * height), &w);
        }
    }
    all[down][threadIdx.x] = w;
    for (int half = height / 2; half > 0; half /= 2) {
        __syncthreads();
        if (down < half)
            for (int i = 0; i < QUANTITIES; i++) all[down][threadIdx.x].q[i] += all[down + half][threadIdx.x].q[i];
    }
    if (down == 0 && mine) f.finish(channel, all[0][threadIdx.x], (double)s.rows);
}

/* Threads for each channel: a power of two, no more than needed for the parts. */
static inline unsigned finish_height(int parts) {
    unsigned height = 1;
    while (height < FINISH_HEIGHT && (int)height < parts) height *= 2;
    return height;
}

template <int V, typename Source, typename Finish>
static void sum_up(const Source &source, const Finish &f, int64_t rows, int64_t channels, void *scratch,
                   cudaStream_t stream) {
    const map_grid g = map_over(rows, channels, V, LEAST_ROWS);
    const stripes s = divide(rows, channels, g);
    float *parts = static_cast<float *>(scratch);
    void (*first)(Source, stripes, float *) = reduce<V, Source>;
    void (*second)(Finish, stripes, const float *) = finish<Source::total::QUANTITIES, Finish>;
    MM_LAUNCH(first, dim3((unsigned)s.n, (unsigned)g.tiles), g.block, 0, stream, source, s, parts);
    MM_LAUNCH(second, (unsigned)ceil_div(channels, FINISH_LANES), dim3(FINISH_LANES, finish_height(s.n)), 0, stream, f,
              s, parts);
}

#endif

// SPDX-License-Identifier: MIT
/* Biases of a map's channels, and sums over its rows. In brackets: bytes of memory traffic for an f32 element. */
#include "nets/cuda/kernels/reduce.h"

/* ---------------------------------------------------------------- y = x + bias [8] */

template <typename From, typename T, int V>
static __device__ void put_sums(const From *x, const float *bias, T *y, int64_t rows, int channels, bool relu) {
    const int c = my_channel<V>();
    if (c >= channels) return;
    vec<V> b;
    load(bias + c, &b);
    write_rows<V, AT_ONCE>(
        rows_of_all(rows), channels, y + c,
        [&](int row) {
            held<From, V> h;
            load(x + (int64_t)row * channels + c, &h);
            return h;
        },
        [&](const held<From, V> &h, int) { return relu ? positive(sum_of(h.floats(), b)) : sum_of(h.floats(), b); });
}

template <typename T, int V>
static __global__ void add_bias(const T *x, const float *bias, T *y, int64_t rows, int channels, bool relu) {
    put_sums<T, T, V>(x, bias, y, rows, channels, relu);
}

template <typename T, int V>
static __global__ void add_bias_rounded(const float *x, const float *bias, T *y, int64_t rows, int channels) {
    put_sums<float, T, V>(x, bias, y, rows, channels, false);
}

template <typename T>
static void launch_add_bias(const void *x, const float *bias, void *y, int64_t rows, int64_t channels, bool relu,
                            cudaStream_t stream) {
    LAUNCH_MAP(add_bias, T, rows, channels, AT_ONCE, static_cast<const T *>(x), bias, static_cast<T *>(y), rows,
               (int)channels, relu);
}

void nets_cuda_add_bias(mm_dtype maps, void *values, const float *bias, int64_t rows, int64_t channels,
                        cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_add_bias, values, bias, values, rows, channels, false, stream);
}

void nets_cuda_add_bias_bf16(const float *x, const float *bias, void *y, int64_t rows, int64_t channels,
                             cudaStream_t stream) {
    LAUNCH_MAP(add_bias_rounded, bf16, rows, channels, AT_ONCE, x, bias, static_cast<bf16 *>(y), rows, (int)channels);
}

void nets_cuda_bias_relu(mm_dtype maps, const void *x, const float *bias, void *y, int64_t rows, int64_t channels,
                         cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_add_bias, x, bias, y, rows, channels, true, stream);
}

/* ---------------------------------------------------------------- sums of rows */

/* Sums the values. [4] */
template <typename T, int V> struct values_of {
    enum { ROWS = AT_ONCE, BLOCKS = BLOCKS_OF<V>, MATRICES = 1 };
    typedef sums<V> total;
    typedef held<T, V> item;
    const T *values;

    __device__ void start(int) {}
    __device__ void fetch(int64_t at, item *v) const { load(values + at, v); }
    __device__ void take(int64_t, const item &v, total *t) const {
        for (int k = 0; k < V; k++) t->q[0][k] += v.floats().at[k];
    }
};

/* Sums the gradients that the gate passes, and writes them to dx. [12 by value, 8 by mask; 4 more for `earlier`] */
template <typename T, int V, gate_kind GATE> struct gradients_of {
    enum { ROWS = 2, BLOCKS = BLOCKS_OF<V>, MATRICES = 1 };
    typedef sums<V> total;
    struct item {
        gated<T, V> g;
        held<T, V> earlier;
    };
    gradient<T, GATE> from;
    const T *earlier;
    T *dx;

    __device__ void start(int) {}
    __device__ void fetch(int64_t at, item *i) const {
        from.fetch(at, &i->g);
        if (earlier) load(earlier + at, &i->earlier);
    }
    __device__ void take(int64_t at, const item &i, total *t) const {
        const vec<V> g = from.get(at, i.g);
        store(dx + at, earlier ? sum_of(g, i.earlier.floats()) : g);
        for (int k = 0; k < V; k++) t->q[0][k] += g.at[k];
    }
};

struct finish_sum {
    enum { FROM_ORIGIN = 0 };
    float *sums;

    __device__ void part(const wide &q, double, double, wide *w) const { w->q[0] += q.q[0]; }
    __device__ void close(double, double, wide *) const {}
    __device__ void finish(int c, const wide &w, double) const { sums[c] = (float)w.q[0]; }
};

template <typename T>
static void launch_sum_rows(const void *values, const nets_cuda_reduction &over, void *scratch, float *sums,
                            cudaStream_t stream) {
    const finish_sum f = {sums};
    const values_of<T, 1> singly = {static_cast<const T *>(values)};
    const values_of<T, PER_LOAD<T>> together = {static_cast<const T *>(values)};
    if (over.strips.channels % PER_LOAD<T>)
        sum_up<1>(singly, f, over, scratch, stream);
    else
        sum_up<PER_LOAD<T>>(together, f, over, scratch, stream);
}

void nets_cuda_sum_rows(mm_dtype maps, const void *values, const nets_cuda_reduction *over, void *scratch, float *sums,
                        cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_sum_rows, values, *over, scratch, sums, stream);
}

template <typename T, gate_kind GATE>
static void pass_and_sum(const gradient<T, GATE> &from, const T *earlier, T *dx, const nets_cuda_reduction &over,
                         void *scratch, float *sums, cudaStream_t stream) {
    const finish_sum f = {sums};
    const gradients_of<T, 1, GATE> singly = {from, earlier, dx};
    const gradients_of<T, PER_LOAD<T>, GATE> together = {from, earlier, dx};
    if (over.strips.channels % PER_LOAD<T>)
        sum_up<1>(singly, f, over, scratch, stream);
    else
        sum_up<PER_LOAD<T>>(together, f, over, scratch, stream);
}

template <typename T>
static void launch_bias_relu_backward(const void *dy, nets_cuda_gate gate, const void *earlier, void *dx,
                                      const nets_cuda_reduction &over, void *scratch, float *dbias,
                                      cudaStream_t stream) {
    const T *from = static_cast<const T *>(dy), *more = static_cast<const T *>(earlier);
    const gradient<T, BY_MASK> by_mask = {from, gate};
    const gradient<T, BY_VALUE> by_value = {from, gate};
    if (gate.mask)
        pass_and_sum(by_mask, more, static_cast<T *>(dx), over, scratch, dbias, stream);
    else
        pass_and_sum(by_value, more, static_cast<T *>(dx), over, scratch, dbias, stream);
}

void nets_cuda_bias_relu_backward(mm_dtype maps, const void *dy, nets_cuda_gate gate, const void *earlier, void *dx,
                                  const nets_cuda_reduction *over, void *scratch, float *dbias, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_bias_relu_backward, dy, gate, earlier, dx, *over, scratch, dbias, stream);
}

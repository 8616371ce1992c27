/* Biases, and sums over rows: of the channels of maps. Bytes of memory traffic for each of a map's are in brackets. */
#include "nets/cuda/reduce.h"

/* ---------------------------------------------------------------- y = x + bias [8] */

template <int V>
static __global__ void add_bias(const float *x, const float *bias, float *y, int64_t rows, int channels, bool relu) {
    const int c = my_channel<V>();
    if (c >= channels) return;
    vec<V> b;
    load(bias + c, &b);
    write_rows<V, AT_ONCE>(
        rows_of_all(rows), channels, y + c, [&](int row) { return loaded<V>(x + (int64_t)row * channels + c); },
        [&](const vec<V> &v, int) { return relu ? positive(sum_of(v, b)) : sum_of(v, b); });
}

void nets_cuda_add_bias(float *values, const float *bias, int64_t rows, int64_t channels, cudaStream_t stream) {
    LAUNCH_MAP(add_bias, rows, channels, AT_ONCE, values, bias, values, rows, (int)channels, false);
}

void nets_cuda_bias_relu(const float *x, const float *bias, float *y, int64_t rows, int64_t channels,
                         cudaStream_t stream) {
    LAUNCH_MAP(add_bias, rows, channels, AT_ONCE, x, bias, y, rows, (int)channels, true);
}

/* ---------------------------------------------------------------- sums of rows */

/* [4] */
template <int V> struct values_of {
    enum { ROWS = AT_ONCE };
    typedef sums<V> total;
    typedef vec<V> item;
    const float *values;

    __device__ void start(int) {}
    __device__ void fetch(int64_t at, item *v) const { load(values + at, v); }
    __device__ void take(int64_t, const item &v, total *t) const {
        for (int k = 0; k < V; k++) t->q[0][k] += v.at[k];
    }
};

/* What the gate lets through is written on the way. [12 by value, 8 by mask; 4 more for what came earlier] */
template <int V, gate_kind GATE> struct gradients_of {
    enum { ROWS = 2 };
    typedef sums<V> total;
    struct item {
        gated<V> g;
        vec<V> earlier;
    };
    gradient<GATE> from;
    const float *earlier;
    float *dx;

    __device__ void start(int) {}
    __device__ void fetch(int64_t at, item *i) const {
        from.fetch(at, &i->g);
        if (earlier) load(earlier + at, &i->earlier);
    }
    __device__ void take(int64_t at, const item &i, total *t) const {
        const vec<V> g = from.get(at, i.g);
        store(dx + at, earlier ? sum_of(g, i.earlier) : g);
        for (int k = 0; k < V; k++) t->q[0][k] += g.at[k];
    }
};

struct finish_sum {
    enum { PARTS = 2 };
    float *sums;

    __device__ void part(const wide &q, double, double, wide *w) const { w->q[0] += q.q[0]; }
    __device__ void close(double, double, wide *) const {}
    __device__ void finish(int c, const wide &w, double) const { sums[c] = (float)w.q[0]; }
};

void nets_cuda_sum_rows(const float *values, const nets_cuda_reduction *over, void *scratch, float *sums,
                        cudaStream_t stream) {
    const finish_sum f = {sums};
    if (over->strips.channels % 4) {
        const values_of<1> source = {values};
        sum_up<1>(source, f, *over, scratch, stream);
    } else {
        const values_of<4> source = {values};
        sum_up<4>(source, f, *over, scratch, stream);
    }
}

template <gate_kind GATE>
static void pass_and_sum(const float *dy, nets_cuda_gate gate, const float *earlier, float *dx,
                         const nets_cuda_reduction &over, void *scratch, float *sums, cudaStream_t stream) {
    const finish_sum f = {sums};
    if (over.strips.channels % 4) {
        const gradients_of<1, GATE> source = {{dy, gate}, earlier, dx};
        sum_up<1>(source, f, over, scratch, stream);
    } else {
        const gradients_of<4, GATE> source = {{dy, gate}, earlier, dx};
        sum_up<4>(source, f, over, scratch, stream);
    }
}

void nets_cuda_bias_relu_backward(const float *dy, nets_cuda_gate gate, const float *earlier, float *dx,
                                  const nets_cuda_reduction *over, void *scratch, float *dbias, cudaStream_t stream) {
    if (gate.mask)
        pass_and_sum<BY_MASK>(dy, gate, earlier, dx, *over, scratch, dbias, stream);
    else
        pass_and_sum<BY_VALUE>(dy, gate, earlier, dx, *over, scratch, dbias, stream);
}

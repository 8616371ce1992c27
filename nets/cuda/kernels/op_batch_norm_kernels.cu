// SPDX-License-Identifier: MIT
/* Batch norm, with the sum and the ReLU that are fused with it. Each phase has two passes over the map. Per element
 * they read (r) and write (w) the arrays listed; those in brackets only if they are there. A sign mask costs almost
 * nothing.
 *
 *   forward    statistics: r x;  then r x (x2), w y
 *   backward   sums: r dy x (y) (earlier2), w (dx2);  then r dy x (y) (earlier), w dx
 *
 * If there is no x2 and x has the forward's bits, both backward passes compute y's signs from x. If dx2 has no earlier
 * contribution, it equals the gated dy, and the second pass reads it instead of dy and y. If x came back from a lossy
 * code, the first pass leaves y's sign mask in the scratch for the second, provided that a row is whole words of it.
 * Writing the gated gradient to dx and reading it again would cost one more pass.
 *
 * The order of the passes uses the level-2 cache, which holds what was accessed last. The first pass goes from the
 * map's beginning to its end, the second back. So the second begins with what the first read last, and the convolution
 * behind it, which goes forward, begins with what the second wrote last. The opposite order would instead help the
 * first pass after a convolution, about as much. Data that is not read again soon is marked to be evicted first. */
#include "nets/cuda/kernels/batch_norm_parts.h"

/* Rows that a thread loads at once, with two to four arrays to load from: chosen so that the registers suffice for
 * BLOCKS_AT_ONCE. */
enum { NORMALISED_ROWS = 2 };

/* ---------------------------------------------------------------- statistics */

/* Number of values, mean, and sum of squared deviations. */
template <int V> struct moments { float n, q[2][V]; };

template <int V> static __device__ inline void join(moments<V> *a, const moments<V> &b) {
    if (b.n == 0) return;
    const float n = a->n + b.n, share = b.n / n;
    for (int k = 0; k < V; k++) nets_moments_join(&a->q[0][k], &a->q[1][k], a->n, b.q[0][k], b.q[1][k], share);
    a->n = n;
}

template <typename T, int V> struct moments_of {
    enum { ROWS = AT_ONCE, BLOCKS = BLOCKS_OF<V>, MATRICES = 0 };
    typedef moments<V> total;
    typedef held<T, V> item;
    const T *x;

    __device__ void start(int) {}
    __device__ void fetch(int64_t at, item *v) const { load(x + at, v); }
    __device__ void take(int64_t, const item &v, total *t) const {
        t->n += 1;
        const float weight = 1 / t->n;
        for (int k = 0; k < V; k++) nets_moments_take(v.floats().at[k], weight, &t->q[0][k], &t->q[1][k]);
    }
};

/* Joins the parts' means as deviations from the first part's mean, which avoids differences of large sums. */
struct finish_moments {
    enum { FROM_ORIGIN = 1 };
    float *mean, *var, *running_mean, *running_var;
    float momentum;

    __device__ void part(const wide &q, double origin, double rows, wide *w) const {
        nets_parts_take(q.q[0], q.q[1], origin, rows, &w->q[0], &w->q[1]);
    }
    __device__ void close(double origin, double rows, wide *w) const {
        nets_parts_close(origin, rows, &w->q[0], &w->q[1]);
    }
    __device__ void finish(int c, const wide &w, double rows) const {
        const double spread = w.q[1] / rows;
        /* Rounding may put `spread` below 0; a NaN stays NaN. */
        const float m = (float)w.q[0], v = spread < 0 ? 0 : (float)spread;
        mean[c] = m;
        var[c] = v;
        if (!running_mean) return; /* a recomputation: the forward pass has counted this batch already */
        const float unbias = rows > 1 ? (float)(rows / (rows - 1)) : 1.0f;
        running_mean[c] += momentum * (m - running_mean[c]);
        running_var[c] += momentum * (v * unbias - running_var[c]);
    }
};

template <typename T>
static void statistics(const nets_cuda_batch_norm &bn, const void *x, void *scratch, const finish_moments &f,
                       cudaStream_t stream) {
    const moments_of<T, 1> singly = {static_cast<const T *>(x)};
    const moments_of<T, PER_LOAD<T>> together = {static_cast<const T *>(x)};
    if (bn.over.strips.channels % PER_LOAD<T>)
        sum_up<1>(singly, f, bn.over, scratch, stream);
    else
        sum_up<PER_LOAD<T>>(together, f, bn.over, scratch, stream);
}

void nets_cuda_batch_norm_statistics(mm_dtype maps, nets_cuda_batch_norm bn, const void *x, void *scratch, float *mean,
                                     float *var, float *running_mean, float *running_var, cudaStream_t stream) {
    const finish_moments f = {mean, var, running_mean, running_var, bn.momentum};
    NETS_BY_STORAGE(maps, statistics, bn, x, scratch, f, stream);
}

/* ---------------------------------------------------------------- forward */

/* How the map is divided among blocks: into as many waves as for the sums, beginning at the map's end. The sums read
 * the end last, so it is still in the level-2 cache, even if the map is larger. */
struct division {
    int64_t rows;
    int channels, each; /* each: rows of a block */
    dim3 grid, block;
};

template <typename T> static division divide(nets_cuda_batch_norm bn) {
    const nets_strips &s = bn.over.strips;
    const map_grid g = map_over(s.rows, s.channels, s.channels % PER_LOAD<T> ? 1 : PER_LOAD<T>, NORMALISED_ROWS);
    const int64_t most = larger(1, NETS_STRIPS_THREADS / THREADS / g.tiles);
    const int64_t each = ceil_div(s.rows, lesser(g.grid.x, most));
    return {s.rows, s.channels, (int)each, dim3((unsigned)ceil_div(s.rows, each), (unsigned)g.tiles), g.block};
}

template <typename T, int V> struct two { held<T, V> x, x2; };

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS, BLOCKS_OF<V>)
    normalise(nets_cuda_batch_norm bn, division d, const T *x, const T *x2, const float *mean, const float *var,
              const float *scale, const float *shift, T *y) {
    const int c = my_channel<V>(), channels = d.channels;
    if (c >= channels) return;
    const affine<V> by = {loaded<V>(mean + c), factors<V>(scale, var, bn.eps, c), loaded<V>(shift + c)};
    write_rows<V, NORMALISED_ROWS>(
        rows_of_block(d.rows, d.each), channels, y + c,
        [&](int row) {
            const int64_t at = (int64_t)row * channels + c;
            two<T, V> v;
            load(x + at, &v.x, true);
            if (x2) load(x2 + at, &v.x2, true);
            return v;
        },
        [&](const two<T, V> &in, int) {
            vec<V> v = by.of(in.x.floats());
            if (x2) v = sum_of(v, in.x2.floats());
            return bn.relu ? positive(v) : v;
        });
}

template <typename T>
static void apply(nets_cuda_batch_norm bn, const void *x, const void *x2, const float *mean, const float *var,
                  const float *scale, const float *shift, void *y, cudaStream_t stream) {
    const division d = divide<T>(bn);
    void (*kernel)(nets_cuda_batch_norm, division, const T *, const T *, const float *, const float *, const float *,
                   const float *, T *) = d.channels % PER_LOAD<T> ? normalise<T, 1> : normalise<T, PER_LOAD<T>>;
    MM_LAUNCH(kernel, d.grid, d.block, 0, stream, bn, d, static_cast<const T *>(x), static_cast<const T *>(x2), mean,
              var, scale, shift, static_cast<T *>(y));
}

void nets_cuda_batch_norm_apply(mm_dtype maps, nets_cuda_batch_norm bn, const void *x, const void *x2,
                                const float *mean, const float *var, const float *scale, const float *shift, void *y,
                                cudaStream_t stream) {
    NETS_BY_STORAGE(maps, apply, bn, x, x2, mean, var, scale, shift, y, stream);
}

/* ---------------------------------------------------------------- backward: by x */

template <typename T, int V> struct at_x {
    gated<T, V> g;
    held<T, V> x, earlier;
};

template <typename T, int V, gate_kind GATE>
static __global__ void __launch_bounds__(THREADS, (BLOCKS_OF<V, GATE == FROM_X>))
    normalise_backward(nets_cuda_batch_norm bn, division d, nets_cuda_batch_norm_gradients to, gradient<T, GATE> from,
                       const float *mean_dy, const float *slope) {
    const int c = my_channel<V>(), channels = d.channels;
    if (c >= channels) return;
    const vec<V> away = loaded<V>(mean_dy + c), tilt = loaded<V>(slope + c);
    affine<V> by = {loaded<V>(to.mean + c), factors<V>(to.scale, to.var, bn.eps, c), {}};
    if (GATE == FROM_X) load(to.shift + c, &by.shift);
    write_rows<V, NORMALISED_ROWS>(
        rows_of_block(d.rows, d.each), channels, static_cast<T *>(to.dx) + c,
        [&](int row) {
            const int64_t at = (int64_t)row * channels + c;
            at_x<T, V> i;
            from.fetch(at, &i.g, true);
            load(static_cast<const T *>(to.x) + at, &i.x, true);
            if (to.earlier) load(static_cast<const T *>(to.earlier) + at, &i.earlier, true);
            return i;
        },
        [&](const at_x<T, V> &i, int row) {
            const vec<V> x = i.x.floats();
            vec<V> v = from.get((int64_t)row * channels + c, i.g);
            if (GATE == FROM_X) v = by.template through<T>(v, x);
            v = by_input<V>{by.mean, by.factor, away, tilt}.of(v, x);
            return to.earlier ? sum_of(v, i.earlier.floats()) : v;
        });
}

int64_t nets_cuda_batch_norm_backward_bytes(nets_cuda_batch_norm bn) { return places_of(bn).end; }

template <typename T, gate_kind GATE, int V>
static void sum_gradients(nets_cuda_batch_norm bn, const nets_cuda_batch_norm_gradients &to,
                          const finish_gradient_sums &f, uint32_t *mask, void *scratch, cudaStream_t stream) {
    const gradient_sums_of<T, V, GATE> source = {{static_cast<const T *>(to.dy), to.gate},
                                                 static_cast<const T *>(to.x),
                                                 to.mean,
                                                 to.var,
                                                 to.scale,
                                                 to.shift,
                                                 static_cast<const T *>(to.earlier2),
                                                 bn.eps,
                                                 static_cast<T *>(to.dx2),
                                                 mask,
                                                 {}};
    sum_up<V>(source, f, bn.over, scratch, stream);
}

template <typename T, gate_kind GATE>
static void by_x(nets_cuda_batch_norm bn, const nets_cuda_batch_norm_gradients &to, gradient<T, GATE> from,
                 const float *mean_dy, const float *slope, cudaStream_t stream) {
    const division d = divide<T>(bn);
    void (*kernel)(nets_cuda_batch_norm, division, nets_cuda_batch_norm_gradients, gradient<T, GATE>, const float *,
                   const float *) =
        d.channels % PER_LOAD<T> ? normalise_backward<T, 1, GATE> : normalise_backward<T, PER_LOAD<T>, GATE>;
    MM_LAUNCH(kernel, d.grid, d.block, 0, stream, bn, d, to, from, mean_dy, slope);
}

template <typename T, gate_kind GATE>
static void backward(nets_cuda_batch_norm bn, const nets_cuda_batch_norm_gradients &to, void *scratch,
                     cudaStream_t stream) {
    char *begin = static_cast<char *>(scratch);
    const places p = places_of(bn);
    float *mean_dy = reinterpret_cast<float *>(begin + p.mean_dy), *slope = reinterpret_cast<float *>(begin + p.slope);
    uint32_t *mask = GATE == BY_VALUE && p.end > p.mask ? reinterpret_cast<uint32_t *>(begin + p.mask) : NULL;
    const finish_gradient_sums f = {to.var, bn.eps, to.dscale, to.dshift, mean_dy, slope};
    if (bn.over.strips.channels % PER_LOAD<T>)
        sum_gradients<T, GATE, 1>(bn, to, f, mask, scratch, stream);
    else
        sum_gradients<T, GATE, PER_LOAD<T>>(bn, to, f, mask, scratch, stream);
    const T *dy = static_cast<const T *>(to.dy);
    const gradient<T, OPEN> let_through = {static_cast<const T *>(to.dx2), {}};
    const gradient<T, BY_MASK> masked = {dy, {NULL, mask}};
    const gradient<T, GATE> from = {dy, to.gate};
    if (!to.dx) return;
    if (to.dx2 && !to.earlier2)
        by_x(bn, to, let_through, mean_dy, slope, stream);
    else if (mask)
        by_x(bn, to, masked, mean_dy, slope, stream);
    else
        by_x(bn, to, from, mean_dy, slope, stream);
}

template <typename T>
static void backward_of(nets_cuda_batch_norm bn, const nets_cuda_batch_norm_gradients &to, void *scratch,
                        cudaStream_t stream) {
    if (to.gate_by_x)
        backward<T, FROM_X>(bn, to, scratch, stream);
    else if (to.gate.mask)
        backward<T, BY_MASK>(bn, to, scratch, stream);
    else if (to.gate.y)
        backward<T, BY_VALUE>(bn, to, scratch, stream);
    else
        backward<T, OPEN>(bn, to, scratch, stream);
}

void nets_cuda_batch_norm_backward(mm_dtype maps, nets_cuda_batch_norm bn, nets_cuda_batch_norm_gradients to,
                                   void *scratch, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, backward_of, bn, to, scratch, stream);
}

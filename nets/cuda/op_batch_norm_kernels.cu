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
#include "nets/cuda/batch_norm_parts.h"

/* Rows that a thread loads at once, with two to four arrays to load from: chosen so that the registers suffice for
 * BLOCKS_AT_ONCE. */
enum { NORMALISED_ROWS = 2 };

/* ---------------------------------------------------------------- statistics */

/* Mean and sum of squared deviations. */
template <int V> struct moments { float n, q[2][V]; };

template <int V> static __device__ inline void join(moments<V> *a, const moments<V> &b) {
    if (b.n == 0) return;
    const float n = a->n + b.n, share = b.n / n;
    for (int k = 0; k < V; k++) nets_moments_join(&a->q[0][k], &a->q[1][k], a->n, b.q[0][k], b.q[1][k], share);
    a->n = n;
}

template <int V> struct moments_of {
    enum { ROWS = AT_ONCE };
    typedef moments<V> total;
    typedef vec<V> item;
    const float *x;

    __device__ void start(int) {}
    __device__ void fetch(int64_t at, item *v) const { load(x + at, v); }
    __device__ void take(int64_t, const item &v, total *t) const {
        t->n += 1;
        const float weight = 1 / t->n;
        for (int k = 0; k < V; k++) nets_moments_take(v.at[k], weight, &t->q[0][k], &t->q[1][k]);
    }
};

/* Joins parts' means by their deviations from the first part's: that too avoids differences of large sums. */
struct finish_moments {
    enum { PARTS = 1 };
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
        const float m = (float)w.q[0], v = spread < 0 ? 0 : (float)spread; /* rounding; a NaN stays one */
        mean[c] = m;
        var[c] = v;
        if (!running_mean) return; /* recomputed: this batch has been counted */
        const float unbias = rows > 1 ? (float)(rows / (rows - 1)) : 1.0f;
        running_mean[c] += momentum * (m - running_mean[c]);
        running_var[c] += momentum * (v * unbias - running_var[c]);
    }
};

void nets_cuda_batch_norm_statistics(nets_cuda_batch_norm bn, const float *x, void *scratch, float *mean, float *var,
                                     float *running_mean, float *running_var, cudaStream_t stream) {
    const finish_moments f = {mean, var, running_mean, running_var, bn.momentum};
    if (bn.over.strips.channels % 4) {
        const moments_of<1> source = {x};
        sum_up<1>(source, f, bn.over, scratch, stream);
    } else {
        const moments_of<4> source = {x};
        sum_up<4>(source, f, bn.over, scratch, stream);
    }
}

/* ---------------------------------------------------------------- forward */

/* How the map is divided among blocks: as many waves as the sums', from the map's end, which these read last: of a map
 * larger than the level-2 cache, the end is still cached. */
struct division {
    int64_t rows;
    int channels, each; /* each: rows of a block */
    dim3 grid, block;
};

static division divide(nets_cuda_batch_norm bn) {
    const nets_strips &s = bn.over.strips;
    const map_grid g = map_over(s.rows, s.channels, s.channels % 4 ? 1 : 4, NORMALISED_ROWS);
    const int64_t most = larger(1, NETS_STRIPS_THREADS / THREADS / g.tiles);
    const int64_t each = ceil_div(s.rows, lesser(g.grid.x, most));
    return {s.rows, s.channels, (int)each, dim3((unsigned)ceil_div(s.rows, each), (unsigned)g.tiles), g.block};
}

template <int V> struct two { vec<V> x, x2; };

template <int V>
static __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE)
    normalise(nets_cuda_batch_norm bn, division d, const float *x, const float *x2, const float *mean, const float *var,
              const float *scale, const float *shift, float *y) {
    const int c = my_channel<V>(), channels = d.channels;
    if (c >= channels) return;
    const affine<V> by = {loaded<V>(mean + c), factors<V>(scale, var, bn.eps, c), loaded<V>(shift + c)};
    write_rows<V, NORMALISED_ROWS>(
        rows_of_block(d.rows, d.each), channels, y + c,
        [&](int row) {
            const int64_t at = (int64_t)row * channels + c;
            two<V> v;
            load(x + at, &v.x, true);
            if (x2) load(x2 + at, &v.x2, true);
            return v;
        },
        [&](const two<V> &in, int) {
            vec<V> v = by.of(in.x);
            if (x2) v = sum_of(v, in.x2);
            return bn.relu ? positive(v) : v;
        });
}

void nets_cuda_batch_norm_apply(nets_cuda_batch_norm bn, const float *x, const float *x2, const float *mean,
                                const float *var, const float *scale, const float *shift, float *y,
                                cudaStream_t stream) {
    const division d = divide(bn);
    if (d.channels % 4)
        MM_LAUNCH(normalise<1>, d.grid, d.block, 0, stream, bn, d, x, x2, mean, var, scale, shift, y);
    else
        MM_LAUNCH(normalise<4>, d.grid, d.block, 0, stream, bn, d, x, x2, mean, var, scale, shift, y);
}

/* ---------------------------------------------------------------- backward: by x */

template <int V> struct at_x {
    gated<V> g;
    vec<V> x, earlier;
};

template <int V, gate_kind GATE>
static __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE)
    normalise_backward(nets_cuda_batch_norm bn, division d, nets_cuda_batch_norm_gradients to, gradient<GATE> from,
                       const float *mean_dy, const float *slope) {
    const int c = my_channel<V>(), channels = d.channels;
    if (c >= channels) return;
    const vec<V> away = loaded<V>(mean_dy + c), tilt = loaded<V>(slope + c);
    affine<V> by = {loaded<V>(to.mean + c), factors<V>(to.scale, to.var, bn.eps, c), {}};
    if (GATE == FROM_X) load(to.shift + c, &by.shift);
    write_rows<V, NORMALISED_ROWS>(
        rows_of_block(d.rows, d.each), channels, to.dx + c,
        [&](int row) {
            const int64_t at = (int64_t)row * channels + c;
            at_x<V> i;
            from.fetch(at, &i.g, true);
            load(to.x + at, &i.x, true);
            if (to.earlier) load(to.earlier + at, &i.earlier, true);
            return i;
        },
        [&](const at_x<V> &i, int row) {
            vec<V> v = from.get((int64_t)row * channels + c, i.g);
            if (GATE == FROM_X) v = by.through(v, i.x);
            v = by_input<V>{by.mean, by.factor, away, tilt}.of(v, i.x);
            return to.earlier ? sum_of(v, i.earlier) : v;
        });
}

int64_t nets_cuda_batch_norm_backward_bytes(nets_cuda_batch_norm bn) { return places_of(bn).end; }

template <gate_kind GATE>
static void sum_gradients(nets_cuda_batch_norm bn, const nets_cuda_batch_norm_gradients &to,
                          const finish_gradient_sums &f, uint32_t *mask, void *scratch, cudaStream_t stream) {
    if (bn.over.strips.channels % 4) {
        const gradient_sums_of<1, GATE> source = {{to.dy, to.gate}, to.x,   to.mean, to.var, to.scale, to.shift,
                                                  to.earlier2,      bn.eps, to.dx2,  mask,   {}};
        sum_up<1>(source, f, bn.over, scratch, stream);
    } else {
        const gradient_sums_of<4, GATE> source = {{to.dy, to.gate}, to.x,   to.mean, to.var, to.scale, to.shift,
                                                  to.earlier2,      bn.eps, to.dx2,  mask,   {}};
        sum_up<4>(source, f, bn.over, scratch, stream);
    }
}

template <gate_kind GATE>
static void by_x(nets_cuda_batch_norm bn, const nets_cuda_batch_norm_gradients &to, gradient<GATE> from,
                 const float *mean_dy, const float *slope, cudaStream_t stream) {
    const division d = divide(bn);
    if (d.channels % 4)
        MM_LAUNCH((normalise_backward<1, GATE>), d.grid, d.block, 0, stream, bn, d, to, from, mean_dy, slope);
    else
        MM_LAUNCH((normalise_backward<4, GATE>), d.grid, d.block, 0, stream, bn, d, to, from, mean_dy, slope);
}

template <gate_kind GATE>
static void backward(nets_cuda_batch_norm bn, const nets_cuda_batch_norm_gradients &to, void *scratch,
                     cudaStream_t stream) {
    char *begin = static_cast<char *>(scratch);
    const places p = places_of(bn);
    float *mean_dy = reinterpret_cast<float *>(begin + p.mean_dy), *slope = reinterpret_cast<float *>(begin + p.slope);
    uint32_t *mask = GATE == BY_VALUE && p.end > p.mask ? reinterpret_cast<uint32_t *>(begin + p.mask) : NULL;
    const finish_gradient_sums f = {to.var, bn.eps, to.dscale, to.dshift, mean_dy, slope};
    sum_gradients<GATE>(bn, to, f, mask, scratch, stream);
    const gradient<OPEN> let_through = {to.dx2, {}};
    const gradient<BY_MASK> masked = {to.dy, {NULL, mask}};
    const gradient<GATE> from = {to.dy, to.gate};
    if (!to.dx) return;
    if (to.dx2 && !to.earlier2)
        by_x(bn, to, let_through, mean_dy, slope, stream);
    else if (mask)
        by_x(bn, to, masked, mean_dy, slope, stream);
    else
        by_x(bn, to, from, mean_dy, slope, stream);
}

void nets_cuda_batch_norm_backward(nets_cuda_batch_norm bn, nets_cuda_batch_norm_gradients to, void *scratch,
                                   cudaStream_t stream) {
    if (to.gate_by_x)
        backward<FROM_X>(bn, to, scratch, stream);
    else if (to.gate.mask)
        backward<BY_MASK>(bn, to, scratch, stream);
    else if (to.gate.y)
        backward<BY_VALUE>(bn, to, scratch, stream);
    else
        backward<OPEN>(bn, to, scratch, stream);
}

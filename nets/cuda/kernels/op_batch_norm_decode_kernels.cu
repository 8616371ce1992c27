// SPDX-License-Identifier: MIT
/* Batch norm's backward from a code of x, which both passes decode in registers. It computes what
 * op_batch_norm_kernels.cu does, but a thread takes 4 x 4 pixels of a channel. Per element the passes read (r) and
 * write (w) the arrays listed; those in brackets only if they are there:
 *
 *      sums: r code, dy (y) (earlier2), w (dx2);  then r code, dy (y) (earlier), w dx
 *
 * As there, the second pass reads dx2 instead of dy and y if dx2 is the gated dy. No mask of y is in the scratch. */
#include "nets/cuda/kernels/batch_norm_codes.h"

namespace {

/* As gradient_sums_of, but x is decoded. */
template <typename Code, gate_kind GATE> struct decoded_sums {
    enum { BLOCKS = BLOCKS_AT_ONCE };
    typedef sums<1> total;
    gradient_sums_of<float, 1, GATE> of;
    const void *code;

    __device__ void start(int channel) { of.start(channel); }
};

template <typename Code, gate_kind GATE> __device__ inline void prepare(const decoded_sums<Code, GATE> &) {
    Code::prepare_to_decode();
}

template <typename Code, gate_kind GATE>
__device__ inline void take_tile(decoded_sums<Code, GATE> &source, sums<1> *t, const nets_strips &s, int tile,
                                 int channel) {
    const code_tile at = code_tile_of(s, nets_tile_at(&s, tile), channel, true);
    const typename Code::decoded values(source.code, at);
#pragma unroll
    for (int line = 0; line < 16; line += 4) {
        typename gradient_sums_of<float, 1, GATE>::item item[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at.has(line + i)) {
                source.of.fetch_gradient(at.place(line + i), &item[i]);
                item[i].x.v.at[0] = values.value(at, line + i);
            }
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at.has(line + i)) source.of.take(at.place(line + i), item[i], t);
    }
}

template <typename Code, gate_kind GATE>
__device__ inline void take_chain(decoded_sums<Code, GATE> &source, sums<1> *t, const nets_strips &s, unsigned begin,
                                  unsigned end, int channel) {
    for (; begin < end; begin += (unsigned)s.chains) take_tile(source, t, s, (int)begin, channel);
}

template <typename Code, gate_kind GATE>
__global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE)
    normalise_backward_decoded(nets_cuda_batch_norm bn, nets_cuda_batch_norm_gradients to, gradient<float, GATE> from,
                               const float *mean_dy, const float *slope) {
    Code::prepare_to_decode();
    const nets_strips &s = bn.over.strips;
    const int c = my_channel<1>();
    if (c >= s.channels) return;
    const by_input<1> by = {loaded<1>(to.mean + c), factors<1>(to.scale, to.var, bn.eps, c), loaded<1>(mean_dy + c),
                            loaded<1>(slope + c)};
    for (int t = s.each - 1; t >= 0; t--) {
        const code_tile at = my_tile(s, t, c);
        if (!at.inside) continue;
        const typename Code::decoded values(to.x_code.code, at);
#pragma unroll
        for (int line = 0; line < 16; line += 4) {
            gated<float, 1> g[4];
            vec<1> x[4], earlier[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                x[i].at[0] = values.value(at, line + i);
                if (!at.has(line + i)) continue;
                from.fetch(at.place(line + i), &g[i], true);
                if (to.earlier) load(static_cast<const float *>(to.earlier) + at.place(line + i), &earlier[i], true);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (!at.has(line + i)) continue;
                const vec<1> v = by.of(from.get(at.place(line + i), g[i]), x[i]);
                store(static_cast<float *>(to.dx) + at.place(line + i), to.earlier ? sum_of(v, earlier[i]) : v);
            }
        }
    }
}

template <typename Code, gate_kind GATE>
void by_x(nets_cuda_batch_norm bn, const nets_cuda_batch_norm_gradients &to, gradient<float, GATE> from,
          const float *mean_dy, const float *slope, cudaStream_t stream) {
    LAUNCH_TILES((normalise_backward_decoded<Code, GATE>), bn.over.strips, bn, to, from, mean_dy, slope);
}

template <typename Code, gate_kind GATE>
void backward(nets_cuda_batch_norm bn, const nets_cuda_batch_norm_gradients &to, void *scratch, cudaStream_t stream) {
    char *begin = static_cast<char *>(scratch);
    const places p = places_of(bn);
    float *mean_dy = reinterpret_cast<float *>(begin + p.mean_dy), *slope = reinterpret_cast<float *>(begin + p.slope);
    const finish_gradient_sums f = {to.var, bn.eps, to.dscale, to.dshift, mean_dy, slope};
    const gradient<float, GATE> from = {static_cast<const float *>(to.dy), to.gate};
    const decoded_sums<Code, GATE> source = {{from,
                                              NULL,
                                              to.mean,
                                              to.var,
                                              to.scale,
                                              to.shift,
                                              static_cast<const float *>(to.earlier2),
                                              bn.eps,
                                              static_cast<float *>(to.dx2),
                                              NULL,
                                              {}},
                                             to.x_code.code};
    sum_up<1>(source, f, bn.over, scratch, stream);
    if (!to.dx) return;
    if (to.dx2 && !to.earlier2)
        by_x<Code, OPEN>(bn, to, {static_cast<const float *>(to.dx2), {}}, mean_dy, slope, stream);
    else
        by_x<Code, GATE>(bn, to, from, mean_dy, slope, stream);
}

template <typename Code>
void backward_of(nets_cuda_batch_norm bn, const nets_cuda_batch_norm_gradients &to, void *scratch,
                 cudaStream_t stream) {
    if (to.gate.mask)
        backward<Code, BY_MASK>(bn, to, scratch, stream);
    else if (to.gate.y)
        backward<Code, BY_VALUE>(bn, to, scratch, stream);
    else
        backward<Code, OPEN>(bn, to, scratch, stream);
}

} // namespace

void nets_cuda_batch_norm_backward_of_code(nets_cuda_batch_norm bn, nets_cuda_batch_norm_gradients to, void *scratch,
                                           cudaStream_t stream) {
    switch (to.x_code.blocks) {
#define BACKWARD(number, ...)                                                                                          \
    case number:                                                                                                       \
        backward_of<__VA_ARGS__>(bn, to, scratch, stream);                                                             \
        break;
        MM_CODE_BLOCKS(BACKWARD)
#undef BACKWARD
    case MM_BLOCKS_NONE: /* no code of values */
    case MM_BLOCKS_MASK:
        break;
    }
}

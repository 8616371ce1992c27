// SPDX-License-Identifier: MIT
/* Batch norm's forward that also encodes. In one pass it computes y as op_batch_norm_kernels.cu does, the code of x,
 * and the mask of y's signs. A thread takes a tile of a channel, 4 x 4 pixels: a block of zfp. Per element it reads x
 * (x2), and writes y and the codes. */
#include "nets/cuda/kernels/batch_norm_codes.h"

namespace {

struct no_code {
    static constexpr int BLOCKS = BLOCKS_AT_ONCE;

    static __device__ void prepare_to_encode() {}
    static __device__ void encode(const float *, const code_tile &, void *, unsigned long long *) {}
};

/* Writes the signs of a warp's tiles to the mask. Every thread of the warp calls `put` for each pixel i, then `store`.
 * If the channels are a multiple of 32, the signs that a warp has of a pixel are a whole word, which lane i keeps and
 * stores. Otherwise they are parts of words: `put` adds them to a mask of zeros. */
struct signs_of_tile {
    uint32_t *mask;
    uint32_t kept;

    __device__ void put(const nets_strips &s, const code_tile &at, int i, bool positive) {
        const unsigned lane = thread_of_block() % WARP, ballot = __ballot_sync(ALL, positive);
        if (lane == (unsigned)i) kept = ballot;
        if (s.channels % WARP == 0 || threadIdx.x != 0 || !at.has(i)) return;
        const uint32_t signs = ballot >> lane & (blockDim.x < WARP ? (1u << blockDim.x) - 1 : ALL);
        const int64_t place = at.place(i);
        const unsigned shift = (unsigned)(place % WARP);
        atomicOr(mask + place / WARP, signs << shift);
        if (shift > 0 && signs >> (WARP - shift)) atomicOr(mask + place / WARP + 1, signs >> (WARP - shift));
    }
    __device__ void store(const nets_strips &s, const code_tile &at) const {
        const unsigned lane = thread_of_block() % WARP;
        if (s.channels % WARP != 0 || lane >= 16 || !at.has((int)lane)) return;
        const int pixel = (int)lane % 4 + (int)lane / 4 * s.columns;
        mask[(at.first - lane + (int64_t)pixel * s.channels) / WARP] = kept;
    }
};

template <typename Code>
__global__ void __launch_bounds__(THREADS, Code::BLOCKS)
    normalise_and_encode(nets_cuda_batch_norm bn, const float *x, const float *x2, const float *mean, const float *var,
                         const float *scale, const float *shift, float *y, nets_cuda_code to, uint32_t *y_mask) {
    Code::prepare_to_encode();
    const nets_strips &s = bn.over.strips;
    const int channel = my_channel<1>(), c = min(channel, s.channels - 1);
    const affine<1> by = {loaded<1>(mean + c), factors<1>(scale, var, bn.eps, c), loaded<1>(shift + c)};
    for (int t = s.each - 1; t >= 0; t--) {
        const code_tile at = my_tile(s, t, channel);
        float values[16];
        signs_of_tile signs = {y_mask, 0};
#pragma unroll
        for (int i = 0; i < 16; i++) values[i] = at.inside ? __ldcs(x + at.place(i)) : 0;
#pragma unroll
        for (int line = 0; line < 16; line += 4) {
            vec<1> more[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (x2 && at.inside) load(x2 + at.place(line + i), &more[i], true);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                vec<1> v = by.of({{values[line + i]}});
                if (x2) v = sum_of(v, more[i]);
                if (bn.relu) v = positive(v);
                if (at.has(line + i)) store(y + at.place(line + i), v);
                if (y_mask) signs.put(s, at, line + i, at.has(line + i) && v.at[0] > 0);
            }
        }
        if (y_mask) signs.store(s, at);
        Code::encode(values, at, to.code, to.nonfinite);
    }
}

} // namespace

void nets_cuda_batch_norm_apply_and_encode(nets_cuda_batch_norm bn, const float *x, const float *x2, const float *mean,
                                           const float *var, const float *scale, const float *shift, float *y,
                                           nets_cuda_code x_code, uint32_t *y_mask, cudaStream_t stream) {
    const nets_strips &s = bn.over.strips;
    if (y_mask && s.channels % WARP != 0)
        (void)cudaMemsetAsync(y_mask, 0, (size_t)ceil_div(s.rows * s.channels, WARP) * sizeof *y_mask, stream);
    switch (x_code.blocks) {
#define LAUNCH(number, ...)                                                                                            \
    case number:                                                                                                       \
        LAUNCH_TILES((normalise_and_encode<__VA_ARGS__>), s, bn, x, x2, mean, var, scale, shift, y, x_code, y_mask);   \
        break;
        MM_CODE_BLOCKS(LAUNCH)
        LAUNCH(MM_BLOCKS_NONE, no_code)
        LAUNCH(MM_BLOCKS_MASK, no_code)
#undef LAUNCH
    }
}

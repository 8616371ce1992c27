/* SPDX-License-Identifier: MIT */
/* The tiles of codes that batch norm's kernels encode and decode. For .cu files; C++. */
#ifndef NETS_CUDA_KERNELS_BATCH_NORM_CODES_H
#define NETS_CUDA_KERNELS_BATCH_NORM_CODES_H

#include "nets/cuda/kernels/batch_norm_parts.h"
#include "pipeline/codec/block/code_blocks_cuda.h"

static __device__ inline code_tile code_tile_of(const nets_strips &s, const nets_tile &t, int channel, bool inside) {
    return code_tile(t.number, channel, s.channels, t.row, s.columns, t.width, t.height, inside);
}

/* The thread's i-th tile. Blocks divide the tiles as in sums (reduce.h), but begin at the map's end, which sums read
 * last. All threads have the same number of tiles; `inside` is false if the tile or the channel is outside the map. */
static __device__ inline code_tile my_tile(const nets_strips &s, int i, int channel) {
    const int64_t number = ((int64_t)(gridDim.x - 1 - blockIdx.x) * s.each + i) * s.chains + threadIdx.y;
    const bool inside = number < s.tiles;
    return code_tile_of(s, nets_tile_at(&s, inside ? (int)number : 0), min(channel, s.channels - 1),
                        inside && channel < s.channels);
}

/* Launches kernel(...) on the variable `stream`, over the tiles of the nets_strips s; a thread has one channel. */
#define LAUNCH_TILES(kernel, s, ...)                                                                                   \
    do {                                                                                                               \
        const int64_t lanes_ = lanes_for((s).channels);                                                                \
        MM_LAUNCH(kernel, dim3((unsigned)(s).blocks, (unsigned)ceil_div((s).channels, lanes_)),                        \
                  dim3((unsigned)lanes_, (unsigned)(s).chains), 0, stream, __VA_ARGS__);                               \
    } while (0)

#endif

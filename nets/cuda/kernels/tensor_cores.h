/* SPDX-License-Identifier: MIT */
/* Products of bf16 by the GPU's tensor cores. For .cu files; C++. */
#ifndef NETS_CUDA_KERNELS_TENSOR_CORES_H
#define NETS_CUDA_KERNELS_TENSOR_CORES_H

#include "nets/cuda/kernels/storage.h"

/* d += a b, by all lanes of a warp together: a is [16][16] and b [16][8], of bf16; d is [16][8], of f32. Lane 4 g + t
 * has:
 *
 *   a   words of two neighbouring columns:  a[g][2t], a[g + 8][2t], a[g][2t + 8], a[g + 8][2t + 8]
 *   b   words of two neighbouring rows:     b[2t][g], b[2t + 8][g]
 *   d   d[g][2t], d[g][2t + 1], d[g + 8][2t], d[g + 8][2t + 1]
 *
 * This is PTX's mma.m16n8k16, from compute capability 8.0 on. Elsewhere, such as on the emulation, lanes exchange their
 * words and add in the order of columns. A GPU's order is its own, and always the same. */
static __device__ inline void multiply_tiles(float d[4], const unsigned a[4], const unsigned b[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    const int lane = (int)(threadIdx.y * blockDim.x + threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; half++)
        for (int from = 0; from < 4; from++) {
            const unsigned row[2] = {__shfl_sync(0xffffffffu, a[2 * half], 4 * g + from),
                                     __shfl_sync(0xffffffffu, a[2 * half + 1], 4 * g + from)};
            const unsigned column[2] = {__shfl_sync(0xffffffffu, b[half], 4 * (2 * t) + from),
                                        __shfl_sync(0xffffffffu, b[half], 4 * (2 * t + 1) + from)};
            for (int i = 0; i < 4; i++) {
                d[i] = fmaf(low_half(row[i / 2]), low_half(column[i % 2]), d[i]);
                d[i] = fmaf(high_half(row[i / 2]), high_half(column[i % 2]), d[i]);
            }
        }
#endif
}

#endif

/* SPDX-License-Identifier: MIT */
/* The loops over f32 maps for any processor, and the choice of loops. */
#define TARGET
#define LINES nets_simd_map_portable
#include "nets/host/simd_map_loops.h"
#include "nets/host/simd_row.h"

const nets_simd_map *nets_simd_map_best(mm_dtype maps) {
    const bool half = maps == MM_BF16;
#if defined(__x86_64__)
    if (half && nets_simd_has_avx512()) return &nets_simd_map_bf16_avx512;
    if (__builtin_cpu_supports("avx2")) return half ? &nets_simd_map_bf16_avx2 : &nets_simd_map_avx2;
#endif
    return half ? &nets_simd_map_bf16_portable : &nets_simd_map_portable;
}

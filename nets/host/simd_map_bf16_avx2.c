/* SPDX-License-Identifier: MIT */
/* The loops over bf16 maps with AVX2: 16 elements in a vector. */
#if defined(__x86_64__)

#define TARGET __attribute__((target("avx2")))
#define HALF
#define LINES nets_simd_map_bf16_avx2
#include "nets/host/simd_map_loops.h"

#endif

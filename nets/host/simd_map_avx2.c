/* SPDX-License-Identifier: MIT */
/* The loops over f32 maps with AVX2: 8 floats in a vector. */
#if defined(__x86_64__)

#define TARGET __attribute__((target("avx2")))
#define LINES  nets_simd_map_avx2
#include "nets/host/simd_map_loops.h"

#endif

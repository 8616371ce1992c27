/* SPDX-License-Identifier: MIT */
/* The loops over bf16 maps with AVX-512: 32 elements in a vector. They round by integers: the instruction that rounds
 * to bf16 takes the smallest numbers for 0. */
#if defined(__x86_64__)
#include "nets/host/simd_row.h"

#define TARGET NETS_SIMD_AVX512
#define HALF
#define LINES nets_simd_map_bf16_avx512
#include "nets/host/simd_map_loops.h"

#endif

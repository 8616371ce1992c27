/* SPDX-License-Identifier: MIT */
/* The loops with AVX-512: 16 floats in a vector. */
#if defined(__x86_64__)

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define ROWS   nets_simd_row_avx512
#include "nets/host/simd_row_loops.h"

#endif

/* SPDX-License-Identifier: MIT */
/* The loops with AVX-512: 16 floats in a vector. */
#if defined(__x86_64__)
#include "nets/host/simd_row.h"

#define TARGET NETS_SIMD_AVX512
#define ROWS   nets_simd_row_avx512
#include "nets/host/simd_row_loops.h"

#endif

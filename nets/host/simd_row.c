/* SPDX-License-Identifier: MIT */
/* The loops for any processor, and the choice of loops. */
#define TARGET
#define ROWS nets_simd_row_portable
#include "nets/host/simd_row_loops.h"

const nets_simd_row *nets_simd_row_best(void) {
#if defined(__x86_64__)
    if (nets_simd_has_avx512()) return &nets_simd_row_avx512;
    if (__builtin_cpu_supports("avx2")) return &nets_simd_row_avx2;
#endif
    return &nets_simd_row_portable;
}

/* SPDX-License-Identifier: MIT */
/* The loops for any processor, and the choice of loops. */
#define TARGET
#define UPDATES nets_simd_update_portable
#include "nets/host/simd_update_loops.h"

const nets_simd_update *nets_simd_update_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return &nets_simd_update_avx2;
#endif
    return &nets_simd_update_portable;
}

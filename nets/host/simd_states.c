/* SPDX-License-Identifier: MIT */
/* The loops for any processor, and the choice of loops. */
#define TARGET
#define UPDATE nets_simd_states_portable
#include "nets/host/simd_states_loops.h"

nets_simd_states nets_simd_states_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return nets_simd_states_avx2;
#endif
    return nets_simd_states_portable;
}

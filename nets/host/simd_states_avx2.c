/* SPDX-License-Identifier: MIT */
/* The loops with AVX2: 8 floats in a vector. */
#if defined(__x86_64__)

#define TARGET __attribute__((target("avx2")))
#define UPDATE nets_simd_states_avx2
#include "nets/host/simd_states_loops.h"

#endif

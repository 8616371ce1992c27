/* SPDX-License-Identifier: MIT */
/* The loops of updates with AVX2: 8 floats in a vector. */
#if defined(__x86_64__)

#define TARGET  __attribute__((target("avx2")))
#define UPDATES nets_simd_update_avx2
#include "nets/host/simd_update_loops.h"

#endif

/* SPDX-License-Identifier: MIT */
/* 8 floats in a vector. */
#if defined(__x86_64__)

#define TARGET __attribute__((target("avx2")))
#define LINES  nets_lines_avx2
#include "nets/host/lines_loops.h"

#endif

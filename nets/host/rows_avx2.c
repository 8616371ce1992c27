/* SPDX-License-Identifier: MIT */
/* 8 floats in a vector. */
#if defined(__x86_64__)

#define TARGET __attribute__((target("avx2")))
#define ROWS   nets_rows_avx2
#include "nets/host/rows_loops.h"

#endif

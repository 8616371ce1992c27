/* SPDX-License-Identifier: MIT */
/* For any processor, of bf16. */
#define TARGET
#define HALF
#define LINES nets_simd_map_bf16_portable
#include "nets/host/simd_map_loops.h"

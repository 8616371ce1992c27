/* SPDX-License-Identifier: MIT */
/* The loops over bf16 maps for any processor. */
#define TARGET
#define HALF
#define LINES nets_simd_map_bf16_portable
#include "nets/host/simd_map_loops.h"

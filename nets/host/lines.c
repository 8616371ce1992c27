/* SPDX-License-Identifier: MIT */
/* For any processor, of f32; and which to take. */
#define TARGET
#define LINES nets_lines_portable
#include "nets/host/lines_loops.h"

const nets_lines *nets_lines_best(mm_dtype maps) {
    const bool half = maps == MM_BF16;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return half ? &nets_lines_bf16_avx2 : &nets_lines_avx2;
#endif
    return half ? &nets_lines_bf16_portable : &nets_lines_portable;
}

/* SPDX-License-Identifier: MIT */
/* Finds which of the kernels' instruction sets this machine supports. */
#include "pipeline/codec/packed/packed_host.h"

bool mm_packed_isa_usable(int i) {
#if defined(__x86_64__)
    if (i == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("bmi2");
    if (i == 1) return __builtin_cpu_supports("avx2");
#endif
    return i < MM_PACKED_ISAS;
}

int mm_packed_isa_fastest(void) {
    int i = 0;
    while (!mm_packed_isa_usable(i)) i++;
    return i;
}

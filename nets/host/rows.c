/* SPDX-License-Identifier: MIT */
/* For any processor, and which to take. */
#define TARGET
#define ROWS nets_rows_portable
#include "nets/host/rows_loops.h"

const nets_rows *nets_rows_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return &nets_rows_avx2;
#endif
    return &nets_rows_portable;
}

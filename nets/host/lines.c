/* For any processor, and which to take. */
#define TARGET
#define LINES nets_lines_portable
#include "nets/host/lines_loops.h"

const nets_lines *nets_lines_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return &nets_lines_avx2;
#endif
    return &nets_lines_portable;
}

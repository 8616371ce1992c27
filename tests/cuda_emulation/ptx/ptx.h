/* SPDX-License-Identifier: MIT */
/* Runs kernels as nvcc compiled them to PTX, in place of gcc's compile of the same source (README.md). Environment:
 *      MM_PTX         files of PTX, with ':' between: every launch runs a kernel of these. A kernel that is in none of
 *                     them ends the program
 *      MM_PTX_REPORT  file that gets, when the program ends, a line "run NAME LAUNCHES" per kernel that ran, and a line
 *                     "split N": how often lanes of a warp met at different instructions */
#ifndef TESTS_CUDA_EMULATION_PTX_PTX_H
#define TESTS_CUDA_EMULATION_PTX_PTX_H

#include <stddef.h>

namespace ptx {

/* A launch. function: the kernel as gcc compiled it, by whose mangled name the PTX is found. */
struct launch {
    const void *function;
    const char *kernel;
    unsigned blocks[3], threads[3];
    size_t shared_bytes; /* dynamic */
    int parameters;
    const void *const *parameter;
    const size_t *parameter_bytes;
    /* The memory that kernels may access around a byte: its bytes, and where it begins. 0: they may not access it. */
    size_t (*memory_at)(const void *byte, const void **base_out);
};

/* Whether MM_PTX is set. */
bool is_on();

/* Runs the launch on this thread. Thread-safe. */
void run(const launch &l);

} // namespace ptx

#endif

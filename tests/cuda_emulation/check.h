/* SPDX-License-Identifier: MIT */
/* The checker of kernels: finds in the emulation what compute-sanitizer finds on a GPU. Kernels and the emulated
 * libraries are compiled with calls around all memory accesses (-fsanitize=thread, -fsanitize=alignment,
 * -fsanitize=bounds; cuda.bzl). The calls end here, not in a sanitizer's library. The checks:
 *
 *      memcheck    an access lies wholly in one allocation of device or pinned memory, in the block's shared memory,
 *                  or on the CUDA thread's own stack, or reads a constant; and it is aligned to its type
 *      initcheck   shared memory is read only after the block wrote it, device memory only after it was written
 *      racecheck   two threads of a block access the same bytes, one of them writing, only with a barrier of the
 *                  block in between, or, within a warp, a __syncwarp (shuffles and votes order no memory).
 *                  Two blocks of a launch never do. Two atomic accesses always may
 *      synccheck   kernels.cc always refuses threads that miss a barrier, and lanes that miss an operation
 *
 * Also, each launch runs twice over the same memory: with its threads in order, and with its blocks and threads in a
 * random order. Both must leave the same bytes.
 *
 * The first fault ends the program with a line (emulated_kernels.h, die). Without the compiler's calls (under a real
 * sanitizer) nothing is checked: check_none.cc. One launch runs at a time. */
#ifndef TESTS_CUDA_EMULATION_CHECK_H
#define TESTS_CUDA_EMULATION_CHECK_H

#include "tests/cuda_emulation/emulated_kernels.h"

namespace cuda_emulation {

/* A CUDA thread and its vector clock. */
struct witness {
    uint32_t number; /* in its block */
    const char *stack;
    size_t stack_bytes;
    uint32_t clock[32]; /* per lane of its warp: the __syncwarps of that lane that it comes after */
};

struct memory_piece {
    const void *base;
    size_t bytes;
};

/* To be called when a launch begins. kernel: its name; arguments: the kernel's; own: the emulation's data for its
 * threads; shared: its dynamic shared memory. */
void check_launch_begins(const char *kernel, memory_piece arguments, memory_piece own, memory_piece shared);
/* To be called when the launch has run. True: it is to run again, in random order; the memory that it wrote is again as
 * it was before the first run. */
bool check_runs_again();
/* To be called when the launch has run for the second time. Compares the bytes that both runs wrote. */
void check_launch_ends();

/* To be called when a block begins, and when each of its threads does. */
void check_block(uint64_t number);
void check_thread(witness *w, uint32_t number, const char *stack, size_t stack_bytes);
/* To be called when `w` begins or goes on to run; NULL: no CUDA thread runs. */
void check_running(witness *w);
/* To be called when all threads of the block are at a barrier. */
void check_barrier();
/* To be called when these lanes are at a __syncwarp. */
void check_warp(witness *const *lanes, int count);

} // namespace cuda_emulation

#endif

/* The checker of kernels: what compute-sanitizer looks for on a GPU, looked for in the emulation. Kernels, and the
 * emulated libraries, are compiled with calls around every access to memory (-fsanitize=thread, -fsanitize=alignment,
 * -fsanitize=bounds; cuda.bzl), and these end here, not in a sanitizer's library:
 *
 *      memcheck    an access lies wholly in one piece of device or pinned memory that is there, in the block's shared
 *                  memory, on the CUDA thread's own stack, or reads a constant; and is aligned to its type
 *      initcheck   nothing is read of shared memory that the block has not written, nor of device memory that nothing
 *                  has written since it came
 *      racecheck   two threads of a block touch the same bytes, one writing, only with a barrier of the block between,
 *                  or, in a warp, with a __syncwarp: shuffles and votes order no memory. Blocks of a launch never do.
 *                  Among themselves, atomics may.
 *      synccheck   what kernels.cc always refuses: threads that miss a barrier, or lanes an operation
 *
 * And each launch runs twice: its threads in order, and, over the same memory, with its blocks and threads in a random
 * order; it must leave the same bytes.
 *
 * The first fault ends the program with a line: kernels.h, die. A part of kernels.cc, in files of its own; built
 * without the compiler's calls (under a real sanitizer), none of this is done: check_none.cc. One launch runs at a
 * time. */
#ifndef TESTS_CUDA_EMULATION_CHECK_H
#define TESTS_CUDA_EMULATION_CHECK_H

#include "tests/cuda_emulation/emulated_kernels.h"

namespace cuda_emulation {

/* A CUDA thread as the checker sees it: when it is. */
struct witness {
    uint32_t number; /* in its block */
    const char *stack;
    size_t stack_bytes;
    uint32_t clock[32]; /* how much of each lane of its warp's it comes after; its own counts its __syncwarps */
};

struct memory_piece {
    const void *base;
    size_t bytes;
};

/* A launch begins: where its arguments are, what the emulation itself keeps for its threads, its dynamic shared
 * memory. */
void check_launch_begins(memory_piece arguments, memory_piece own, memory_piece shared);
/* It has run. Whether it is to run again over the memory that it found, as it now is, in random order. */
bool check_runs_again();
/* It has. The same bytes must be there. */
void check_launch_ends();

/* A block begins, of this number, and each thread of it. */
void check_block(uint64_t number);
void check_thread(witness *w, uint32_t number, const char *stack, size_t stack_bytes);
/* From here on `w` runs; NULL: none. */
void check_running(witness *w);
/* All threads of the block have met. */
void check_barrier();
/* So have these of a warp, in a __syncwarp. */
void check_warp(witness *const *lanes, int count);

} // namespace cuda_emulation

#endif

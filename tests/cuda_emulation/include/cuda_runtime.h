/* SPDX-License-Identifier: MIT */
/* The kernel language of CUDA on the CPU, for tests of .cu files: as much of <cuda_runtime.h> as this project's kernels
 * use, compiled as C++ by gcc. Correctness only: it is slow, and no model of memory order, banks or coalescing.
 *
 * A launch runs its blocks one after another on its stream's thread; each CUDA thread of a block is a fiber that runs
 * until it waits for others. Odd blocks start their threads in reverse, dynamic shared memory begins as garbage, and
 * reads of lanes that are not there give garbage, so that a forgotten barrier shows. What would hang or be undefined on
 * a GPU (a barrier that some threads never reach or reach elsewhere, a warp operation whose lanes disagree, a
 * misaligned vector access by a cache-hinted load) ends the program with a line that says where: emulated_kernels.h. In
 * a kernel_check_test (cuda.bzl), so does every access that compute-sanitizer would name: check.h.
 *
 * Each stream's thread has its own __shared__ variables; that suffices, because its blocks run one after another. */
#ifndef TESTS_CUDA_EMULATION_INCLUDE_CUDA_RUNTIME_H
#define TESTS_CUDA_EMULATION_INCLUDE_CUDA_RUNTIME_H

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__      static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__

#include "tests/cuda_emulation/vector_types.h"

#include "tests/cuda_emulation/emulated_kernels.h"

#include "tests/cuda_emulation/intrinsics.h"

/* kernel: a __global__ function, in parentheses if its template arguments have commas. */
#define MM_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
    cuda_emulation::launch(#kernel, kernel, dim3(grid), dim3(block), (size_t)(shared_bytes),                           \
                           stream __VA_OPT__(, ) __VA_ARGS__)

#define MM_DYNAMIC_SHARED(type, name) type *const name = static_cast<type *>(cuda_emulation::dynamic_shared())

#endif

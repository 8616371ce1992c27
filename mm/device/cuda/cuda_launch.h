/* SPDX-License-Identifier: MIT */
/* Every .cu file includes this in place of <cuda_runtime.h>. It launches kernels with MM_LAUNCH, declares dynamic
 * shared memory with MM_DYNAMIC_SHARED, and passes words between blocks of a launch with mm_cuda_load and
 * mm_cuda_store. In tests the <cuda_runtime.h> of tests/cuda_emulation defines all of it, so that the same files run on
 * the CPU. */
#ifndef MM_DEVICE_CUDA_CUDA_LAUNCH_H
#define MM_DEVICE_CUDA_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#ifndef MM_LAUNCH
/* kernel: a __global__ function, in parentheses if its template arguments have commas. A launch that fails sets
 * cudaGetLastError; the function that launches returns it. */
#define MM_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

#define MM_DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]

/* Read and write a word of global memory atomically, visible to all blocks. They order no other memory access. */
__device__ __forceinline__ unsigned long long mm_cuda_load(const unsigned long long *at) {
    unsigned long long word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(__cvta_generic_to_global(at)) : "memory");
    return word;
}
__device__ __forceinline__ void mm_cuda_store(unsigned long long *at, unsigned long long word) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(__cvta_generic_to_global(at)), "l"(word) : "memory");
}
#endif

#endif

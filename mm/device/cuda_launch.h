/* Every .cu file includes this in place of <cuda_runtime.h>. It launches kernels with MM_LAUNCH, and declares dynamic
 * shared memory with MM_DYNAMIC_SHARED. In tests the <cuda_runtime.h> of tests/cuda_emulation defines both, so that the
 * same files run on the CPU. */
#ifndef MM_DEVICE_CUDA_LAUNCH_H
#define MM_DEVICE_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#ifndef MM_LAUNCH
/* kernel: a __global__ function, in parentheses if its template arguments have commas. A launch that fails sets
 * cudaGetLastError; the function that launches returns it. */
#define MM_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

#define MM_DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]
#endif

#endif

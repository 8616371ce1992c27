/* What every .cu file includes in place of <cuda_runtime.h>: kernels are launched through MM_LAUNCH and get their
 * dynamic shared memory through MM_DYNAMIC_SHARED, so that the same files run on the CPU in tests
 * (tests/cuda_emulation, whose <cuda_runtime.h> defines both). */
#ifndef MM_DEVICE_CUDA_LAUNCH_H
#define MM_DEVICE_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#ifndef MM_LAUNCH
/* kernel: a __global__ function, in parentheses if its template arguments have commas. What the launch itself found
 * wrong is in cudaGetLastError, which launchers return to their callers. */
#define MM_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

#define MM_DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]
#endif

#endif

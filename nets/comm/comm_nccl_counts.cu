// SPDX-License-Identifier: MIT
/* Adds up the ranks' counts as COMM_COUNT says, which no operation of NCCL does. */
#include "mm/device/cuda/cuda_launch.h"
#include "nets/comm/comm_nccl.h"

enum { THREADS = 64 };

static __global__ void add_counts(const int32_t *all, int ranks, int elems, int32_t *sums) {
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i >= elems) return;
    int32_t sum = 0;
    for (int r = 0; r < ranks && sum >= 0; r++) {
        const int32_t one = all[(int64_t)r * elems + i];
        sum = one < 0 ? one : sum + one;
    }
    sums[i] = sum;
}

cudaError_t comm_nccl_add_counts(cudaStream_t stream, const int32_t *all, int ranks, int elems, int32_t *sums) {
    MM_LAUNCH(add_counts, (elems + THREADS - 1) / THREADS, THREADS, 0, stream, all, ranks, elems, sums);
    return cudaGetLastError();
}

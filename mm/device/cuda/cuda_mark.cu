// SPDX-License-Identifier: MIT
/* Marks (device.h), for checks. Byte by byte where memory is not aligned: external tensors may lie anywhere. */
#include <stdint.h>

#include "mm/device/cuda/cuda_launch.h"

enum { THREADS = 256 };

static __device__ inline unsigned char byte_of(uint64_t word, int64_t i) {
    return (unsigned char)(word >> (8 * (int)(i % 8)));
}

static __global__ void __launch_bounds__(THREADS) fill_mark(unsigned char *dst, int64_t bytes, uint64_t word) {
    const int64_t stride = (int64_t)gridDim.x * THREADS, first = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t words = (uintptr_t)dst % 8 == 0 ? bytes / 8 : 0;
    for (int64_t i = first; i < words; i += stride) ((uint64_t *)dst)[i] = word;
    for (int64_t i = 8 * words + first; i < bytes; i += stride) dst[i] = byte_of(word, i);
}

static __device__ inline bool is_marked(const unsigned char *at, uint64_t word, int elem_bytes) {
    for (int b = 0; b < elem_bytes; b++)
        if (at[b] != byte_of(word, b)) return false;
    return true;
}

/* One block. Each thread stops at its first element; the least of these is the result. */
static __global__ void __launch_bounds__(THREADS)
    find_mark(const unsigned char *src, int64_t bytes, uint64_t word, int elem_bytes, uint64_t *at_out) {
    __shared__ uint64_t found[THREADS];
    const int thread = threadIdx.x;
    const int64_t elems = bytes / elem_bytes;
    uint64_t mine = UINT64_MAX;
    for (int64_t i = thread; i < elems && mine == UINT64_MAX; i += THREADS)
        if (is_marked(src + i * elem_bytes, word, elem_bytes)) mine = (uint64_t)(i * elem_bytes);
    found[thread] = mine;
    __syncthreads();
    for (int t = 0; thread == 0 && t < THREADS; t++)
        if (found[t] < mine) mine = found[t];
    if (thread == 0) *at_out = mine;
}

extern "C" cudaError_t cuda_mark_launch(cudaStream_t stream, void *dst, int64_t bytes, uint64_t word) {
    enum { BLOCKS = 128 }; /* chosen: enough for the memory's rate */
    MM_LAUNCH(fill_mark, BLOCKS, THREADS, 0, stream, (unsigned char *)dst, bytes, word);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_find_mark_launch(cudaStream_t stream, const void *src, int64_t bytes, uint64_t word,
                                             int elem_bytes, uint64_t *at_out) {
    MM_LAUNCH(find_mark, 1, THREADS, 0, stream, (const unsigned char *)src, bytes, word, elem_bytes, at_out);
    return cudaGetLastError();
}

/* SPDX-License-Identifier: MIT */
/* Kernels that compute each element by itself, so they also work in place. For .cu files; C++. */
#ifndef NETS_CUDA_KERNELS_ELEMENTS_H
#define NETS_CUDA_KERNELS_ELEMENTS_H

#include "nets/cuda/kernels/vector.h"

/* f.at<V>(i) computes elements i .. i + V - 1 of f.out, of type Out; i is a multiple of V. A block computes a chunk. */
template <typename Out, int V, typename F> static __global__ void over_elements(F f, int64_t n) {
    constexpr int64_t CHUNK = V * AT_ONCE * THREADS;
    const int64_t begin = (int64_t)blockIdx.x * CHUNK, mine = begin + V * threadIdx.x;
    if (begin + CHUNK <= n) {
        held<Out, V> h[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) round_to(f.template at<V>(mine + V * THREADS * k), &h[k]);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) store(f.out + mine + V * THREADS * k, h[k]);
        return;
    }
    for (int64_t i = mine; i + V <= n; i += V * THREADS) store(f.out + i, f.template at<V>(i));
    for (int64_t i = n / V * V + threadIdx.x; i < n; i += THREADS) store(f.out + i, f.template at<1>(i));
}

template <typename Out, int V, typename F> static void launch_elements(F f, int64_t n, cudaStream_t stream) {
    void (*kernel)(F, int64_t) = over_elements<Out, V, F>;
    MM_LAUNCH(kernel, (unsigned)ceil_div(n, V * AT_ONCE * THREADS), THREADS, 0, stream, f, n);
}

/* As launch_elements, but no vector reaches from one row of `channels` into the next. */
template <typename Out, int V, typename F>
static void launch_in_rows(F f, int64_t n, int64_t channels, cudaStream_t stream) {
    if (channels % V)
        launch_elements<Out, 1>(f, n, stream);
    else
        launch_elements<Out, V>(f, n, stream);
}

#endif

// SPDX-License-Identifier: MIT
/* Converts elements from one type to another, eight at a time. */
#include "nets/cuda/kernels/storage.h"

#include "nets/cuda/kernels/vector.h"

enum { AT_A_TIME = PER_LOAD<bf16>, CONVERT_CHUNK = AT_A_TIME * 2 * THREADS };

/* A block converts a chunk. */
template <typename From, typename To> static __global__ void convert(const From *from, To *to, int64_t n) {
    const int64_t begin = (int64_t)blockIdx.x * CONVERT_CHUNK, mine = begin + AT_A_TIME * (int64_t)threadIdx.x;
    if (begin + CONVERT_CHUNK <= n) {
        held<From, AT_A_TIME> h[2];
#pragma unroll
        for (int k = 0; k < 2; k++) load(from + mine + AT_A_TIME * THREADS * k, &h[k]);
#pragma unroll
        for (int k = 0; k < 2; k++) store(to + mine + AT_A_TIME * THREADS * k, h[k].floats());
        return;
    }
    for (int64_t i = mine; i + AT_A_TIME <= n; i += AT_A_TIME * THREADS) store(to + i, loaded<AT_A_TIME>(from + i));
    for (int64_t i = n / AT_A_TIME * AT_A_TIME + threadIdx.x; i < n; i += THREADS) store(to + i, loaded<1>(from + i));
}

template <typename From, typename To> static void launch(const void *from, void *to, int64_t n, cudaStream_t stream) {
    const From *source = static_cast<const From *>(from);
    MM_LAUNCH((convert<From, To>), (unsigned)ceil_div(n, CONVERT_CHUNK), THREADS, 0, stream, source,
              static_cast<To *>(to), n);
}

void nets_cuda_convert(mm_dtype from_type, const void *from, mm_dtype to_type, void *to, int64_t n,
                       cudaStream_t stream) {
    if (from_type == MM_BF16 && to_type == MM_BF16)
        launch<bf16, bf16>(from, to, n, stream);
    else if (from_type == MM_BF16)
        launch<bf16, float>(from, to, n, stream);
    else if (to_type == MM_BF16)
        launch<float, bf16>(from, to, n, stream);
    else
        launch<float, float>(from, to, n, stream);
}

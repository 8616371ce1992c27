// SPDX-License-Identifier: MIT
/* Rotary embeddings: a thread turns one pair of channels, or passes two of the channels on that are not turned. */
#include "nets/cuda/kernels/cuda_token_kernels.h"
#include "nets/cuda/kernels/vector.h"

/* Adds what `earlier` has there, if it is not NULL, and writes. */
template <typename T> static __device__ inline void put(T *to, const T *earlier, int64_t at, float value) {
    const vec<1> v = {{value}};
    store(to + at, plus(v, earlier, at));
}

template <typename T> static __global__ void rotate(nets_cuda_rotary r, const T *from, const T *earlier, T *to) {
    const int half = r.size / 2;
    const int64_t pairs = r.width / 2;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < r.rows * pairs;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t row = i / pairs, pair = i % pairs, head = pair / half;
        const int at = (int)(pair % half);
        const int64_t a = row * r.width + head * r.size + at, b = a + half;
        const float x = loaded<1>(from + a).at[0], y = loaded<1>(from + b).at[0];
        float sine, cosine;
        if (head >= r.turned) {
            put(to, earlier, a, x);
            put(to, earlier, b, y);
            continue;
        }
        sincosf((float)(row % r.places) * (float)pow(r.base, -(double)at / (double)half), &sine, &cosine);
        if (r.back) sine = -sine;
        put(to, earlier, a, x * cosine - y * sine);
        put(to, earlier, b, y * cosine + x * sine);
    }
}

template <typename T>
static void launch_rotate(nets_cuda_rotary r, const void *from, const void *earlier, void *to, cudaStream_t stream) {
    const int64_t blocks = lesser(ceil_div(r.rows * (r.width / 2), THREADS), MOST_BLOCKS);
    MM_LAUNCH(rotate<T>, (unsigned)blocks, THREADS, 0, stream, r, static_cast<const T *>(from),
              static_cast<const T *>(earlier), static_cast<T *>(to));
}

void nets_cuda_rotate(mm_dtype maps, nets_cuda_rotary r, const void *from, const void *earlier, void *to,
                      cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_rotate, r, from, earlier, to, stream);
}

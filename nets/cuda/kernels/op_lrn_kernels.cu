// SPDX-License-Identifier: MIT
/* Local response normalisation across channels: see nets/host/host_lrn.c for the formulas. blockDim.x threads take a
 * pixel; its rows lie in shared memory with half a window of zeros on both sides:
 *
 *   pixel of thread row 0:  | squares | terms (backward) |   thread row 1: ...
 *
 * A pixel's gradients are written when all its inputs have been read, so dx may lie at an input. */
#include "nets/cuda/kernels/vector.h"

enum { SHARED_BYTES = 48 << 10 };

static __host__ __device__ inline int padded_row(const nets_cuda_lrn &l) { return l.channels + 2 * l.half; }

/* Threads of a pixel. */
static unsigned lanes_of(const nets_cuda_lrn &l) {
    unsigned lanes = 32;
    while (lanes < THREADS && (int)lanes < l.channels) lanes *= 2;
    return lanes;
}

static int64_t shared_bytes(const nets_cuda_lrn &l, int rows_each) {
    return (int64_t)sizeof(float) * rows_each * padded_row(l) * (THREADS / lanes_of(l));
}

bool nets_cuda_lrn_fits(nets_cuda_lrn l) { return shared_bytes(l, 2) <= SHARED_BYTES; }

static __device__ inline float window_sum(const nets_cuda_lrn &l, const float *row, int c) {
    float total = row[c]; /* of channel c - half */
    for (int j = 1; j <= 2 * l.half; j++) total += row[c + j];
    return total;
}

/* s^-beta */
static __device__ inline float power_of(const nets_cuda_lrn &l, float s) {
    if (l.beta != 0.75f) return powf(s, -l.beta);
    const float root = sqrtf(s); /* the usual beta, without powf */
    return 1 / (root * sqrtf(root));
}

static __device__ inline void clear_ends(const nets_cuda_lrn &l, float *row) {
    for (int j = (int)threadIdx.x; j < l.half; j += (int)blockDim.x) row[j] = row[l.half + l.channels + j] = 0;
}

template <typename T> static __device__ inline float one(const T *from) { return loaded<1>(from).at[0]; }
template <typename T> static __device__ inline void put(T *to, float value) { store(to, vec<1>{{value}}); }

/* Threads without a pixel (past the last one) do not return, since all threads must reach the barriers: their loops
 * over channels end at once. */
template <typename T> static __global__ void lrn_forward(nets_cuda_lrn l, const T *x, T *y) {
    MM_DYNAMIC_SHARED(float, rows);
    float *squares = rows + (int)threadIdx.y * padded_row(l);
    const int lanes = (int)blockDim.x;
    clear_ends(l, squares);
    for (int64_t first = (int64_t)blockIdx.x * blockDim.y; first < l.pixels; first += row_step()) {
        const int64_t pixel = first + threadIdx.y, at = pixel * l.channels;
        const int mine = pixel < l.pixels ? (int)threadIdx.x : l.channels;
        for (int c = mine; c < l.channels; c += lanes) squares[l.half + c] = one(x + at + c) * one(x + at + c);
        __syncthreads();
        for (int c = mine; c < l.channels; c += lanes)
            put(y + at + c, one(x + at + c) * power_of(l, l.k + l.alpha * window_sum(l, squares, c)));
        __syncthreads();
    }
}

template <typename T>
static __global__ void lrn_backward(nets_cuda_lrn l, const T *x, const T *dy, const T *earlier, T *dx) {
    MM_DYNAMIC_SHARED(float, rows);
    float *squares = rows + 2 * (int)threadIdx.y * padded_row(l), *terms = squares + padded_row(l);
    const float factor = 2 * l.alpha * l.beta;
    const int lanes = (int)blockDim.x;
    clear_ends(l, squares);
    clear_ends(l, terms);
    for (int64_t first = (int64_t)blockIdx.x * blockDim.y; first < l.pixels; first += row_step()) {
        const int64_t pixel = first + threadIdx.y, at = pixel * l.channels;
        const int mine = pixel < l.pixels ? (int)threadIdx.x : l.channels;
        for (int c = mine; c < l.channels; c += lanes) squares[l.half + c] = one(x + at + c) * one(x + at + c);
        __syncthreads();
        for (int c = mine; c < l.channels; c += lanes) {
            const float s = l.k + l.alpha * window_sum(l, squares, c);
            terms[l.half + c] = one(dy + at + c) * one(x + at + c) * power_of(l, s) / s;
        }
        __syncthreads();
        for (int c = mine; c < l.channels; c += lanes) {
            const float s = l.k + l.alpha * window_sum(l, squares, c);
            const float gradient =
                one(dy + at + c) * power_of(l, s) - factor * one(x + at + c) * window_sum(l, terms, c);
            put(dx + at + c, earlier ? gradient + one(earlier + at + c) : gradient);
        }
        __syncthreads();
    }
}

static unsigned blocks_of(const nets_cuda_lrn &l, dim3 block) {
    return (unsigned)lesser(ceil_div(l.pixels, block.y), MOST_BLOCKS);
}

template <typename T> static void launch_forward(const nets_cuda_lrn &l, const void *x, void *y, cudaStream_t stream) {
    const dim3 block(lanes_of(l), THREADS / lanes_of(l));
    MM_LAUNCH(lrn_forward<T>, blocks_of(l, block), block, (size_t)shared_bytes(l, 1), stream, l,
              static_cast<const T *>(x), static_cast<T *>(y));
}

void nets_cuda_lrn_forward(mm_dtype maps, nets_cuda_lrn l, const void *x, void *y, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_forward, l, x, y, stream);
}

template <typename T>
static void launch_backward(const nets_cuda_lrn &l, const void *x, const void *dy, const void *earlier, void *dx,
                            cudaStream_t stream) {
    const dim3 block(lanes_of(l), THREADS / lanes_of(l));
    MM_LAUNCH(lrn_backward<T>, blocks_of(l, block), block, (size_t)shared_bytes(l, 2), stream, l,
              static_cast<const T *>(x), static_cast<const T *>(dy), static_cast<const T *>(earlier),
              static_cast<T *>(dx));
}

void nets_cuda_lrn_backward(mm_dtype maps, nets_cuda_lrn l, const void *x, const void *dy, const void *earlier,
                            void *dx, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_backward, l, x, dy, earlier, dx, stream);
}

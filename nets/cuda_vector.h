/* What the .cu files have in common: vectors of channels, and how threads are laid over elements and over maps. C++.
 *
 * A map is rows (pixels) of channels. Its threads: blockDim.x of them take neighbouring vectors of V channels of a row,
 * blockDim.y rows at a time; blockIdx.y counts tiles of channels, blockIdx.x starts rows. A thread keeps its channels. */
#ifndef NETS_CUDA_VECTOR_H
#define NETS_CUDA_VECTOR_H

#include "mm/device/cuda_launch.h"
#include "nets/cuda_kernels.h"

/* AT_ONCE: what a thread loads before it stores the first, so that the loads are under way together. Stores between them
 * would keep the compiler from that: it cannot know that places differ, or are one only where a thread reads what it
 * writes itself. */
enum { THREADS = 256, MOST_BLOCKS = 2048, AT_ONCE = 4 };

template <int V> struct vec { float at[V]; };

static __device__ inline void load(const float *from, vec<1> *v) { v->at[0] = *from; }
static __device__ inline void load(const float *from, vec<4> *v) {
    const float4 f = *reinterpret_cast<const float4 *>(from);
    v->at[0] = f.x;
    v->at[1] = f.y;
    v->at[2] = f.z;
    v->at[3] = f.w;
}

static __device__ inline void store(float *to, const vec<1> &v) { *to = v.at[0]; }
static __device__ inline void store(float *to, const vec<4> &v) {
    *reinterpret_cast<float4 *>(to) = make_float4(v.at[0], v.at[1], v.at[2], v.at[3]);
}

/* Adds what came earlier, if anything, at `at`. */
template <int V> static __device__ inline vec<V> plus(vec<V> v, const float *earlier, int64_t at) {
    if (!earlier) return v;
    vec<V> e;
    load(earlier + at, &e);
    for (int k = 0; k < V; k++) v.at[k] += e.at[k];
    return v;
}

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

struct map_grid {
    dim3 grid, block;
    int64_t tiles;
};

/* Threads over a map of which a thread takes V channels. */
static inline map_grid map_over(int64_t rows, int64_t channels, int V) {
    int64_t vectors = channels / V, lanes = 1;
    while (lanes < 32 && lanes < vectors) lanes *= 2;
    int64_t tiles = ceil_div(vectors, lanes), height = THREADS / lanes;
    int64_t blocks = larger(1, lesser(ceil_div(rows, height), MOST_BLOCKS / lesser(tiles, MOST_BLOCKS)));
    map_grid g;
    g.grid = dim3((unsigned)blocks, (unsigned)tiles);
    g.block = dim3((unsigned)lanes, (unsigned)height);
    g.tiles = tiles;
    return g;
}

/* Launches kernel<V>(...) over a map, with vectors of four channels where they are that many; needs a `stream`. */
#define LAUNCH_MAP(kernel, rows, channels, ...)                                                                        \
    do {                                                                                                               \
        const map_grid map_ = map_over(rows, channels, (channels) % 4 ? 1 : 4);                                        \
        if ((channels) % 4)                                                                                            \
            MM_LAUNCH(kernel<1>, map_.grid, map_.block, 0, stream, __VA_ARGS__);                                       \
        else                                                                                                           \
            MM_LAUNCH(kernel<4>, map_.grid, map_.block, 0, stream, __VA_ARGS__);                                       \
    } while (0)

/* A thread's place in a map: its first channel, its first row and the step to the next. */
template <int V> static __device__ inline int my_channel() { return (int)(blockIdx.y * blockDim.x + threadIdx.x) * V; }
static __device__ inline int64_t my_row() { return (int64_t)blockIdx.x * blockDim.y + threadIdx.y; }
static __device__ inline int64_t row_step() { return (int64_t)gridDim.x * blockDim.y; }

/* out[row * pitch] = value(row) for the thread's rows; value reads nothing that another thread writes. */
template <int V, typename Value>
static __device__ inline void write_rows(int64_t rows, int64_t pitch, float *out, const Value &value) {
    const int64_t step = row_step();
    int64_t row = my_row();
    for (; row + (AT_ONCE - 1) * step < rows; row += AT_ONCE * step) {
        vec<V> v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) v[i] = value(row + i * step);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) store(out + (row + i * step) * pitch, v[i]);
    }
    for (; row < rows; row += step) {
        const vec<V> v = value(row);
        store(out + row * pitch, v);
    }
}

/* A pixel of images of this size. Pixels are counted in 32 bits: backends refuse more. */
struct pixel {
    int image, y, x;
};

static __device__ inline pixel pixel_at(int64_t row, const int size[2]) {
    unsigned r = (unsigned)row, width = (unsigned)size[1], height = (unsigned)size[0];
    pixel p;
    p.x = (int)(r % width);
    p.y = (int)(r / width % height);
    p.image = (int)(r / width / height);
    return p;
}

static __device__ inline int64_t row_of(int image, int y, int x, const int size[2]) {
    return ((int64_t)image * size[0] + y) * size[1] + x;
}

#endif

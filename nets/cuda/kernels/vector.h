/* SPDX-License-Identifier: MIT */
/* Shared by the .cu files: vectors of channels, and how threads are assigned to elements and maps. C++.
 *
 * A map is rows (pixels) of channels. In a block, blockDim.x threads take neighbouring vectors of V channels, in
 * blockDim.y rows at a time. blockIdx.y is the tile of channels; blockIdx.x is the first stripe of rows. A thread keeps
 * its channels and steps through rows. Rows are counted in 32 bits: nets_cuda_check_dims refuses more. */
#ifndef NETS_CUDA_KERNELS_VECTOR_H
#define NETS_CUDA_KERNELS_VECTOR_H

#include "nets/cuda/kernels/cuda_kernels.h"
#include "nets/cuda/kernels/storage.h"

#ifndef __CUDACC__
/* The CPU emulation's compiler does not see that values are used only under the condition under which they were
 * loaded. */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

/* AT_ONCE: how many vectors a thread loads before it stores the first, so that the loads overlap. With stores between
 * them the compiler could not overlap them, since outputs may alias inputs. All three are chosen. */
enum { THREADS = 256, MOST_BLOCKS = 2048, AT_ONCE = 4 };

template <int V> static __device__ inline vec<V> sum_of(vec<V> a, const vec<V> &b) {
    for (int k = 0; k < V; k++) a.at[k] += b.at[k];
    return a;
}

/* ReLU. A NaN stays NaN, so that a training that diverges shows. */
template <int V> static __device__ inline vec<V> positive(vec<V> v) {
    for (int k = 0; k < V; k++) v.at[k] = v.at[k] < 0 ? 0 : v.at[k];
    return v;
}

/* v + the vector at earlier[at]; v if `earlier` is NULL. */
template <int V, typename T> static __device__ inline vec<V> plus(vec<V> v, const T *earlier, int64_t at) {
    return earlier ? sum_of(v, loaded<V>(earlier + at)) : v;
}

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

struct map_grid {
    dim3 grid, block;
    int64_t tiles;
};

/* Threads for a row of so many vectors: of 32, 16 and 8 the number that leaves the fewest threads idle; for fewer than
 * 8 vectors, the next power of two. */
static inline int64_t lanes_for(int64_t vectors) {
    int64_t lanes = 1;
    while (lanes < 32 && lanes < vectors) lanes *= 2;
    if (lanes < 8) return lanes;
    int64_t best = lanes;
    for (; lanes >= 8; lanes /= 2)
        if (ceil_div(vectors, lanes) * lanes < ceil_div(vectors, best) * best) best = lanes;
    return best;
}

/* The grid over a map. A thread takes V channels of at least rows_each rows, if the map has as many. */
static inline map_grid map_over(int64_t rows, int64_t channels, int V, int rows_each) {
    const int64_t vectors = channels / V, lanes = lanes_for(vectors);
    const int64_t tiles = ceil_div(vectors, lanes), height = THREADS / lanes;
    int64_t blocks = larger(1, lesser(ceil_div(rows, height * rows_each), MOST_BLOCKS / lesser(tiles, MOST_BLOCKS)));
    map_grid g;
    g.grid = dim3((unsigned)blocks, (unsigned)tiles);
    g.block = dim3((unsigned)lanes, (unsigned)height);
    g.tiles = tiles;
    return g;
}

/* Launches kernel<T, V>(...) over a map on the variable `stream`. V is PER_LOAD<T> if the channels are a multiple of
 * it, else 1. A thread takes at least rows_each rows: AT_ONCE for a kernel that uses write_rows. */
#define LAUNCH_MAP(kernel, T, rows, channels, rows_each, ...)                                                          \
    do {                                                                                                               \
        const int V_ = (channels) % PER_LOAD<T> ? 1 : PER_LOAD<T>;                                                     \
        const map_grid map_ = map_over(rows, channels, V_, rows_each);                                                 \
        if (V_ == 1)                                                                                                   \
            MM_LAUNCH((kernel<T, 1>), map_.grid, map_.block, 0, stream, __VA_ARGS__);                                  \
        else                                                                                                           \
            MM_LAUNCH((kernel<T, PER_LOAD<T>>), map_.grid, map_.block, 0, stream, __VA_ARGS__);                        \
    } while (0)

/* A thread's position in a map: its first channel, its first row, and the step to its next row. */
template <int V> static __device__ inline int my_channel() { return (int)(blockIdx.y * blockDim.x + threadIdx.x) * V; }
static __device__ inline int64_t my_row() { return (int64_t)blockIdx.x * blockDim.y + threadIdx.y; }
static __device__ inline int64_t row_step() { return (int64_t)gridDim.x * blockDim.y; }

/* A thread's rows: from `first` down, `step` apart, to no less than `least`. */
struct my_rows {
    int first, least, step;
};

/* All blocks step through the map together. */
static __device__ inline my_rows rows_of_all(int64_t rows) { return {(int)(rows - 1 - my_row()), 0, (int)row_step()}; }

/* Each block has `each` rows of its own. */
static __device__ inline my_rows rows_of_block(int64_t rows, int each) {
    const int end = (int)(rows - (int64_t)blockIdx.x * each);
    return {end - 1 - (int)threadIdx.y, max(0, end - each), (int)blockDim.y};
}

/* out[row * pitch] = make(fetch(row), row) for the thread's rows. ROWS rows are fetched before the first is made, so
 * `fetch` may only load, and nothing that another thread writes. Threads and blocks go from the map's last row to its
 * first: the kernel before mostly went the other way, so of a map larger than the level-2 cache the end is still
 * cached. */
template <int V, int ROWS, typename T, typename Fetch, typename Make>
static __device__ inline void write_rows(const my_rows &r, int64_t pitch, T *out, const Fetch &fetch,
                                         const Make &make) {
    for (int row = r.first; row >= r.least; row -= ROWS * r.step) {
        decltype(fetch(row)) item[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (row - i * r.step >= r.least) item[i] = fetch(row - i * r.step);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (row - i * r.step >= r.least) store(out + (row - i * r.step) * pitch, make(item[i], row - i * r.step));
    }
}

/* ---------------------------------------------------------------- gradients behind a ReLU */

/* How a ReLU gates a gradient: not at all (OPEN, there is no ReLU), by its output, by its sign mask, or by its output
 * computed again from the input (FROM_X). With FROM_X the kernel gates by itself, and `get` passes everything. */
enum gate_kind { OPEN, BY_VALUE, BY_MASK, FROM_X };

template <typename T, int V> struct gated {
    held<T, V> dy, y;
    uint32_t bits;
};

template <typename T, gate_kind GATE> struct gradient {
    const T *dy;
    nets_cuda_gate gate;

    template <int V> __device__ void fetch(int64_t at, gated<T, V> *g, bool last = false) const {
        load(dy + at, &g->dy, last);
        if (GATE == BY_VALUE) load(static_cast<const T *>(gate.y) + at, &g->y, last);
        if (GATE == BY_MASK) g->bits = gate.mask[at / 32];
    }
    /* A vector's bits are in one word of the mask: `at` is a multiple of V. */
    template <int V> __device__ vec<V> get(int64_t at, const gated<T, V> &g) const {
        vec<V> v = g.dy.floats();
        for (int k = 0; k < V; k++) {
            if (GATE == BY_VALUE) v.at[k] = g.y.floats().at[k] > 0 ? v.at[k] : 0;
            if (GATE == BY_MASK) v.at[k] = g.bits >> (at % 32 + k) & 1 ? v.at[k] : 0;
        }
        return v;
    }
};

/* ---------------------------------------------------------------- images */

/* A pixel in a batch of images. */
struct pixel {
    int image, y, x;
};

/* Finds the pixel of a row. */
struct image_rows {
    int height, width;
    nets_divisor by_height, by_width;

    __device__ pixel at(int64_t row) const {
        const unsigned lines = nets_divided(by_width, (unsigned)row), image = nets_divided(by_height, lines);
        return {(int)image, (int)(lines - image * (unsigned)height), (int)((unsigned)row - lines * (unsigned)width)};
    }
};

static inline image_rows image_rows_of(const int size[2]) {
    return {size[0], size[1], nets_divisor_of(size[0]), nets_divisor_of(size[1])};
}

static __device__ inline int64_t row_of(int image, int y, int x, const int size[2]) {
    return ((int64_t)image * size[0] + y) * size[1] + x;
}

#endif

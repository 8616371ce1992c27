// SPDX-License-Identifier: MIT
/* Copies: of rows (concatenation), of rectangles (crop), of pixels that get a fourth channel, and of matrices that are
 * transposed (the order of a linear layer's features). */
#include "nets/cuda/kernels/vector.h"

template <typename T, int V> struct copied { held<T, V> v, earlier; };

template <typename T, int V>
static __global__ void copy_rows(nets_cuda_rows s, const T *from, const T *earlier, T *to) {
    const int c = my_channel<V>();
    if (c >= s.width) return;
    write_rows<V, AT_ONCE>(
        rows_of_all(s.rows), s.to_pitch, to + c,
        [&](int row) {
            copied<T, V> i;
            load(from + row * s.from_pitch + c, &i.v);
            if (earlier) load(earlier + row * s.to_pitch + c, &i.earlier);
            return i;
        },
        [&](const copied<T, V> &i, int) { return earlier ? sum_of(i.v.floats(), i.earlier.floats()) : i.v.floats(); });
}

static bool in_words(const void *a, const void *b, const void *c) {
    return ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
}

template <typename T>
static void launch_copy_rows(nets_cuda_rows s, const void *from, const void *earlier, void *to, cudaStream_t stream) {
    const bool whole = (s.width | s.from_pitch | s.to_pitch) % PER_LOAD<T> == 0 && in_words(from, earlier, to);
    const map_grid g = map_over(s.rows, s.width, whole ? PER_LOAD<T> : 1, AT_ONCE);
    void (*kernel)(nets_cuda_rows, const T *, const T *, T *) = whole ? copy_rows<T, PER_LOAD<T>> : copy_rows<T, 1>;
    MM_LAUNCH(kernel, g.grid, g.block, 0, stream, s, static_cast<const T *>(from), static_cast<const T *>(earlier),
              static_cast<T *>(to));
}

void nets_cuda_copy_rows(mm_dtype maps, nets_cuda_rows s, const void *from, const void *earlier, void *to,
                         cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_copy_rows, s, from, earlier, to, stream);
}

/* ---------------------------------------------------------------- a fourth channel */

template <typename T> static __global__ void pad_pixels(const float *from, T *to, int64_t pixels) {
    for (int64_t p = (int64_t)blockIdx.x * THREADS + threadIdx.x; p < pixels; p += (int64_t)gridDim.x * THREADS) {
        const vec<4> v = {{from[3 * p], from[3 * p + 1], from[3 * p + 2], 0}};
        store(to + 4 * p, v);
    }
}

template <typename T> static void launch_pad_pixels(const float *from, void *to, int64_t pixels, cudaStream_t stream) {
    MM_LAUNCH(pad_pixels<T>, (unsigned)lesser(ceil_div(pixels, THREADS), MOST_BLOCKS), THREADS, 0, stream, from,
              static_cast<T *>(to), pixels);
}

void nets_cuda_pad_pixels(mm_dtype maps, const float *from, void *to, int64_t pixels, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_pad_pixels, from, to, pixels, stream);
}

/* ---------------------------------------------------------------- crop */

template <typename T, int V>
static __global__ void crop_forward(nets_cuda_crop s, image_rows y_rows, const T *x, T *y) {
    const int c = my_channel<V>();
    const int64_t rows = (int64_t)s.images * s.y_size[0] * s.y_size[1];
    if (c >= s.channels) return;
    for (int64_t row = my_row(); row < rows; row += row_step()) {
        const pixel p = y_rows.at(row);
        vec<V> v;
        load(x + row_of(p.image, p.y + s.offset[0], p.x + s.offset[1], s.x_size) * s.channels + c, &v);
        store(y + row * s.channels + c, v);
    }
}

/* The gradient of what was cut off is zero. */
template <typename T, int V>
static __global__ void crop_backward(nets_cuda_crop s, image_rows x_rows, const T *dy, const T *earlier, T *dx) {
    const int c = my_channel<V>();
    const int64_t rows = (int64_t)s.images * s.x_size[0] * s.x_size[1];
    if (c >= s.channels) return;
    for (int64_t row = my_row(); row < rows; row += row_step()) {
        const pixel p = x_rows.at(row);
        const int y = p.y - s.offset[0], x = p.x - s.offset[1];
        vec<V> v = {};
        if (y >= 0 && y < s.y_size[0] && x >= 0 && x < s.y_size[1])
            load(dy + row_of(p.image, y, x, s.y_size) * s.channels + c, &v);
        const int64_t at = row * s.channels + c;
        store(dx + at, plus(v, earlier, at));
    }
}

template <typename T> static void launch_crop_forward(nets_cuda_crop s, const void *x, void *y, cudaStream_t stream) {
    LAUNCH_MAP(crop_forward, T, (int64_t)s.images * s.y_size[0] * s.y_size[1], s.channels, 1, s,
               image_rows_of(s.y_size), static_cast<const T *>(x), static_cast<T *>(y));
}

void nets_cuda_crop_forward(mm_dtype maps, nets_cuda_crop s, const void *x, void *y, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_crop_forward, s, x, y, stream);
}

template <typename T>
static void launch_crop_backward(nets_cuda_crop s, const void *dy, const void *earlier, void *dx, cudaStream_t stream) {
    LAUNCH_MAP(crop_backward, T, (int64_t)s.images * s.x_size[0] * s.x_size[1], s.channels, 1, s,
               image_rows_of(s.x_size), static_cast<const T *>(dy), static_cast<const T *>(earlier),
               static_cast<T *>(dx));
}

void nets_cuda_crop_backward(mm_dtype maps, nets_cuda_crop s, const void *dy, const void *earlier, void *dx,
                             cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_crop_backward, s, dy, earlier, dx, stream);
}

/* ---------------------------------------------------------------- transposition */

/* Each block writes neighbouring elements of the result. It reads elements a row apart; neighbouring blocks read those
 * between. Matrices of weights (channels by window) are small enough that these reads hit the first-level cache. */
template <typename T> static __global__ void transpose(const T *from, T *to, int64_t batches, int rows, int columns) {
    const int size = rows * columns;
    for (int64_t b = blockIdx.y; b < batches; b += gridDim.y)
        for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < size; i += (int64_t)gridDim.x * THREADS) {
            const int e = (int)i;
            to[b * size + e] = from[b * size + (int64_t)(e % rows) * columns + e / rows];
        }
}

template <typename T>
static void launch_transpose(const void *from, void *to, int64_t batches, int64_t rows, int64_t columns,
                             cudaStream_t stream) {
    const int64_t down = lesser(batches, MOST_BLOCKS);
    const int64_t across = larger(1, lesser(ceil_div(rows * columns, 4 * THREADS), MOST_BLOCKS / down));
    MM_LAUNCH(transpose<T>, dim3((unsigned)across, (unsigned)down), THREADS, 0, stream, static_cast<const T *>(from),
              static_cast<T *>(to), batches, (int)rows, (int)columns);
}

void nets_cuda_transpose(mm_dtype maps, const void *from, void *to, int64_t batches, int64_t rows, int64_t columns,
                         cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_transpose, from, to, batches, rows, columns, stream);
}

/* Copies: of rows (concatenation), of rectangles (crop), of pixels that get a channel more, and with rows and columns
 * exchanged (the order of a linear layer's features). */
#include "nets/cuda/vector.h"

template <int V> struct copied { vec<V> v, earlier; };

template <int V>
static __global__ void copy_rows(nets_cuda_rows s, const float *from, const float *earlier, float *to) {
    const int c = my_channel<V>();
    if (c >= s.width) return;
    write_rows<V, AT_ONCE>(
        rows_of_all(s.rows), s.to_pitch, to + c,
        [&](int row) {
            copied<V> i;
            load(from + row * s.from_pitch + c, &i.v);
            if (earlier) load(earlier + row * s.to_pitch + c, &i.earlier);
            return i;
        },
        [&](const copied<V> &i, int) { return earlier ? sum_of(i.v, i.earlier) : i.v; });
}

static bool in_fours(const void *a, const void *b, const void *c) {
    return ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % sizeof(float4) == 0;
}

void nets_cuda_copy_rows(nets_cuda_rows s, const float *from, const float *earlier, float *to, cudaStream_t stream) {
    if ((s.width | s.from_pitch | s.to_pitch) % 4 == 0 && in_fours(from, earlier, to)) {
        const map_grid g = map_over(s.rows, s.width, 4, AT_ONCE);
        MM_LAUNCH(copy_rows<4>, g.grid, g.block, 0, stream, s, from, earlier, to);
    } else {
        const map_grid g = map_over(s.rows, s.width, 1, AT_ONCE);
        MM_LAUNCH(copy_rows<1>, g.grid, g.block, 0, stream, s, from, earlier, to);
    }
}

/* ---------------------------------------------------------------- a fourth channel */

static __global__ void pad_pixels(const float *from, float *to, int64_t pixels) {
    for (int64_t p = (int64_t)blockIdx.x * THREADS + threadIdx.x; p < pixels; p += (int64_t)gridDim.x * THREADS) {
        const vec<4> v = {{from[3 * p], from[3 * p + 1], from[3 * p + 2], 0}};
        store(to + 4 * p, v);
    }
}

void nets_cuda_pad_pixels(const float *from, float *to, int64_t pixels, cudaStream_t stream) {
    MM_LAUNCH(pad_pixels, (unsigned)lesser(ceil_div(pixels, THREADS), MOST_BLOCKS), THREADS, 0, stream, from, to,
              pixels);
}

/* ---------------------------------------------------------------- crop */

template <int V> static __global__ void crop_forward(nets_cuda_crop s, const float *x, float *y) {
    const int c = my_channel<V>();
    const int64_t rows = (int64_t)s.images * s.y_size[0] * s.y_size[1];
    if (c >= s.channels) return;
    for (int64_t row = my_row(); row < rows; row += row_step()) {
        const pixel p = pixel_at(row, s.y_size);
        vec<V> v;
        load(x + row_of(p.image, p.y + s.offset[0], p.x + s.offset[1], s.x_size) * s.channels + c, &v);
        store(y + row * s.channels + c, v);
    }
}

/* The gradient of what was cut off is zero. */
template <int V>
static __global__ void crop_backward(nets_cuda_crop s, const float *dy, const float *earlier, float *dx) {
    const int c = my_channel<V>();
    const int64_t rows = (int64_t)s.images * s.x_size[0] * s.x_size[1];
    if (c >= s.channels) return;
    for (int64_t row = my_row(); row < rows; row += row_step()) {
        const pixel p = pixel_at(row, s.x_size);
        const int y = p.y - s.offset[0], x = p.x - s.offset[1];
        vec<V> v = {};
        if (y >= 0 && y < s.y_size[0] && x >= 0 && x < s.y_size[1])
            load(dy + row_of(p.image, y, x, s.y_size) * s.channels + c, &v);
        const int64_t at = row * s.channels + c;
        store(dx + at, plus(v, earlier, at));
    }
}

void nets_cuda_crop_forward(nets_cuda_crop s, const float *x, float *y, cudaStream_t stream) {
    LAUNCH_MAP(crop_forward, (int64_t)s.images * s.y_size[0] * s.y_size[1], s.channels, 1, s, x, y);
}

void nets_cuda_crop_backward(nets_cuda_crop s, const float *dy, const float *earlier, float *dx, cudaStream_t stream) {
    LAUNCH_MAP(crop_backward, (int64_t)s.images * s.x_size[0] * s.x_size[1], s.channels, 1, s, dy, earlier, dx);
}

/* ---------------------------------------------------------------- transposition */

/* Each block writes neighbouring elements of the result. It reads elements a row apart; neighbouring blocks read those
 * between. Matrices of weights (channels by window) are small enough that these reads hit the first-level cache. */
static __global__ void transpose(const float *from, float *to, int64_t batches, int rows, int columns) {
    const int size = rows * columns;
    for (int64_t b = blockIdx.y; b < batches; b += gridDim.y)
        for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < size; i += (int64_t)gridDim.x * THREADS) {
            const int e = (int)i;
            to[b * size + e] = from[b * size + (int64_t)(e % rows) * columns + e / rows];
        }
}

void nets_cuda_transpose(const float *from, float *to, int64_t batches, int64_t rows, int64_t columns,
                         cudaStream_t stream) {
    const int64_t down = lesser(batches, MOST_BLOCKS);
    const int64_t across = larger(1, lesser(ceil_div(rows * columns, 4 * THREADS), MOST_BLOCKS / down));
    MM_LAUNCH(transpose, dim3((unsigned)across, (unsigned)down), THREADS, 0, stream, from, to, batches, (int)rows,
              (int)columns);
}

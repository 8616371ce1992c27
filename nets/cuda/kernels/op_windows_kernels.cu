// SPDX-License-Identifier: MIT
/* Pooling and upsampling. Backward kernels gather: an element of the input's gradient adds up the gradients of the
 * outputs that it went into, in their order. So there are no atomics, and sums have one order. */
#include "nets/cuda/kernels/vector.h"

/* Windows, and divisors for their sizes and strides. */
struct windows : nets_cuda_windows {
    image_rows x_rows, y_rows;
    nets_divisor by_stride[2];
};

static windows windows_of(const nets_cuda_windows &w) {
    return {w,
            image_rows_of(w.x_size),
            image_rows_of(w.y_size),
            {nets_divisor_of(w.stride[0]), nets_divisor_of(w.stride[1])}};
}

/* The part of a window inside the image: its rows y0 .. y1 - 1 and columns x0 .. x1 - 1. */
struct inside {
    int y0, y1, x0, x1;
};

static __device__ inline inside window_at(const windows &w, int oy, int ox) {
    const int y = oy * w.stride[0] - w.pad[0], x = ox * w.stride[1] - w.pad[1];
    const inside in = {max(0, y), min(w.x_size[0], y + w.kernel[0]), max(0, x), min(w.x_size[1], x + w.kernel[1])};
    return in;
}

/* The windows that a pixel of the image lies in. */
static __device__ inline inside windows_around(const windows &w, const pixel &p) {
    const int y = p.y + w.pad[0], x = p.x + w.pad[1];
    const auto strides = [&](int axis, int n) { return (int)nets_divided(w.by_stride[axis], (unsigned)n); };
    const inside out = {y < w.kernel[0] ? 0 : strides(0, y - w.kernel[0]) + 1, min(w.y_size[0], strides(0, y) + 1),
                        x < w.kernel[1] ? 0 : strides(1, x - w.kernel[1]) + 1, min(w.y_size[1], strides(1, x) + 1)};
    return out;
}

/* By how many pixels an average is divided. */
static __device__ inline int counted(const windows &w, const inside &in) {
    return w.exclude_pad ? (in.y1 - in.y0) * (in.x1 - in.x0) : w.kernel[0] * w.kernel[1];
}

/* v / n. If n is a power of two, it multiplies by 1 / n, which gives the same bits. */
template <int V> static __device__ inline vec<V> divided(vec<V> v, int n) {
    const float by = (float)n;
    if ((n & (n - 1)) == 0) {
        const float inverse = __uint_as_float(0x7f000000u - __float_as_uint(by)); /* 2^-k, if `by` is 2^k */
        for (int k = 0; k < V; k++) v.at[k] *= inverse;
    } else {
        for (int k = 0; k < V; k++) v.at[k] /= by;
    }
    return v;
}

static __host__ __device__ inline int64_t y_rows(const nets_cuda_windows &w) {
    return (int64_t)w.images * w.y_size[0] * w.y_size[1];
}
static __host__ __device__ inline int64_t x_rows(const nets_cuda_windows &w) {
    return (int64_t)w.images * w.x_size[0] * w.x_size[1];
}

/* Calls fetch(y, x, item) and then take(item) for the places in `in`, row by row; AHEAD are fetched before one is
 * taken. */
template <int AHEAD, typename Item, typename Fetch, typename Take>
static __device__ inline void over(const inside &in, const Fetch &fetch, const Take &take) {
    int y = in.y0, x = in.x0;
    for (int left = max(0, in.y1 - in.y0) * max(0, in.x1 - in.x0); left > 0; left -= AHEAD) {
        Item item[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (i >= left) break;
            fetch(y, x, &item[i]);
            if (++x == in.x1) x = in.x0, y++;
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (i >= left) break;
            take(item[i]);
        }
    }
}

/* A vector, with a number that belongs to it. */
template <typename T, int V, typename With> struct fetched {
    held<T, V> v;
    With with;
};

/* ---------------------------------------------------------------- maximum */

/* Stores the indices of elements from `at` on: one in a byte, or two with halves_index. */
static __device__ inline void store_index(const nets_cuda_windows &, uint8_t *to, int64_t at, const int (&index)[1]) {
    to[at] = (uint8_t)index[0];
}
static __device__ inline void store_index(const nets_cuda_windows &w, uint8_t *to, int64_t at, const int (&index)[4]) {
    const int bits = w.halves_index ? 4 : 8;
    const uint32_t all = (uint32_t)index[0] | (uint32_t)index[1] << bits | (uint32_t)index[2] << 2 * bits |
                         (uint32_t)index[3] << 3 * bits;
    if (w.halves_index)
        *reinterpret_cast<uint16_t *>(to + at / 2) = (uint16_t)all;
    else
        *reinterpret_cast<uint32_t *>(to + at) = all;
}

static __device__ inline void store_index(const nets_cuda_windows &w, uint8_t *to, int64_t at, const int (&index)[8]) {
    const int bits = w.halves_index ? 4 : 8;
    uint32_t half[2] = {};
    for (int k = 0; k < 8; k++) half[k / 4] |= (uint32_t)index[k] << bits * (k % 4);
    if (w.halves_index)
        *reinterpret_cast<uint32_t *>(to + at / 2) = half[0] | half[1] << 16;
    else
        *reinterpret_cast<uint2 *>(to + at) = make_uint2(half[0], half[1]);
}

/* Loaded indices, one in a byte. */
template <int V> struct indices {
    uint32_t bytes[V / 4 + (V < 4)];

    __device__ bool is(int k, int index) const {
        return ((bytes[k / 4] ^ (uint32_t)index * 0x01010101u) & 0xffu << 8 * (k % 4)) == 0;
    }
};

static __device__ inline uint32_t bytes_of_halves(uint32_t halves) {
    halves = (halves | halves << 8) & 0x00ff00ffu;
    return (halves | halves << 4) & 0x0f0f0f0fu;
}

static __device__ inline void load_index(const nets_cuda_windows &, const uint8_t *from, int64_t at, indices<1> *to) {
    to->bytes[0] = from[at];
}
static __device__ inline void load_index(const nets_cuda_windows &w, const uint8_t *from, int64_t at, indices<4> *to) {
    to->bytes[0] = w.halves_index ? bytes_of_halves(*reinterpret_cast<const uint16_t *>(from + at / 2))
                                  : *reinterpret_cast<const uint32_t *>(from + at);
}
static __device__ inline void load_index(const nets_cuda_windows &w, const uint8_t *from, int64_t at, indices<8> *to) {
    if (w.halves_index) {
        const uint32_t both = *reinterpret_cast<const uint32_t *>(from + at / 2);
        to->bytes[0] = bytes_of_halves(both & 0xffff);
        to->bytes[1] = bytes_of_halves(both >> 16);
    } else {
        const uint2 both = *reinterpret_cast<const uint2 *>(from + at);
        to->bytes[0] = both.x;
        to->bytes[1] = both.y;
    }
}

template <typename T, int V> static __global__ void max_pool(windows w, const T *x, T *y, uint8_t *index) {
    const int c = my_channel<V>();
    if (c >= w.channels) return;
    for (int64_t row = my_row(); row < y_rows(w); row += row_step()) {
        const pixel p = w.y_rows.at(row);
        const inside in = window_at(w, p.y, p.x);
        const int top = p.y * w.stride[0] - w.pad[0], left = p.x * w.stride[1] - w.pad[1];
        const T *image = x + row_of(p.image, 0, 0, w.x_size) * w.channels + c;
        vec<V> best;
        int place[V];
        for (int k = 0; k < V; k++) {
            best.at[k] = -INFINITY;
            place[k] = (in.y0 - top) * w.kernel[1] + in.x0 - left;
        }
        typedef fetched<T, V, int> item; /* with its index in the window */
        over<5, item>(
            in,
            [&](int iy, int ix, item *i) {
                load(image + ((int64_t)iy * w.x_size[1] + ix) * w.channels, &i->v);
                i->with = (iy - top) * w.kernel[1] + ix - left;
            },
            [&](const item &i) {
                const vec<V> v = i.v.floats();
                for (int k = 0; k < V; k++)
                    if (v.at[k] > best.at[k] || v.at[k] != v.at[k]) {
                        best.at[k] = v.at[k];
                        place[k] = i.with;
                    }
            });
        const int64_t at = row * w.channels + c;
        store(y + at, best);
        if (index) store_index(w, index, at, place);
    }
}

template <typename T, int V>
static __global__ void max_pool_backward(windows w, const T *dy, const uint8_t *index, const T *earlier, T *dx) {
    const int c = my_channel<V>();
    if (c >= w.channels) return;
    for (int64_t row = my_row(); row < x_rows(w); row += row_step()) {
        const pixel p = w.x_rows.at(row);
        const int64_t at = row * w.channels + c, image = row_of(p.image, 0, 0, w.y_size) * w.channels + c;
        held<T, V> before;
        if (earlier) load(earlier + at, &before);
        vec<V> sum = {};
        struct item {
            held<T, V> v;
            indices<V> index;
            int here; /* the index of this pixel in the window */
        };
        over<4, item>(
            windows_around(w, p),
            [&](int oy, int ox, item *i) {
                const int64_t from = image + ((int64_t)oy * w.y_size[1] + ox) * w.channels;
                load_index(w, index, from, &i->index);
                load(dy + from, &i->v);
                i->here = (p.y - oy * w.stride[0] + w.pad[0]) * w.kernel[1] + p.x - ox * w.stride[1] + w.pad[1];
            },
            [&](const item &i) {
                const vec<V> v = i.v.floats();
                for (int k = 0; k < V; k++) sum.at[k] += i.index.is(k, i.here) ? v.at[k] : 0;
            });
        store(dx + at, earlier ? sum_of(sum, before.floats()) : sum);
    }
}

/* ---------------------------------------------------------------- average */

template <typename T, int V> static __global__ void avg_pool(windows w, const T *x, T *y) {
    const int c = my_channel<V>();
    if (c >= w.channels) return;
    for (int64_t row = my_row(); row < y_rows(w); row += row_step()) {
        const pixel p = w.y_rows.at(row);
        const inside in = window_at(w, p.y, p.x);
        const T *image = x + row_of(p.image, 0, 0, w.x_size) * w.channels + c;
        vec<V> sum = {};
        over<8, held<T, V>>(
            in, [&](int iy, int ix, held<T, V> *v) { load(image + ((int64_t)iy * w.x_size[1] + ix) * w.channels, v); },
            [&](const held<T, V> &v) { sum = sum_of(sum, v.floats()); });
        store(y + row * w.channels + c, divided(sum, counted(w, in)));
    }
}

template <typename T, int V> static __global__ void avg_pool_backward(windows w, const T *dy, const T *earlier, T *dx) {
    const int c = my_channel<V>();
    if (c >= w.channels) return;
    for (int64_t row = my_row(); row < x_rows(w); row += row_step()) {
        const pixel p = w.x_rows.at(row);
        const int64_t at = row * w.channels + c;
        const T *image = dy + row_of(p.image, 0, 0, w.y_size) * w.channels + c;
        held<T, V> before;
        if (earlier) load(earlier + at, &before);
        vec<V> sum = {};
        typedef fetched<T, V, int> item; /* with its divisor */
        over<4, item>(
            windows_around(w, p),
            [&](int oy, int ox, item *i) {
                load(image + ((int64_t)oy * w.y_size[1] + ox) * w.channels, &i->v);
                i->with = counted(w, window_at(w, oy, ox));
            },
            [&](const item &i) { sum = sum_of(sum, divided(i.v.floats(), i.with)); });
        store(dx + at, earlier ? sum_of(sum, before.floats()) : sum);
    }
}

/* ---------------------------------------------------------------- upsampling */

/* An upsampling, and divisors for its sizes and scales. */
struct upsampling : nets_cuda_upsample {
    int y_size[2];
    image_rows x_rows, y_rows;
    nets_divisor by_scale[2];
};

static upsampling upsampling_of(const nets_cuda_upsample &s) {
    upsampling u = {s,
                    {s.x_size[0] * s.scale[0], s.x_size[1] * s.scale[1]},
                    image_rows_of(s.x_size),
                    {},
                    {nets_divisor_of(s.scale[0]), nets_divisor_of(s.scale[1])}};
    u.y_rows = image_rows_of(u.y_size);
    return u;
}

/* Where the middle of output pixel `at` lies on an axis of the input, limited to the middles of the outermost input
 * pixels. */
static __device__ inline float position(const upsampling &s, int axis, int at) {
    const float p = divided(vec<1>{{(float)at + 0.5f}}, s.scale[axis]).at[0] - 0.5f;
    return fminf(fmaxf(p, 0), (float)(s.x_size[axis] - 1));
}

/* The weight of input pixel `from` in output pixel `to`, on one axis. */
static __device__ inline float share(const upsampling &s, int axis, int from, int to) {
    const float distance = fabsf(position(s, axis, to) - (float)from);
    return distance < 1 ? 1 - distance : 0;
}

template <typename T, int V> static __device__ inline void add_share(vec<V> *sum, const fetched<T, V, float> &i) {
    const vec<V> v = i.v.floats();
    for (int k = 0; k < V; k++) sum->at[k] += i.with * v.at[k];
}

template <typename T, int V> static __global__ void upsample(upsampling s, const T *x, T *y) {
    const int c = my_channel<V>();
    if (c >= s.channels) return;
    for (int64_t row = my_row(); row < (int64_t)s.images * s.y_size[0] * s.y_size[1]; row += row_step()) {
        const pixel p = s.y_rows.at(row);
        const T *image = x + row_of(p.image, 0, 0, s.x_size) * s.channels + c;
        vec<V> out = {};
        if (!s.bilinear) {
            const int from = (int)nets_divided(s.by_scale[0], (unsigned)p.y) * s.x_size[1] +
                             (int)nets_divided(s.by_scale[1], (unsigned)p.x);
            load(image + (int64_t)from * s.channels, &out);
        } else {
            const float py = position(s, 0, p.y), px = position(s, 1, p.x);
            const int top = (int)py, left = (int)px;
            typedef fetched<T, V, float> item; /* with its weight */
            over<4, item>(
                {top, min(top + 2, s.x_size[0]), left, min(left + 2, s.x_size[1])},
                [&](int iy, int ix, item *i) {
                    load(image + ((int64_t)iy * s.x_size[1] + ix) * s.channels, &i->v);
                    i->with = (1 - fabsf(py - (float)iy)) * (1 - fabsf(px - (float)ix));
                },
                [&](const item &i) { add_share(&out, i); });
        }
        store(y + row * s.channels + c, out);
    }
}

/* The outputs on an axis that an input pixel goes into: its own and, if they are interpolated, half of those of the
 * pixels before and after. */
static __device__ inline void reach(const upsampling &s, int axis, int at, int *begin, int *end) {
    const int more = s.bilinear ? (s.scale[axis] + 1) / 2 : 0;
    *begin = max(0, at * s.scale[axis] - more);
    *end = min(s.x_size[axis] * s.scale[axis], (at + 1) * s.scale[axis] + more);
}

template <typename T, int V>
static __global__ void upsample_backward(upsampling s, const T *dy, const T *earlier, T *dx) {
    const int c = my_channel<V>();
    if (c >= s.channels) return;
    for (int64_t row = my_row(); row < (int64_t)s.images * s.x_size[0] * s.x_size[1]; row += row_step()) {
        const pixel p = s.x_rows.at(row);
        const int64_t at = row * s.channels + c;
        const T *image = dy + row_of(p.image, 0, 0, s.y_size) * s.channels + c;
        held<T, V> before;
        if (earlier) load(earlier + at, &before);
        int y0, y1, x0, x1;
        reach(s, 0, p.y, &y0, &y1);
        reach(s, 1, p.x, &x0, &x1);
        vec<V> sum = {};
        for (int oy = y0; oy < y1; oy++) {
            const float of_row = s.bilinear ? share(s, 0, p.y, oy) : 1;
            if (of_row == 0) continue;
            typedef fetched<T, V, float> item; /* with its weight */
            over<4, item>(
                {oy, oy + 1, x0, x1},
                [&](int, int ox, item *i) {
                    i->with = s.bilinear ? of_row * share(s, 1, p.x, ox) : 1;
                    if (i->with != 0) load(image + ((int64_t)oy * s.y_size[1] + ox) * s.channels, &i->v);
                },
                [&](const item &i) {
                    if (i.with != 0) add_share(&sum, i);
                });
        }
        store(dx + at, earlier ? sum_of(sum, before.floats()) : sum);
    }
}

/* ---------------------------------------------------------------- launchers */

/* As LAUNCH_MAP, but a thread has at least four channels if these are a multiple of four: indices may share a byte. */
#define LAUNCH_POOL(kernel, T, rows, channels, ...)                                                                    \
    do {                                                                                                               \
        if ((channels) % 4 == 0 && (channels) % PER_LOAD<T> != 0) {                                                    \
            const map_grid map_ = map_over(rows, channels, 4, 1);                                                      \
            MM_LAUNCH((kernel<T, 4>), map_.grid, map_.block, 0, stream, __VA_ARGS__);                                  \
        } else {                                                                                                       \
            LAUNCH_MAP(kernel, T, rows, channels, 1, __VA_ARGS__);                                                     \
        }                                                                                                              \
    } while (0)

template <typename T>
static void max_pool_of(nets_cuda_windows w, const void *x, void *y, uint8_t *index, cudaStream_t stream) {
    LAUNCH_POOL(max_pool, T, y_rows(w), w.channels, windows_of(w), static_cast<const T *>(x), static_cast<T *>(y),
                index);
}

void nets_cuda_max_pool(mm_dtype maps, nets_cuda_windows w, const void *x, void *y, uint8_t *index,
                        cudaStream_t stream) {
    NETS_BY_STORAGE(maps, max_pool_of, w, x, y, index, stream);
}

template <typename T>
static void max_pool_backward_of(nets_cuda_windows w, const void *dy, const uint8_t *index, const void *earlier,
                                 void *dx, cudaStream_t stream) {
    LAUNCH_POOL(max_pool_backward, T, x_rows(w), w.channels, windows_of(w), static_cast<const T *>(dy), index,
                static_cast<const T *>(earlier), static_cast<T *>(dx));
}

void nets_cuda_max_pool_backward(mm_dtype maps, nets_cuda_windows w, const void *dy, const uint8_t *index,
                                 const void *earlier, void *dx, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, max_pool_backward_of, w, dy, index, earlier, dx, stream);
}

template <typename T> static void avg_pool_of(nets_cuda_windows w, const void *x, void *y, cudaStream_t stream) {
    LAUNCH_MAP(avg_pool, T, y_rows(w), w.channels, 1, windows_of(w), static_cast<const T *>(x), static_cast<T *>(y));
}

void nets_cuda_avg_pool(mm_dtype maps, nets_cuda_windows w, const void *x, void *y, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, avg_pool_of, w, x, y, stream);
}

template <typename T>
static void avg_pool_backward_of(nets_cuda_windows w, const void *dy, const void *earlier, void *dx,
                                 cudaStream_t stream) {
    LAUNCH_MAP(avg_pool_backward, T, x_rows(w), w.channels, 1, windows_of(w), static_cast<const T *>(dy),
               static_cast<const T *>(earlier), static_cast<T *>(dx));
}

void nets_cuda_avg_pool_backward(mm_dtype maps, nets_cuda_windows w, const void *dy, const void *earlier, void *dx,
                                 cudaStream_t stream) {
    NETS_BY_STORAGE(maps, avg_pool_backward_of, w, dy, earlier, dx, stream);
}

template <typename T> static void upsample_of(nets_cuda_upsample s, const void *x, void *y, cudaStream_t stream) {
    const int64_t rows = (int64_t)s.images * s.x_size[0] * s.scale[0] * s.x_size[1] * s.scale[1];
    LAUNCH_MAP(upsample, T, rows, s.channels, 1, upsampling_of(s), static_cast<const T *>(x), static_cast<T *>(y));
}

void nets_cuda_upsample_forward(mm_dtype maps, nets_cuda_upsample s, const void *x, void *y, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, upsample_of, s, x, y, stream);
}

template <typename T>
static void upsample_backward_of(nets_cuda_upsample s, const void *dy, const void *earlier, void *dx,
                                 cudaStream_t stream) {
    LAUNCH_MAP(upsample_backward, T, (int64_t)s.images * s.x_size[0] * s.x_size[1], s.channels, 1, upsampling_of(s),
               static_cast<const T *>(dy), static_cast<const T *>(earlier), static_cast<T *>(dx));
}

void nets_cuda_upsample_backward(mm_dtype maps, nets_cuda_upsample s, const void *dy, const void *earlier, void *dx,
                                 cudaStream_t stream) {
    NETS_BY_STORAGE(maps, upsample_backward_of, s, dy, earlier, dx, stream);
}

/* Pooling and upsampling. Backwards gather: an element of the input's gradient asks the outputs that it went into, in
 * their order, so there are no atomics and one order of sums. */
#include "nets/cuda/vector.h"

/* What a window has inside the image: rows y0 .. y1 - 1 and columns x0 .. x1 - 1 of it. */
struct inside {
    int y0, y1, x0, x1;
};

static __device__ inline inside window_at(const nets_cuda_windows &w, int oy, int ox) {
    const int y = oy * w.stride[0] - w.pad[0], x = ox * w.stride[1] - w.pad[1];
    const inside in = {max(0, y), min(w.x_size[0], y + w.kernel[0]), max(0, x), min(w.x_size[1], x + w.kernel[1])};
    return in;
}

/* The windows that a pixel of the image lies in. */
static __device__ inline inside windows_around(const nets_cuda_windows &w, const pixel &p) {
    const int y = p.y + w.pad[0], x = p.x + w.pad[1];
    const inside out = {
        y < w.kernel[0] ? 0 : (y - w.kernel[0]) / w.stride[0] + 1, min(w.y_size[0], y / w.stride[0] + 1),
        x < w.kernel[1] ? 0 : (x - w.kernel[1]) / w.stride[1] + 1, min(w.y_size[1], x / w.stride[1] + 1)};
    return out;
}

static __device__ inline float divisor(const nets_cuda_windows &w, const inside &in) {
    return (float)(w.exclude_pad ? (in.y1 - in.y0) * (in.x1 - in.x0) : w.kernel[0] * w.kernel[1]);
}

static __host__ __device__ inline int64_t y_rows(const nets_cuda_windows &w) {
    return (int64_t)w.images * w.y_size[0] * w.y_size[1];
}
static __host__ __device__ inline int64_t x_rows(const nets_cuda_windows &w) {
    return (int64_t)w.images * w.x_size[0] * w.x_size[1];
}

/* Calls each(y, x, what is there) for a window's pixels of an image, row by row; `image` is at the thread's channels.
 * AHEAD of a row are loaded before the first is used. */
template <int V, int AHEAD, typename T, typename Each>
static __device__ inline void over_window(const nets_cuda_windows &w, const inside &in, const T *image,
                                          const Each &each) {
    for (int y = in.y0; y < in.y1; y++)
        for (int x = in.x0; x < in.x1; x += AHEAD) {
            held<T, V> v[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (x + k < in.x1) load(image + ((int64_t)y * w.x_size[1] + x + k) * w.channels, &v[k]);
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (x + k < in.x1) each(y, x + k, v[k].floats());
        }
}

/* ---------------------------------------------------------------- maximum */

/* Those of element `at` on: in a byte each, or two channels' in a byte. */
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

static __device__ inline void load_index(const nets_cuda_windows &, const uint8_t *from, int64_t at, int (&index)[1]) {
    index[0] = from[at];
}
static __device__ inline void load_index(const nets_cuda_windows &w, const uint8_t *from, int64_t at, int (&index)[4]) {
    const int bits = w.halves_index ? 4 : 8;
    const uint32_t all = w.halves_index ? *reinterpret_cast<const uint16_t *>(from + at / 2)
                                        : *reinterpret_cast<const uint32_t *>(from + at);
    for (int k = 0; k < 4; k++) index[k] = (int)(all >> (bits * k) & ((1u << bits) - 1));
}

static __device__ inline void load_index(const nets_cuda_windows &w, const uint8_t *from, int64_t at, int (&index)[8]) {
    const int bits = w.halves_index ? 4 : 8;
    uint2 all;
    if (w.halves_index) {
        const uint32_t both = *reinterpret_cast<const uint32_t *>(from + at / 2);
        all = make_uint2(both & 0xffff, both >> 16);
    } else {
        all = *reinterpret_cast<const uint2 *>(from + at);
    }
    for (int k = 0; k < 8; k++) index[k] = (int)((k < 4 ? all.x : all.y) >> (bits * (k % 4)) & ((1u << bits) - 1));
}

template <typename T, int V> static __global__ void max_pool(nets_cuda_windows w, const T *x, T *y, uint8_t *index) {
    const int c = my_channel<V>();
    if (c >= w.channels) return;
    for (int64_t row = my_row(); row < y_rows(w); row += row_step()) {
        const pixel p = pixel_at(row, w.y_size);
        const inside in = window_at(w, p.y, p.x);
        const int top = p.y * w.stride[0] - w.pad[0], left = p.x * w.stride[1] - w.pad[1];
        vec<V> best;
        int place[V];
        for (int k = 0; k < V; k++) {
            best.at[k] = -INFINITY;
            place[k] = (in.y0 - top) * w.kernel[1] + in.x0 - left;
        }
        over_window<V, 4>(w, in, x + row_of(p.image, 0, 0, w.x_size) * w.channels + c,
                          [&](int iy, int ix, const vec<V> &v) {
                              const int here = (iy - top) * w.kernel[1] + ix - left;
                              for (int k = 0; k < V; k++)
                                  if (v.at[k] > best.at[k] || v.at[k] != v.at[k]) {
                                      best.at[k] = v.at[k];
                                      place[k] = here;
                                  }
                          });
        const int64_t at = row * w.channels + c;
        store(y + at, best);
        if (index) store_index(w, index, at, place);
    }
}

template <typename T, int V>
static __global__ void max_pool_backward(nets_cuda_windows w, const T *dy, const uint8_t *index, const T *earlier,
                                         T *dx) {
    const int c = my_channel<V>();
    if (c >= w.channels) return;
    for (int64_t row = my_row(); row < x_rows(w); row += row_step()) {
        const pixel p = pixel_at(row, w.x_size);
        const inside out = windows_around(w, p);
        vec<V> sum = {};
        for (int oy = out.y0; oy < out.y1; oy++)
            for (int ox = out.x0; ox < out.x1; ox += 2) { /* mostly there are two side by side: loaded together */
                int place[2][V];
                held<T, V> gradient[2];
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (ox + i < out.x1) {
                        const int64_t from = row_of(p.image, oy, ox + i, w.y_size) * w.channels + c;
                        load_index(w, index, from, place[i]);
                        load(dy + from, &gradient[i]);
                    }
                const int down = (p.y - oy * w.stride[0] + w.pad[0]) * w.kernel[1];
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (ox + i < out.x1) {
                        const int here = down + p.x - (ox + i) * w.stride[1] + w.pad[1];
                        for (int k = 0; k < V; k++) sum.at[k] += place[i][k] == here ? gradient[i].floats().at[k] : 0;
                    }
            }
        const int64_t at = row * w.channels + c;
        store(dx + at, plus(sum, earlier, at));
    }
}

/* ---------------------------------------------------------------- average */

template <typename T, int V> static __global__ void avg_pool(nets_cuda_windows w, const T *x, T *y) {
    const int c = my_channel<V>();
    if (c >= w.channels) return;
    for (int64_t row = my_row(); row < y_rows(w); row += row_step()) {
        const pixel p = pixel_at(row, w.y_size);
        const inside in = window_at(w, p.y, p.x);
        vec<V> sum = {};
        over_window<V, 8>(w, in, x + row_of(p.image, 0, 0, w.x_size) * w.channels + c,
                          [&](int, int, const vec<V> &v) { sum = sum_of(sum, v); });
        const float by = divisor(w, in);
        for (int k = 0; k < V; k++) sum.at[k] /= by;
        store(y + row * w.channels + c, sum);
    }
}

template <typename T, int V>
static __global__ void avg_pool_backward(nets_cuda_windows w, const T *dy, const T *earlier, T *dx) {
    const int c = my_channel<V>();
    if (c >= w.channels) return;
    for (int64_t row = my_row(); row < x_rows(w); row += row_step()) {
        const pixel p = pixel_at(row, w.x_size);
        const inside out = windows_around(w, p);
        vec<V> sum = {};
        for (int oy = out.y0; oy < out.y1; oy++)
            for (int ox = out.x0; ox < out.x1; ox++) {
                const float by = divisor(w, window_at(w, oy, ox));
                vec<V> gradient;
                load(dy + row_of(p.image, oy, ox, w.y_size) * w.channels + c, &gradient);
                for (int k = 0; k < V; k++) sum.at[k] += gradient.at[k] / by;
            }
        const int64_t at = row * w.channels + c;
        store(dx + at, plus(sum, earlier, at));
    }
}

/* ---------------------------------------------------------------- upsampling */

/* Where the middle of pixel `at` of an axis lies in the image before, not beyond the middles of its outermost
 * pixels. */
static __device__ inline float position(int at, int scale, int extent) {
    const float p = ((float)at + 0.5f) / (float)scale - 0.5f;
    return fminf(fmaxf(p, 0), (float)(extent - 1));
}

/* What pixel `to` of an axis takes of pixel `from` of the image before. */
static __device__ inline float share(int from, int to, int scale, int extent) {
    const float distance = fabsf(position(to, scale, extent) - (float)from);
    return distance < 1 ? 1 - distance : 0;
}

template <typename T, int V> static __global__ void upsample(nets_cuda_upsample s, const T *x, T *y) {
    const int c = my_channel<V>();
    const int y_size[2] = {s.x_size[0] * s.scale[0], s.x_size[1] * s.scale[1]};
    const int64_t rows = (int64_t)s.images * y_size[0] * y_size[1];
    if (c >= s.channels) return;
    for (int64_t row = my_row(); row < rows; row += row_step()) {
        const pixel p = pixel_at(row, y_size);
        vec<V> out = {};
        if (!s.bilinear) {
            load(x + row_of(p.image, p.y / s.scale[0], p.x / s.scale[1], s.x_size) * s.channels + c, &out);
        } else {
            const float py = position(p.y, s.scale[0], s.x_size[0]), px = position(p.x, s.scale[1], s.x_size[1]);
            const int top = (int)py, left = (int)px;
            for (int iy = top; iy < min(top + 2, s.x_size[0]); iy++)
                for (int ix = left; ix < min(left + 2, s.x_size[1]); ix++) {
                    const float of = (1 - fabsf(py - (float)iy)) * (1 - fabsf(px - (float)ix));
                    vec<V> v;
                    load(x + row_of(p.image, iy, ix, s.x_size) * s.channels + c, &v);
                    for (int k = 0; k < V; k++) out.at[k] += of * v.at[k];
                }
        }
        store(y + row * s.channels + c, out);
    }
}

/* Outputs that a pixel of an axis goes into: its own, and if they are interpolated those before and after. */
static __device__ inline void reach(const nets_cuda_upsample &s, int axis, int at, int *begin, int *end) {
    const int more = s.bilinear ? s.scale[axis] : 0;
    *begin = max(0, at * s.scale[axis] - more);
    *end = min(s.x_size[axis] * s.scale[axis], (at + 1) * s.scale[axis] + more);
}

template <typename T, int V>
static __global__ void upsample_backward(nets_cuda_upsample s, const T *dy, const T *earlier, T *dx) {
    const int c = my_channel<V>();
    const int y_size[2] = {s.x_size[0] * s.scale[0], s.x_size[1] * s.scale[1]};
    const int64_t rows = (int64_t)s.images * s.x_size[0] * s.x_size[1];
    if (c >= s.channels) return;
    for (int64_t row = my_row(); row < rows; row += row_step()) {
        const pixel p = pixel_at(row, s.x_size);
        int y0, y1, x0, x1;
        reach(s, 0, p.y, &y0, &y1);
        reach(s, 1, p.x, &x0, &x1);
        vec<V> sum = {};
        for (int oy = y0; oy < y1; oy++) {
            const float of_row = s.bilinear ? share(p.y, oy, s.scale[0], s.x_size[0]) : 1;
            for (int ox = x0; ox < x1; ox++) {
                const float of = s.bilinear ? of_row * share(p.x, ox, s.scale[1], s.x_size[1]) : 1;
                if (of == 0) continue;
                vec<V> gradient;
                load(dy + row_of(p.image, oy, ox, y_size) * s.channels + c, &gradient);
                for (int k = 0; k < V; k++) sum.at[k] += of * gradient.at[k];
            }
        }
        const int64_t at = row * s.channels + c;
        store(dx + at, plus(sum, earlier, at));
    }
}

/* ---------------------------------------------------------------- launchers */

/* With halves of bytes for indices, channels are a multiple of four: never one a thread. */
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
    LAUNCH_POOL(max_pool, T, y_rows(w), w.channels, w, static_cast<const T *>(x), static_cast<T *>(y), index);
}

void nets_cuda_max_pool(mm_dtype maps, nets_cuda_windows w, const void *x, void *y, uint8_t *index,
                        cudaStream_t stream) {
    NETS_BY_STORAGE(maps, max_pool_of, w, x, y, index, stream);
}

template <typename T>
static void max_pool_backward_of(nets_cuda_windows w, const void *dy, const uint8_t *index, const void *earlier,
                                 void *dx, cudaStream_t stream) {
    LAUNCH_POOL(max_pool_backward, T, x_rows(w), w.channels, w, static_cast<const T *>(dy), index,
                static_cast<const T *>(earlier), static_cast<T *>(dx));
}

void nets_cuda_max_pool_backward(mm_dtype maps, nets_cuda_windows w, const void *dy, const uint8_t *index,
                                 const void *earlier, void *dx, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, max_pool_backward_of, w, dy, index, earlier, dx, stream);
}

template <typename T> static void avg_pool_of(nets_cuda_windows w, const void *x, void *y, cudaStream_t stream) {
    LAUNCH_MAP(avg_pool, T, y_rows(w), w.channels, 1, w, static_cast<const T *>(x), static_cast<T *>(y));
}

void nets_cuda_avg_pool(mm_dtype maps, nets_cuda_windows w, const void *x, void *y, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, avg_pool_of, w, x, y, stream);
}

template <typename T>
static void avg_pool_backward_of(nets_cuda_windows w, const void *dy, const void *earlier, void *dx,
                                 cudaStream_t stream) {
    LAUNCH_MAP(avg_pool_backward, T, x_rows(w), w.channels, 1, w, static_cast<const T *>(dy),
               static_cast<const T *>(earlier), static_cast<T *>(dx));
}

void nets_cuda_avg_pool_backward(mm_dtype maps, nets_cuda_windows w, const void *dy, const void *earlier, void *dx,
                                 cudaStream_t stream) {
    NETS_BY_STORAGE(maps, avg_pool_backward_of, w, dy, earlier, dx, stream);
}

template <typename T> static void upsample_of(nets_cuda_upsample s, const void *x, void *y, cudaStream_t stream) {
    const int64_t rows = (int64_t)s.images * s.x_size[0] * s.scale[0] * s.x_size[1] * s.scale[1];
    LAUNCH_MAP(upsample, T, rows, s.channels, 1, s, static_cast<const T *>(x), static_cast<T *>(y));
}

void nets_cuda_upsample_forward(mm_dtype maps, nets_cuda_upsample s, const void *x, void *y, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, upsample_of, s, x, y, stream);
}

template <typename T>
static void upsample_backward_of(nets_cuda_upsample s, const void *dy, const void *earlier, void *dx,
                                 cudaStream_t stream) {
    LAUNCH_MAP(upsample_backward, T, (int64_t)s.images * s.x_size[0] * s.x_size[1], s.channels, 1, s,
               static_cast<const T *>(dy), static_cast<const T *>(earlier), static_cast<T *>(dx));
}

void nets_cuda_upsample_backward(mm_dtype maps, nets_cuda_upsample s, const void *dy, const void *earlier, void *dx,
                                 cudaStream_t stream) {
    NETS_BY_STORAGE(maps, upsample_backward_of, s, dy, earlier, dx, stream);
}

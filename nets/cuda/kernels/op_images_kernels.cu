// SPDX-License-Identifier: MIT
/* A number for each image and channel: multiplied with a map; sums over an image's pixels; and group norm, whose
 * statistics follow from such sums. An image's pixels are cut into parts, a block sums a part, and sums are added part
 * by part; all follows from the shape. */
#include "nets/cuda/kernels/elements.h"

/* At most PARTS parts, of at least LEAST_ROWS pixels; chosen, as a layer norm's. */
enum { WARP = 32, WARPS = THREADS / WARP, PARTS = 64, LEAST_ROWS = 256 };

/* Channels that a thread sums at a time; the same for both types, so that sums have the same order. */
enum { SOME = PER_LOAD<bf16> };

static int64_t rows_of_part(const nets_cuda_images &m) { return larger(LEAST_ROWS, ceil_div(m.pixels, PARTS)); }
static int parts_of(const nets_cuda_images &m) { return (int)ceil_div(m.pixels, rows_of_part(m)); }

int64_t nets_cuda_images_bytes(nets_cuda_images m, int quantities) {
    return (parts_of(m) + 1) * m.images * quantities * m.channels * (int64_t)sizeof(float);
}

/* ---------------------------------------------------------------- sums over an image's pixels */

template <int Q, int V> struct quantities { vec<V> q[Q]; };

/* f.start(image, c) prepares a thread for its channels c .. c + V - 1; f.at(i) gives what is summed of the elements
 * from i on. sums[image][part][q][channel] */
template <int Q, int V, typename F>
static __global__ void sum_parts(F f, nets_cuda_images m, int64_t each, int parts, float *sums) {
    __shared__ vec<V> all[THREADS];
    const int c = my_channel<V>(), image = (int)(blockIdx.x / (unsigned)parts),
              part = (int)(blockIdx.x % (unsigned)parts);
    const int64_t from = part * each, end = from + each < m.pixels ? from + each : m.pixels;
    quantities<Q, V> sum = {};
    if (c < m.channels) f.start(image, c);
    for (int64_t row = from + threadIdx.y; row < end && c < m.channels; row += blockDim.y) {
        const quantities<Q, V> v = f.at((image * m.pixels + row) * m.channels + c);
        for (int q = 0; q < Q; q++) sum.q[q] = sum_of(sum.q[q], v.q[q]);
    }
    for (int q = 0; q < Q; q++) {
        if (q > 0) __syncthreads();
        all[threadIdx.y * blockDim.x + threadIdx.x] = sum.q[q];
        __syncthreads();
        if (threadIdx.y || c >= m.channels) continue;
        for (unsigned y = 1; y < blockDim.y; y++) sum.q[q] = sum_of(sum.q[q], all[y * blockDim.x + threadIdx.x]);
        store(sums + ((int64_t)blockIdx.x * Q + q) * m.channels + c, sum.q[q]);
    }
}

/* out[image][q][channel] = the sum of the parts' (+ earlier); `row` is one of an image and a quantity. */
template <typename T> struct join_parts {
    int channels, parts, quantities;
    const float *sums;
    const T *earlier;
    T *out;

    template <int V> __device__ vec<V> at(int64_t i) const {
        const int64_t row = i / channels, image = row / quantities;
        const float *first = sums + (image * parts * quantities + row % quantities) * channels + i % channels;
        vec<V> sum = {};
        for (int part = 0; part < parts; part++)
            sum = sum_of(sum, loaded<V>(first + (int64_t)part * quantities * channels));
        return plus(sum, earlier, i);
    }
};

template <int Q, int V, typename F, typename T>
static void sum_images(const F &f, nets_cuda_images m, float *scratch, const T *earlier, T *out, cudaStream_t stream) {
    const int64_t each = rows_of_part(m), lanes = lanes_for(ceil_div(m.channels, V));
    const int parts = parts_of(m);
    const dim3 grid((unsigned)(m.images * parts), (unsigned)ceil_div(m.channels, V * lanes));
    const join_parts<T> join = {m.channels, parts, Q, scratch, earlier, out};
    void (*kernel)(F, nets_cuda_images, int64_t, int, float *) = sum_parts<Q, V, F>;
    MM_LAUNCH(kernel, grid, dim3((unsigned)lanes, (unsigned)(THREADS / lanes)), 0, stream, f, m, each, parts, scratch);
    launch_elements<T, 1>(join, m.images * Q * m.channels, stream);
}

#define SUM_IMAGES(Q, F, T, m, scratch, earlier, out, ...)                                                             \
    do {                                                                                                               \
        const F<T, 1> singly_ = {__VA_ARGS__};                                                                         \
        const F<T, SOME> together_ = {__VA_ARGS__};                                                                    \
        if ((m).channels % SOME)                                                                                       \
            sum_images<Q, 1>(singly_, m, scratch, earlier, out, stream);                                               \
        else                                                                                                           \
            sum_images<Q, SOME>(together_, m, scratch, earlier, out, stream);                                          \
    } while (0)

/* ---------------------------------------------------------------- products */

template <typename T, int V>
static __global__ void scale_rows(nets_cuda_images m, nets_divisor by_pixels, const T *x, const T *factors,
                                  const T *earlier, T *y) {
    const int c = my_channel<V>();
    if (c >= m.channels) return;
    write_rows<V, AT_ONCE>(
        rows_of_all(m.images * m.pixels), m.channels, y + c,
        [&](int row) {
            held<T, V> h;
            load(x + (int64_t)row * m.channels + c, &h);
            return h;
        },
        [&](const held<T, V> &h, int row) {
            const vec<V> f = loaded<V>(factors + (int64_t)nets_divided(by_pixels, (unsigned)row) * m.channels + c);
            vec<V> v = h.floats();
            for (int k = 0; k < V; k++) v.at[k] *= f.at[k];
            return plus(v, earlier, (int64_t)row * m.channels + c);
        });
}

template <typename T>
static void launch_scale(nets_cuda_images m, const void *x, const void *factors, const void *earlier, void *y,
                         cudaStream_t stream) {
    LAUNCH_MAP(scale_rows, T, m.images * m.pixels, m.channels, AT_ONCE, m, nets_divisor_of((int)m.pixels),
               static_cast<const T *>(x), static_cast<const T *>(factors), static_cast<const T *>(earlier),
               static_cast<T *>(y));
}

void nets_cuda_scale_images(mm_dtype maps, nets_cuda_images m, const void *x, const void *factors, const void *earlier,
                            void *y, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_scale, m, x, factors, earlier, y, stream);
}

template <typename T, int V> struct products {
    const T *a, *b;

    __device__ void start(int, int) {}
    __device__ quantities<1, V> at(int64_t i) const {
        const vec<V> first = loaded<V>(a + i), second = loaded<V>(b + i);
        quantities<1, V> p;
        for (int k = 0; k < V; k++) p.q[0].at[k] = first.at[k] * second.at[k];
        return p;
    }
};

template <typename T>
static void launch_products(nets_cuda_images m, const void *a, const void *b, const void *earlier, void *scratch,
                            void *sums, cudaStream_t stream) {
    SUM_IMAGES(1, products, T, m, static_cast<float *>(scratch), static_cast<const T *>(earlier),
               static_cast<T *>(sums), static_cast<const T *>(a), static_cast<const T *>(b));
}

void nets_cuda_image_products(mm_dtype maps, nets_cuda_images m, const void *a, const void *b, const void *earlier,
                              void *scratch, void *sums, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, launch_products, m, a, b, earlier, scratch, sums, stream);
}

/* ---------------------------------------------------------------- group norm: sums */

/* The groups of a thread's channels. */
template <int V> struct groups_of {
    int of[V];

    __device__ groups_of() {}
    __device__ groups_of(const nets_cuda_group_norm &gn, int c) {
        for (int k = 0; k < V; k++) of[k] = (c + k) / (gn.images.channels / gn.groups);
    }
    /* A number for each image and group. */
    __device__ vec<V> loaded_from(const float *numbers, int64_t image, const nets_cuda_group_norm &gn) const {
        vec<V> v;
        for (int k = 0; k < V; k++) v.at[k] = numbers[image * gn.groups + of[k]];
        return v;
    }
};

/* Sums x, or with `means` (x - mean)^2. */
template <typename T, int V> struct moments {
    nets_cuda_group_norm gn;
    const T *x;
    const float *means;
    vec<V> mean;

    __device__ void start(int image, int c) {
        if (means) mean = groups_of<V>(gn, c).loaded_from(means, image, gn);
    }
    __device__ quantities<1, V> at(int64_t i) const {
        quantities<1, V> m = {{loaded<V>(x + i)}};
        for (int k = 0; k < V && means; k++) {
            const float d = m.q[0].at[k] - mean.at[k];
            m.q[0].at[k] = d * d;
        }
        return m;
    }
};

/* Sums dy and dy (x - mean). */
template <typename T, int V> struct gradient_moments {
    nets_cuda_group_norm gn;
    const T *x, *dy;
    const float *means;
    vec<V> mean;

    __device__ void start(int image, int c) { mean = groups_of<V>(gn, c).loaded_from(means, image, gn); }
    __device__ quantities<2, V> at(int64_t i) const {
        const vec<V> v = loaded<V>(x + i);
        quantities<2, V> m;
        m.q[0] = loaded<V>(dy + i);
        for (int k = 0; k < V; k++) m.q[1].at[k] = m.q[0].at[k] * (v.at[k] - mean.at[k]);
        return m;
    }
};

/* The sum over a warp, in all lanes. */
static __device__ inline float sum_of_warp(float v) {
    for (int apart = WARP / 2; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
    return v;
}

/* The mean over a group of what is summed by channel, in all lanes of the group's warp. */
static __device__ inline float mean_of_group(const nets_cuda_group_norm &gn, const float *sums, const float *weight,
                                             int group) {
    const int each = gn.images.channels / gn.groups;
    float sum = 0;
    for (int c = group * each + (int)threadIdx.x; c < (group + 1) * each; c += WARP)
        sum += sums[c] * (weight ? weight[c] : 1);
    return sum_of_warp(sum) / ((float)gn.images.pixels * (float)each);
}

static __device__ inline int64_t group_of_warp() { return (int64_t)blockIdx.x * WARPS + threadIdx.y; }

/* From sums[image][channel]: the groups' means, or, with `factors`, 1 / sqrt(mean + eps). */
static __global__ void take_moments(nets_cuda_group_norm gn, const float *sums, bool factors, float *out) {
    const int64_t at = group_of_warp(), image = at / gn.groups;
    if (image >= gn.images.images) return;
    const float mean = mean_of_group(gn, sums + image * gn.images.channels, NULL, (int)(at % gn.groups));
    if (threadIdx.x == 0) out[at] = factors ? 1.0f / sqrtf(mean + gn.eps) : mean;
}

/* From sums[image][2][channel], of dy and of dy (x - mean), with g = dy weight: the groups' mean(g), and mean(g
 * normalised x) times the factor. */
static __global__ void take_gradients(nets_cuda_group_norm gn, const float *sums, const float *weight,
                                      const float *factors, float *by_mean, float *by_factor) {
    const int64_t at = group_of_warp(), image = at / gn.groups;
    if (image >= gn.images.images) return;
    const float *own = sums + image * 2 * gn.images.channels;
    const float mean = mean_of_group(gn, own, weight, (int)(at % gn.groups));
    const float slope = mean_of_group(gn, own + gn.images.channels, weight, (int)(at % gn.groups));
    if (threadIdx.x) return;
    by_mean[at] = mean;
    by_factor[at] = slope * factors[at] * factors[at];
}

/* Sums the gradients by weight and bias over the images. */
static __global__ void sum_over_images(nets_cuda_group_norm gn, const float *sums, const float *factors, float *dweight,
                                       float *dbias) {
    const int channels = gn.images.channels, c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float by_weight = 0, by_bias = 0;
    if (c >= channels) return;
    for (int64_t image = 0; image < gn.images.images; image++) {
        by_bias += sums[image * 2 * channels + c];
        by_weight += sums[(image * 2 + 1) * channels + c] * factors[image * gn.groups + c / (channels / gn.groups)];
    }
    dweight[c] = by_weight;
    dbias[c] = by_bias;
}

/* ---------------------------------------------------------------- group norm: maps */

template <typename T, int V>
static __global__ void normalise(nets_cuda_group_norm gn, nets_divisor by_pixels, const T *x, const float *weight,
                                 const float *bias, const float *means, const float *factors, T *y) {
    const nets_cuda_images &m = gn.images;
    const int c = my_channel<V>();
    if (c >= m.channels) return;
    const groups_of<V> groups(gn, c);
    const vec<V> w = loaded<V>(weight + c), b = loaded<V>(bias + c);
    write_rows<V, AT_ONCE>(
        rows_of_all(m.images * m.pixels), m.channels, y + c,
        [&](int row) {
            held<T, V> h;
            load(x + (int64_t)row * m.channels + c, &h);
            return h;
        },
        [&](const held<T, V> &h, int row) {
            const int64_t image = nets_divided(by_pixels, (unsigned)row);
            const vec<V> mean = groups.loaded_from(means, image, gn), factor = groups.loaded_from(factors, image, gn);
            vec<V> v = h.floats();
            for (int k = 0; k < V; k++) v.at[k] = (v.at[k] - mean.at[k]) * (factor.at[k] * w.at[k]) + b.at[k];
            return v;
        });
}

template <typename T, int V> struct gradient_item { held<T, V> x, dy; };

/* dx = factor (g - mean(g) - normalised x mean(g normalised x)), where g = dy weight */
template <typename T, int V>
static __global__ void give_dx(nets_cuda_group_norm gn, nets_divisor by_pixels, const T *x, const float *weight,
                               const float *means, const float *factors, const float *by_mean, const float *by_factor,
                               const T *dy, const T *earlier, T *dx) {
    const nets_cuda_images &m = gn.images;
    const int c = my_channel<V>();
    if (c >= m.channels) return;
    const groups_of<V> groups(gn, c);
    const vec<V> w = loaded<V>(weight + c);
    write_rows<V, AT_ONCE>(
        rows_of_all(m.images * m.pixels), m.channels, dx + c,
        [&](int row) {
            gradient_item<T, V> i;
            load(x + (int64_t)row * m.channels + c, &i.x);
            load(dy + (int64_t)row * m.channels + c, &i.dy);
            return i;
        },
        [&](const gradient_item<T, V> &i, int row) {
            const int64_t image = nets_divided(by_pixels, (unsigned)row);
            const vec<V> mean = groups.loaded_from(means, image, gn), factor = groups.loaded_from(factors, image, gn);
            const vec<V> g = groups.loaded_from(by_mean, image, gn), slope = groups.loaded_from(by_factor, image, gn);
            const vec<V> at_x = i.x.floats();
            vec<V> v = i.dy.floats();
            for (int k = 0; k < V; k++)
                v.at[k] = factor.at[k] * (v.at[k] * w.at[k] - g.at[k] - (at_x.at[k] - mean.at[k]) * slope.at[k]);
            return plus(v, earlier, (int64_t)row * m.channels + c);
        });
}

/* ---------------------------------------------------------------- group norm: launchers */

/* The scratch: the parts' sums and their sums, of two quantities; then two numbers for each image and group. */
int64_t nets_cuda_group_norm_bytes(nets_cuda_group_norm gn) {
    return nets_cuda_images_bytes(gn.images, 2) + 2 * gn.images.images * gn.groups * (int64_t)sizeof(float);
}

struct group_scratch {
    float *parts, *sums, *numbers, *more_numbers;
};

static group_scratch scratch_of(const nets_cuda_group_norm &gn, void *scratch) {
    const nets_cuda_images &m = gn.images;
    float *parts = static_cast<float *>(scratch), *sums = parts + (int64_t)parts_of(m) * m.images * 2 * m.channels;
    float *numbers = sums + m.images * 2 * m.channels;
    return {parts, sums, numbers, numbers + m.images * gn.groups};
}

template <typename T>
static void forward(nets_cuda_group_norm gn, const void *map_x, const float *weight, const float *bias, void *scratch,
                    void *y, float *means, float *factors, cudaStream_t stream) {
    const nets_cuda_images &m = gn.images;
    const group_scratch s = scratch_of(gn, scratch);
    const T *x = static_cast<const T *>(map_x);
    const float *const none = NULL;
    const unsigned blocks = (unsigned)ceil_div(m.images * gn.groups, WARPS);
    if (!means) means = s.numbers;
    if (!factors) factors = s.more_numbers;
    SUM_IMAGES(1, moments, T, m, s.parts, none, s.sums, gn, x, NULL, {});
    MM_LAUNCH(take_moments, blocks, dim3(WARP, WARPS), 0, stream, gn, s.sums, false, means);
    SUM_IMAGES(1, moments, T, m, s.parts, none, s.sums, gn, x, means, {});
    MM_LAUNCH(take_moments, blocks, dim3(WARP, WARPS), 0, stream, gn, s.sums, true, factors);
    LAUNCH_MAP(normalise, T, m.images * m.pixels, m.channels, AT_ONCE, gn, nets_divisor_of((int)m.pixels), x, weight,
               bias, means, factors, static_cast<T *>(y));
}

void nets_cuda_group_norm_forward(mm_dtype maps, nets_cuda_group_norm gn, const void *x, const float *weight,
                                  const float *bias, void *scratch, void *y, float *means, float *factors,
                                  cudaStream_t stream) {
    NETS_BY_STORAGE(maps, forward, gn, x, weight, bias, scratch, y, means, factors, stream);
}

template <typename T>
static void backward(nets_cuda_group_norm gn, const void *map_x, const float *weight, const float *means,
                     const float *factors, const void *map_dy, const void *earlier, void *scratch, void *dx,
                     float *dweight, float *dbias, cudaStream_t stream) {
    const nets_cuda_images &m = gn.images;
    const group_scratch s = scratch_of(gn, scratch);
    const T *x = static_cast<const T *>(map_x), *dy = static_cast<const T *>(map_dy);
    const float *const none = NULL;
    SUM_IMAGES(2, gradient_moments, T, m, s.parts, none, s.sums, gn, x, dy, means, {});
    MM_LAUNCH(sum_over_images, (unsigned)ceil_div(m.channels, THREADS), THREADS, 0, stream, gn, s.sums, factors,
              dweight, dbias);
    if (!dx) return;
    MM_LAUNCH(take_gradients, (unsigned)ceil_div(m.images * gn.groups, WARPS), dim3(WARP, WARPS), 0, stream, gn, s.sums,
              weight, factors, s.numbers, s.more_numbers);
    LAUNCH_MAP(give_dx, T, m.images * m.pixels, m.channels, AT_ONCE, gn, nets_divisor_of((int)m.pixels), x, weight,
               means, factors, s.numbers, s.more_numbers, dy, static_cast<const T *>(earlier), static_cast<T *>(dx));
}

void nets_cuda_group_norm_backward(mm_dtype maps, nets_cuda_group_norm gn, const void *x, const float *weight,
                                   const float *means, const float *factors, const void *dy, const void *earlier,
                                   void *scratch, void *dx, float *dweight, float *dbias, cudaStream_t stream) {
    NETS_BY_STORAGE(maps, backward, gn, x, weight, means, factors, dy, earlier, scratch, dx, dweight, dbias, stream);
}

/* SPDX-License-Identifier: MIT */
/* How maps are stored: kernels are templates over T, float or bf16, and compute with floats. Loads and stores take 16
 * bytes where V is PER_LOAD<T>, 4 floats or 8 bf16; V is 1, 2 or 4 at edges. Floats are rounded to nearest, ties to
 * even; a NaN stays one (a GPU makes it the canonical one). For .cu files; C++. */
#ifndef NETS_CUDA_KERNELS_STORAGE_H
#define NETS_CUDA_KERNELS_STORAGE_H

#include "mm/core/status.h"
#include "mm/device/cuda/cuda_launch.h"

#define NETS_BF16_FUNCTION static __device__ inline
#include "nets/bf16.h"

struct bf16 {
    uint16_t bits;
};

template <typename T> constexpr int PER_LOAD = 16 / (int)sizeof(T);

/* V neighbouring elements, to compute with. */
template <int V> struct vec { float at[V]; };

/* ---------------------------------------------------------------- bf16 in words */

template <int V> struct bf16_word;
template <> struct bf16_word<1> { typedef unsigned short type; };
template <> struct bf16_word<2> { typedef unsigned type; };
template <> struct bf16_word<4> { typedef uint2 type; };
template <> struct bf16_word<8> { typedef uint4 type; };

static __device__ inline float low_half(unsigned w) { return __uint_as_float(w << 16); }
static __device__ inline float high_half(unsigned w) { return __uint_as_float(w & 0xffff0000u); }

static __device__ inline vec<1> floats_of(unsigned short w) { return {{low_half(w)}}; }
static __device__ inline vec<2> floats_of(unsigned w) { return {{low_half(w), high_half(w)}}; }
static __device__ inline vec<4> floats_of(uint2 w) {
    return {{low_half(w.x), high_half(w.x), low_half(w.y), high_half(w.y)}};
}
static __device__ inline vec<8> floats_of(uint4 w) {
    return {{low_half(w.x), high_half(w.x), low_half(w.y), high_half(w.y), low_half(w.z), high_half(w.z), low_half(w.w),
             high_half(w.w)}};
}

static __device__ inline unsigned halves_of(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(high), "f"(low));
    return w;
#else
    return nets_bf16_of(__float_as_uint(low)) | (unsigned)nets_bf16_of(__float_as_uint(high)) << 16;
#endif
}

static __device__ inline unsigned short word_from(const vec<1> &v) { return (unsigned short)halves_of(v.at[0], 0); }
static __device__ inline unsigned word_from(const vec<2> &v) { return halves_of(v.at[0], v.at[1]); }
static __device__ inline uint2 word_from(const vec<4> &v) {
    return make_uint2(halves_of(v.at[0], v.at[1]), halves_of(v.at[2], v.at[3]));
}
static __device__ inline uint4 word_from(const vec<8> &v) {
    return make_uint4(halves_of(v.at[0], v.at[1]), halves_of(v.at[2], v.at[3]), halves_of(v.at[4], v.at[5]),
                      halves_of(v.at[6], v.at[7]));
}

/* ---------------------------------------------------------------- loads and stores */

/* `last`: the data is not read again soon, and is evicted from the level-2 cache first. */
static __device__ inline void load(const float *from, vec<1> *v, bool last = false) {
    v->at[0] = last ? __ldcs(from) : *from;
}
static __device__ inline void load(const float *from, vec<4> *v, bool last = false) {
    const float4 *four = reinterpret_cast<const float4 *>(from);
    const float4 f = last ? __ldcs(four) : *four;
    v->at[0] = f.x;
    v->at[1] = f.y;
    v->at[2] = f.z;
    v->at[3] = f.w;
}
/* For kernels that take 8 bf16 at a time. */
static __device__ inline void load(const float *from, vec<8> *v, bool last = false) {
    vec<4> half[2];
    load(from, &half[0], last);
    load(from + 4, &half[1], last);
    for (int k = 0; k < 8; k++) v->at[k] = half[k / 4].at[k % 4];
}

static __device__ inline void store(float *to, const vec<1> &v) { *to = v.at[0]; }
static __device__ inline void store(float *to, const vec<4> &v) {
    *reinterpret_cast<float4 *>(to) = make_float4(v.at[0], v.at[1], v.at[2], v.at[3]);
}
static __device__ inline void store(float *to, const vec<8> &v) {
    float4 *four = reinterpret_cast<float4 *>(to);
    four[0] = make_float4(v.at[0], v.at[1], v.at[2], v.at[3]);
    four[1] = make_float4(v.at[4], v.at[5], v.at[6], v.at[7]);
}

/* V elements in the stored type, which takes the fewest registers, until they are computed with or stored. */
template <typename T, int V> struct held;

template <int V> struct held<float, V> {
    vec<V> v;

    __device__ const vec<V> &floats() const { return v; }
};
template <int V> struct held<bf16, V> {
    typename bf16_word<V>::type w;

    __device__ vec<V> floats() const { return floats_of(w); }
};

template <int V> static __device__ inline void load(const float *from, held<float, V> *h, bool last = false) {
    load(from, &h->v, last);
}
template <int V> static __device__ inline void load(const bf16 *from, held<bf16, V> *h, bool last = false) {
    typedef typename bf16_word<V>::type word;
    const word *words = reinterpret_cast<const word *>(from);
    h->w = last ? __ldcs(words) : *words;
}
template <int V> static __device__ inline void load(const bf16 *from, vec<V> *v, bool last = false) {
    held<bf16, V> h;
    load(from, &h, last);
    *v = h.floats();
}

template <int V> static __device__ inline void round_to(const vec<V> &v, held<float, V> *h) { h->v = v; }
template <int V> static __device__ inline void round_to(const vec<V> &v, held<bf16, V> *h) { h->w = word_from(v); }

template <int V> static __device__ inline void store(float *to, const held<float, V> &h) { store(to, h.v); }
template <int V> static __device__ inline void store(bf16 *to, const held<bf16, V> &h) {
    *reinterpret_cast<typename bf16_word<V>::type *>(to) = h.w;
}
template <int V> static __device__ inline void store(bf16 *to, const vec<V> &v) {
    held<bf16, V> h;
    round_to(v, &h);
    store(to, h);
}

template <int V, typename T> static __device__ inline vec<V> loaded(const T *from) {
    vec<V> v;
    load(from, &v);
    return v;
}

/* Whether v is still positive when it is rounded to T: half the least bf16 rounds to 0. */
template <typename T> static __device__ inline bool is_positive(float v) {
    return v > (sizeof(T) == sizeof(bf16) ? 0x1p-134f : 0.0f);
}

/* ---------------------------------------------------------------- launchers */

/* Calls function<T>(...) for the type of maps, MM_F32 or MM_BF16. nets_op_create checked that it is no other
 * (nets_op_impl.maps). */
#define NETS_BY_STORAGE(maps, function, ...)                                                                           \
    do {                                                                                                               \
        if ((maps) == MM_BF16)                                                                                         \
            function<bf16>(__VA_ARGS__);                                                                               \
        else                                                                                                           \
            function<float>(__VA_ARGS__);                                                                              \
    } while (0)

#endif

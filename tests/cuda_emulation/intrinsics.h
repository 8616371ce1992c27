/* SPDX-License-Identifier: MIT */
/* The functions of the kernel language. A part of cuda_runtime.h. */
#ifndef TESTS_CUDA_EMULATION_INTRINSICS_H
#define TESTS_CUDA_EMULATION_INTRINSICS_H

/* ---------------------------------------------------------------- barriers and fences */

inline void __syncthreads(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    cuda_emulation::block_barrier(false, file, line);
}
inline int __syncthreads_count(int predicate, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return cuda_emulation::block_barrier(predicate != 0, file, line);
}
inline int __syncthreads_or(int predicate, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return cuda_emulation::block_barrier(predicate != 0, file, line) != 0;
}
inline int __syncthreads_and(int predicate, const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return cuda_emulation::block_barrier(predicate == 0, file, line) == 0;
}
/* Blocks run one after another on one thread, so that only the compiler could reorder accesses. (gcc refuses
 * __atomic_thread_fence with -fsanitize=thread.) */
inline void __threadfence() { __asm__ volatile("" ::: "memory"); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }
[[noreturn]] inline void __trap() { cuda_emulation::die("__trap"); }

/* ---------------------------------------------------------------- warps */

namespace cuda_emulation {

template <typename T> uint64_t bits_of(T value) {
    static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable<T>::value, "a warp exchanges scalars");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <typename T> T of_bits(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint32_t votes(const char *operation, unsigned mask, int predicate) {
    const lanes &all = exchange(operation, mask, predicate != 0);
    uint32_t set = 0;
    for (int l = 0; l < 32; l++) set |= (uint32_t)((all.present >> l & 1) && all.value[l]) << l;
    return set;
}

/* The value of lane `from`; the calling lane's own value if `from` is outside the calling lane's part of the warp. */
template <typename T> T shuffle(const char *operation, unsigned mask, T value, int from, int width) {
    if (width < 1 || width > 32 || (width & (width - 1))) die("%s of width %d", operation, width);
    const lanes &all = exchange(operation, mask, bits_of(value));
    const int base = lane() & ~(width - 1);
    return from < base || from >= base + width ? value : of_bits<T>(all.value[from]);
}

template <typename T, typename F> T reduce(const char *operation, unsigned mask, T value, F combine) {
    const lanes &all = exchange(operation, mask, bits_of(value));
    bool first = true;
    T sum = value;
    for (int l = 0; l < 32; l++) {
        if (!(all.present >> l & 1)) continue;
        sum = first ? of_bits<T>(all.value[l]) : combine(sum, of_bits<T>(all.value[l]));
        first = false;
    }
    return sum;
}

} // namespace cuda_emulation

inline void __syncwarp(unsigned mask = 0xffffffff) { cuda_emulation::exchange("__syncwarp", mask, 0); }

inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return cuda_emulation::votes("__ballot_sync", mask, predicate);
}
inline int __any_sync(unsigned mask, int predicate) {
    return cuda_emulation::votes("__any_sync", mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
    return cuda_emulation::votes("__all_sync", mask, !predicate) == 0;
}

template <typename T> T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
    return cuda_emulation::shuffle("__shfl_sync", mask, value,
                                   (cuda_emulation::lane() & ~(width - 1)) | (from & (width - 1)), width);
}
template <typename T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
    return cuda_emulation::shuffle("__shfl_up_sync", mask, value, cuda_emulation::lane() - (int)by, width);
}
template <typename T> T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
    return cuda_emulation::shuffle("__shfl_down_sync", mask, value, cuda_emulation::lane() + (int)by, width);
}
/* As in CUDA, lanes of an earlier part of the warp can be read, those of a later part cannot. */
template <typename T> T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32) {
    const cuda_emulation::lanes &all =
        cuda_emulation::exchange("__shfl_xor_sync", mask, cuda_emulation::bits_of(value));
    const int from = cuda_emulation::lane() ^ with, end = (cuda_emulation::lane() & ~(width - 1)) + width;
    return from < 0 || from >= end ? value : cuda_emulation::of_bits<T>(all.value[from]);
}

template <typename T> unsigned __match_any_sync(unsigned mask, T value) {
    const uint64_t bits = cuda_emulation::bits_of(value);
    const cuda_emulation::lanes &all = cuda_emulation::exchange("__match_any_sync", mask, bits);
    unsigned same = 0;
    for (int l = 0; l < 32; l++) same |= (unsigned)((all.present >> l & 1) && all.value[l] == bits) << l;
    return same;
}

#define CUDA_EMULATION_REDUCE(type, name, expression)                                                                  \
    inline type __reduce_##name##_sync(unsigned mask, type value) {                                                    \
        return cuda_emulation::reduce("__reduce_" #name "_sync", mask, value,                                          \
                                      [](type a, type b) { return expression; });                                      \
    }
CUDA_EMULATION_REDUCE(unsigned, add, a + b)
CUDA_EMULATION_REDUCE(unsigned, min, a < b ? a : b)
CUDA_EMULATION_REDUCE(unsigned, max, a > b ? a : b)
CUDA_EMULATION_REDUCE(unsigned, and, a &b)
CUDA_EMULATION_REDUCE(unsigned, or, a | b)
CUDA_EMULATION_REDUCE(unsigned, xor, a ^ b)
CUDA_EMULATION_REDUCE(int, add, (int)((unsigned)a + (unsigned)b))
CUDA_EMULATION_REDUCE(int, min, a < b ? a : b)
CUDA_EMULATION_REDUCE(int, max, a > b ? a : b)
#undef CUDA_EMULATION_REDUCE

/* ---------------------------------------------------------------- atomics */

namespace cuda_emulation {

/* Returns the old value, as CUDA's atomics do. */
template <typename T, typename F> T atomic(T *at, F combine) {
    T old, next;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    do next = combine(old);
    while (!__atomic_compare_exchange(at, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

} // namespace cuda_emulation

#define CUDA_EMULATION_ATOMIC(type, name, expression)                                                                  \
    inline type atomic##name(type *at, type value) {                                                                   \
        return cuda_emulation::atomic(at, [value](type old) -> type { return expression; });                           \
    }                                                                                                                  \
    inline type atomic##name##_block(type *at, type value) { return atomic##name(at, value); }                         \
    inline type atomic##name##_system(type *at, type value) { return atomic##name(at, value); }
#define CUDA_EMULATION_ATOMICS(type)                                                                                   \
    CUDA_EMULATION_ATOMIC(type, Add, (type)(old + value))                                                              \
    CUDA_EMULATION_ATOMIC(type, Min, old < value ? old : value)                                                        \
    CUDA_EMULATION_ATOMIC(type, Max, old > value ? old : value)                                                        \
    CUDA_EMULATION_ATOMIC(type, Exch, ((void)old, value))                                                              \
    CUDA_EMULATION_ATOMIC(type, And, old &value)                                                                       \
    CUDA_EMULATION_ATOMIC(type, Or, old | value)                                                                       \
    CUDA_EMULATION_ATOMIC(type, Xor, old ^ value)                                                                      \
    inline type atomicCAS(type *at, type expected, type value) {                                                       \
        return cuda_emulation::atomic(at, [=](type old) { return old == expected ? value : old; });                    \
    }
CUDA_EMULATION_ATOMICS(int)
CUDA_EMULATION_ATOMICS(unsigned)
CUDA_EMULATION_ATOMICS(unsigned long long)
CUDA_EMULATION_ATOMIC(int, Sub, old - value)
CUDA_EMULATION_ATOMIC(unsigned, Sub, old - value)
CUDA_EMULATION_ATOMIC(float, Add, old + value)
CUDA_EMULATION_ATOMIC(float, Exch, ((void)old, value))
CUDA_EMULATION_ATOMIC(double, Add, old + value)
inline unsigned atomicInc(unsigned *at, unsigned most) {
    return cuda_emulation::atomic(at, [most](unsigned old) { return old >= most ? 0 : old + 1; });
}
#undef CUDA_EMULATION_ATOMICS
#undef CUDA_EMULATION_ATOMIC

/* They do what their namesakes in cuda_launch.h do. */
inline unsigned long long mm_cuda_load(const unsigned long long *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
inline void mm_cuda_store(unsigned long long *at, unsigned long long word) {
    __atomic_store_n(at, word, __ATOMIC_RELAXED);
}

/* ---------------------------------------------------------------- loads and stores with cache hints */

namespace cuda_emulation {

template <typename T> T *aligned(T *at) {
    if ((uintptr_t)at % sizeof(T)) die("%p is not aligned to %zu bytes", (const void *)at, sizeof(T));
    return at;
}

} // namespace cuda_emulation

#define CUDA_EMULATION_LOAD(name)                                                                                      \
    template <typename T> T name(const T *at) { return *cuda_emulation::aligned(at); }
#define CUDA_EMULATION_STORE(name)                                                                                     \
    template <typename T> void name(T *at, typename std::common_type<T>::type value) {                                 \
        *cuda_emulation::aligned(at) = value;                                                                          \
    }
CUDA_EMULATION_LOAD(__ldg)
CUDA_EMULATION_LOAD(__ldca)
CUDA_EMULATION_LOAD(__ldcg)
CUDA_EMULATION_LOAD(__ldcs)
CUDA_EMULATION_LOAD(__ldcv)
CUDA_EMULATION_LOAD(__ldlu)
CUDA_EMULATION_STORE(__stcg)
CUDA_EMULATION_STORE(__stcs)
CUDA_EMULATION_STORE(__stwb)
CUDA_EMULATION_STORE(__stwt)
#undef CUDA_EMULATION_LOAD
#undef CUDA_EMULATION_STORE

/* ---------------------------------------------------------------- bits */

inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
/* Selector digits of 8 and more, which replicate a sign, are not supported, because no kernel uses them. */
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) out |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return out;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((uint64_t)high << 32 | low) << (by & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by) {
    return by >= 32 ? low : __funnelshift_l(low, high, by);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
    return by >= 32 ? high : __funnelshift_r(low, high, by);
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

template <typename To, typename From> To cuda_emulation_cast(From value) {
    static_assert(sizeof(To) == sizeof(From), "bits of the same size");
    return cuda_emulation::of_bits<To>(cuda_emulation::bits_of(value));
}
inline unsigned __float_as_uint(float x) { return cuda_emulation_cast<unsigned>(x); }
inline int __float_as_int(float x) { return cuda_emulation_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return cuda_emulation_cast<float>(x); }
inline float __int_as_float(int x) { return cuda_emulation_cast<float>(x); }
inline long long __double_as_longlong(double x) { return cuda_emulation_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return cuda_emulation_cast<double>(x); }

/* ---------------------------------------------------------------- arithmetic */

/* Saturates; NaN becomes 0. */
inline int __float2int_rz(float x) {
    return x != x ? 0 : x >= 2147483648.0f ? INT32_MAX : x <= -2147483648.0f ? INT32_MIN : (int)x;
}
inline int __float2int_rn(float x) { return __float2int_rz(nearbyintf(x)); }
inline int __float2int_rd(float x) { return __float2int_rz(floorf(x)); }
inline int __float2int_ru(float x) { return __float2int_rz(ceilf(x)); }
inline unsigned __float2uint_rz(float x) { return !(x > 0) ? 0 : x >= 4294967296.0f ? UINT32_MAX : (unsigned)x; }
inline unsigned __float2uint_rn(float x) { return __float2uint_rz(nearbyintf(x)); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __ll2float_rn(long long x) { return (float)x; }

/* volatile, so that the compiler does not fuse the operation with another. */
inline float __fadd_rn(float a, float b) {
    volatile float sum = a + b;
    return sum;
}
inline float __fsub_rn(float a, float b) {
    volatile float difference = a - b;
    return difference;
}
inline float __fmul_rn(float a, float b) {
    volatile float product = a * b;
    return product;
}
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __frsqrt_rn(float x) { return 1 / sqrtf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return !(x > 0) ? 0 : x > 1 ? 1 : x; }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline void __sincosf(float x, float *sine_out, float *cosine_out) { sincosf(x, sine_out, cosine_out); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float sinpif(float x) { return (float)sin(M_PI * (double)x); }
inline float cospif(float x) { return (float)cos(M_PI * (double)x); }

#define CUDA_EMULATION_MIN_MAX(type)                                                                                   \
    inline type min(type a, type b) { return b < a ? b : a; }                                                          \
    inline type max(type a, type b) { return a < b ? b : a; }
CUDA_EMULATION_MIN_MAX(int)
CUDA_EMULATION_MIN_MAX(unsigned)
CUDA_EMULATION_MIN_MAX(long)
CUDA_EMULATION_MIN_MAX(unsigned long)
CUDA_EMULATION_MIN_MAX(long long)
CUDA_EMULATION_MIN_MAX(unsigned long long)
#undef CUDA_EMULATION_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

/* ---------------------------------------------------------------- functions of the host about kernels */

template <typename Kernel> cudaError_t cudaFuncSetAttribute(Kernel *kernel, cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute((const void *)kernel, attribute, value);
}

template <typename Kernel> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, Kernel *kernel) {
    return cudaFuncGetAttributes(attributes, (const void *)kernel);
}

template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks_out, Kernel *kernel, int threads, size_t bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks_out, (const void *)kernel, threads, bytes);
}

#endif

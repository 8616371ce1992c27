/* SPDX-License-Identifier: MIT */
/* The AVX2 kernel: 8 blocks in a vector. */
#if defined(__x86_64__)

#include <immintrin.h>

#include "pipeline/codec/zfp/zfp_group.h"

enum { LANES = 8 };

typedef uint32_t u32v __attribute__((vector_size(32)));
typedef int32_t i32v __attribute__((vector_size(32)));
typedef float f32v __attribute__((vector_size(32)));

#define TARGET __attribute__((target("avx2")))
#define FN     TARGET static inline __attribute__((always_inline))

FN u32v shl(u32v x, u32v s) { return (u32v)_mm256_sllv_epi32((__m256i)x, (__m256i)s); }
FN u32v shr(u32v x, u32v s) { return (u32v)_mm256_srlv_epi32((__m256i)x, (__m256i)s); }
FN u32v blend(u32v m, u32v a, u32v b) { return b ^ (m & (a ^ b)); }
FN u32v larger(u32v a, u32v b) { return (u32v)_mm256_max_epu32((__m256i)a, (__m256i)b); }
FN u32v bit_length(u32v x) { /* from the exponent of x as a float; 0 has none */
    const u32v exponent = (u32v)_mm256_cvtepi32_ps((__m256i)x) >> 23;
    return (u32v)_mm256_max_epi32((__m256i)(exponent - 126), _mm256_setzero_si256());
}
FN u32v bit_count(u32v x) {
    x -= x >> 1 & 0x5555;
    x = (x & 0x3333) + (x >> 2 & 0x3333);
    x = (x + (x >> 4)) & 0x0f0f;
    return (x + (x >> 8)) & 0x1f;
}
FN u32v bytes_of(const uint8_t table[16], u32v x) {
    const __m256i tables = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (u32v)_mm256_shuffle_epi8(tables, (__m256i)x);
}
FN u32v to_int(f32v x) { return (u32v)_mm256_cvttps_epi32((__m256)x); }
FN f32v to_float(u32v x) { return (f32v)_mm256_cvtepi32_ps((__m256i)x); }
FN uint32_t lane_set(u32v m) { return (uint32_t)_mm256_movemask_ps((__m256)m); }
FN bool any(u32v m) { return !_mm256_testz_si256((__m256i)m, (__m256i)m); }

#include "pipeline/codec/zfp/zfp_group_lanes.h"

const mm_zfp_kernel mm_zfp_kernel_avx2 = {.name = "avx2", .encode = encode, .decode = decode};

#endif

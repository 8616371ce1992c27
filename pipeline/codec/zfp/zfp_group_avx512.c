/* SPDX-License-Identifier: MIT */
/* The AVX-512 kernel: 16 blocks in a vector. */
#if defined(__x86_64__)

#include <immintrin.h>

#include "pipeline/codec/zfp/zfp_group.h"

enum { LANES = 16 };

typedef uint32_t u32v __attribute__((vector_size(64)));
typedef int32_t i32v __attribute__((vector_size(64)));
typedef float f32v __attribute__((vector_size(64)));

#define TARGET __attribute__((target("avx512f,avx512bw,avx512cd,avx512vpopcntdq")))
#define FN     TARGET static inline __attribute__((always_inline))

FN u32v shl(u32v x, u32v s) { return (u32v)_mm512_sllv_epi32((__m512i)x, (__m512i)s); }
FN u32v shr(u32v x, u32v s) { return (u32v)_mm512_srlv_epi32((__m512i)x, (__m512i)s); }
FN u32v blend(u32v m, u32v a, u32v b) {
    return (u32v)_mm512_ternarylogic_epi32((__m512i)m, (__m512i)a, (__m512i)b, 0xca);
}
FN u32v larger(u32v a, u32v b) { return (u32v)_mm512_max_epu32((__m512i)a, (__m512i)b); }
FN u32v bit_length(u32v x) { return 32 - (u32v)_mm512_lzcnt_epi32((__m512i)x); }
FN u32v bit_count(u32v x) { return (u32v)_mm512_popcnt_epi32((__m512i)x); }
FN u32v bytes_of(const uint8_t table[16], u32v x) {
    const __m512i tables = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
    return (u32v)_mm512_shuffle_epi8(tables, (__m512i)x);
}
FN u32v to_int(f32v x) { return (u32v)_mm512_cvttps_epi32((__m512)x); }
FN f32v to_float(u32v x) { return (f32v)_mm512_cvtepi32_ps((__m512i)x); }
FN uint32_t lane_set(u32v m) { return _mm512_test_epi32_mask((__m512i)m, (__m512i)m); }
FN bool any(u32v m) { return lane_set(m) != 0; }

#include "pipeline/codec/zfp/zfp_group_lanes.h"

const mm_zfp_kernel mm_zfp_kernel_avx512 = {.name = "avx512", .encode = encode, .decode = decode};

#endif

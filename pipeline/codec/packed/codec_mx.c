/* SPDX-License-Identifier: MIT */
/* mx on the host device: mx_block.h in loops that the compiler vectorises. */
#include <endian.h>

#include "pipeline/codec/packed/mx_block.h"
#include "pipeline/codec/packed/packed_host.h"

typedef uint32_t word __attribute__((may_alias));

/* A group's elements, one in each byte. */
typedef union group {
    uint8_t element[MM_MX_GROUP];
    uint64_t unit[MM_MX_UNITS];
} group;

/* Encodes a block's elements, one in each byte. Returns its scale. */
MM_PACKED_INLINE uint32_t encode_block(const word *restrict values, uint8_t *restrict elements, mm_mx_element f) {
    int32_t largest = 0; /* signed, because all machines compare vectors of signed integers */
    for (int i = 0; i < MM_MX_BLOCK; i++) {
        const int32_t size = (int32_t)(values[i] & 0x7fffffff);
        largest = size > largest ? size : largest;
    }
    const uint32_t scale = mm_mx_scale((uint32_t)largest, f), kept = scale == MM_MX_SCALE_NAN ? 0 : 0xffffffff;
    const float inverse = mm_mx_inverse(scale);
    uint32_t wide[MM_MX_BLOCK]; /* 32-bit, or the compiler would use shorter vectors */
    for (int i = 0; i < MM_MX_BLOCK; i++) wide[i] = mm_mx_encode(values[i] & kept, inverse, f);
    for (int i = 0; i < MM_MX_BLOCK; i++) elements[i] = (uint8_t)wide[i];
    return scale;
}

MM_PACKED_INLINE int64_t encode(const float *restrict src, int64_t groups, uint8_t *restrict dst, mm_mx_element f) {
    int64_t nonfinite = 0;
    for (int64_t i = 0; i < groups; i++, src += MM_MX_GROUP, dst += MM_MX_GROUP_BYTES(f.bits)) {
        group g;
        for (int b = 0; b < MM_MX_GROUP_BLOCKS; b++) {
            const uint32_t scale = encode_block((const word *)src + b * MM_MX_BLOCK, &g.element[b * MM_MX_BLOCK], f);
            nonfinite += scale == MM_MX_SCALE_NAN;
            dst[b] = (uint8_t)scale;
        }
        for (int u = 0; u < MM_MX_UNITS; u++) g.unit[u] = htole64(mm_mx_squeeze(le64toh(g.unit[u]), f.bits));
        /* Stores all 8 bytes; the next unit overwrites those beyond f.bits. */
        uint8_t *units = dst + MM_MX_GROUP_BLOCKS;
        for (int u = 0; u < MM_MX_UNITS - 1; u++) memcpy(units + u * f.bits, &g.unit[u], sizeof g.unit[u]);
        memcpy(units + (MM_MX_UNITS - 1) * f.bits, &g.unit[MM_MX_UNITS - 1], (size_t)f.bits);
    }
    return nonfinite;
}

MM_PACKED_INLINE void decode(const uint8_t *restrict src, int64_t groups, float *restrict dst, mm_mx_element f) {
    for (int64_t i = 0; i < groups; i++, dst += MM_MX_GROUP, src += MM_MX_GROUP_BYTES(f.bits)) {
        group g;
        /* Loads the 8 bytes that end where the unit ends; the scales lie before the first unit. */
        for (int u = 0; u < MM_MX_UNITS; u++) memcpy(&g.unit[u], src + (u + 1) * f.bits, sizeof g.unit[u]);
        for (int u = 0; u < MM_MX_UNITS; u++)
            g.unit[u] = htole64(mm_mx_spread(le64toh(g.unit[u]) >> (64 - 8 * f.bits), f.bits));
        for (int b = 0; b < MM_MX_GROUP_BLOCKS; b++) {
            word *restrict values = (word *)dst + b * MM_MX_BLOCK;
            const bool is_nan = src[b] == MM_MX_SCALE_NAN;
            const float power = is_nan ? 0 : mm_mx_power(src[b]);
            for (int e = 0; e < MM_MX_BLOCK; e++)
                values[e] = mm_mx_decode(g.element[b * MM_MX_BLOCK + e], power, is_nan, f);
        }
    }
}

#define DEFINE(isa, target, format, ...)                                                                               \
    target static int64_t encode_##format##_##isa(const float *src, int64_t groups, uint8_t *dst,                      \
                                                  const mm_packed_draw *draw) {                                        \
        (void)draw;                                                                                                    \
        return encode(src, groups, dst, (mm_mx_element){__VA_ARGS__});                                                 \
    }                                                                                                                  \
    target static void decode_##format##_##isa(const uint8_t *src, int64_t groups, float *dst) {                       \
        decode(src, groups, dst, (mm_mx_element){__VA_ARGS__});                                                        \
    }
#define EACH_ISA(...) MM_PACKED_EACH_ISA(DEFINE, __VA_ARGS__)
MM_MX_FORMATS(EACH_ISA)

#define KERNELS(format, ...) {MM_PACKED_ISA_LIST(encode_##format), MM_PACKED_ISA_LIST(decode_##format)},
static const mm_packed_host mx_host = {{{MM_MX_FORMATS(MM_MX_PACKED)}}, {MM_MX_FORMATS(KERNELS)}};

const mm_codec_ops mm_codec_mx_host_ops = MM_PACKED_OPS(
    "mx", MM_MX_SUMMARY, "host", &mx_host, false, mm_packed_host_encode, mm_packed_host_decode, mm_packed_host_strips);

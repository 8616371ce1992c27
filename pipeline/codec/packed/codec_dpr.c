/* SPDX-License-Identifier: MIT */
/* dpr on the host device: dpr_value.h in loops that the compiler vectorises. */
#include <endian.h>

#include "pipeline/codec/block/dpr_value.h"
#include "pipeline/codec/packed/packed_host.h"

typedef uint32_t word __attribute__((may_alias));

MM_PACKED_INLINE void encode(const float *restrict src, int64_t groups, uint8_t *restrict dst, int exponent,
                             int mantissa, int per_word) {
    const word *restrict values = (const word *)src;
    word *restrict words = (word *)(void *)dst;
    for (int64_t w = 0; w < groups * MM_DPR_GROUP_WORDS; w++) {
        uint32_t code = 0;
        for (int i = 0; i < per_word; i++)
            code |= mm_dpr_encode(values[w * per_word + i], exponent, mantissa) << i * (1 + exponent + mantissa);
        words[w] = htole32(code);
    }
}

MM_PACKED_INLINE void decode(const uint8_t *restrict src, int64_t groups, float *restrict dst, int exponent,
                             int mantissa, int per_word) {
    const word *restrict words = (const word *)(const void *)src;
    word *restrict values = (word *)dst;
    for (int64_t w = 0; w < groups * MM_DPR_GROUP_WORDS; w++)
        for (int i = 0; i < per_word; i++)
            values[w * per_word + i] =
                mm_dpr_decode(le32toh(words[w]) >> i * (1 + exponent + mantissa), exponent, mantissa);
}

#define DEFINE(isa, target, format, exponent, mantissa, per_word)                                                      \
    target static int64_t encode_##format##_##isa(const float *src, int64_t groups, uint8_t *dst,                      \
                                                  const mm_packed_draw *draw) {                                        \
        (void)draw;                                                                                                    \
        encode(src, groups, dst, exponent, mantissa, per_word);                                                        \
        return 0;                                                                                                      \
    }                                                                                                                  \
    target static void decode_##format##_##isa(const uint8_t *src, int64_t groups, float *dst) {                       \
        decode(src, groups, dst, exponent, mantissa, per_word);                                                        \
    }
#define EACH_ISA(...) MM_PACKED_EACH_ISA(DEFINE, __VA_ARGS__)
MM_DPR_FORMATS(EACH_ISA)

#define KERNELS(format, ...) {MM_PACKED_ISA_LIST(encode_##format), MM_PACKED_ISA_LIST(decode_##format)},
static const mm_packed_host dpr_host = {{{MM_DPR_FORMATS(MM_DPR_PACKED)}}, {MM_DPR_FORMATS(KERNELS)}};

const mm_codec_ops mm_codec_dpr_host_ops =
    MM_PACKED_OPS("dpr", MM_DPR_SUMMARY, "host", &dpr_host, false, mm_packed_host_encode, mm_packed_host_decode,
                  mm_packed_host_strips);

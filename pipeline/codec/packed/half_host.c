/* SPDX-License-Identifier: MIT */
#include "pipeline/codec/packed/half_host.h"

#include "pipeline/codec/block/signs_value.h"
#include "pipeline/codec/packed/packed_host.h"

/* Each type has its own loop, so that the compiler vectorises it. */
#define DEFINE(isa, target, name)                                                                                      \
    target static void widen_##isa(mm_dtype type, const uint16_t *restrict src, int64_t n, float *restrict dst) {      \
        if (type == MM_BF16)                                                                                           \
            for (int64_t i = 0; i < n; i++) dst[i] = mm_float_of((uint32_t)src[i] << 16);                              \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) dst[i] = mm_float_of(mm_f16_widen(src[i]));                                \
    }                                                                                                                  \
    target static void narrow_##isa(mm_dtype type, const float *restrict src, int64_t n, uint16_t *restrict dst) {     \
        if (type == MM_BF16)                                                                                           \
            for (int64_t i = 0; i < n; i++) dst[i] = (uint16_t)mm_bf16_narrow(mm_float_bits(src[i]));                  \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) dst[i] = (uint16_t)mm_f16_narrow(mm_float_bits(src[i]));                   \
    }
MM_PACKED_EACH_ISA(DEFINE, )

typedef uint32_t word __attribute__((may_alias));
typedef uint16_t half __attribute__((may_alias));

/* Mends n (at most 32) elements, which share one word of the mask. */
#define MEND_WORD(elem, sign, infinity)                                                                                \
    for (int64_t i = 0; i < n; i++) elem[i] = mm_signs_value(elem[i], mask >> i & 1, sign, infinity)

#define DEFINE_MEND(isa, target, name)                                                                                 \
    target static void mend_##isa(uint16_t infinity, const uint32_t *masks, void *map, int64_t all) {                  \
        for (int64_t at = 0; at < all; at += 32) {                                                                     \
            const int64_t n = all - at < 32 ? all - at : 32;                                                           \
            const uint32_t mask = masks[at / 32];                                                                      \
            half *halves = (half *)map + at;                                                                           \
            word *words = (word *)map + at;                                                                            \
            if (infinity)                                                                                              \
                MEND_WORD(halves, 0x8000, infinity);                                                                   \
            else                                                                                                       \
                MEND_WORD(words, 0x80000000, 0x7f800000);                                                              \
        }                                                                                                              \
    }
MM_PACKED_EACH_ISA(DEFINE_MEND, )

void mm_signs_mend(uint16_t infinity, const uint32_t *mask, void *map, int64_t n) {
    static void (*const by[])(uint16_t, const uint32_t *, void *, int64_t) = MM_PACKED_ISA_LIST(mend);
    by[mm_packed_isa_fastest()](infinity, mask, map, n);
}

void mm_halves_widen(mm_dtype type, const uint16_t *src, int64_t n, float *dst) {
    static void (*const by[])(mm_dtype, const uint16_t *, int64_t, float *) = MM_PACKED_ISA_LIST(widen);
    by[mm_packed_isa_fastest()](type, src, n, dst);
}

void mm_halves_narrow(mm_dtype type, const float *src, int64_t n, uint16_t *dst) {
    static void (*const by[])(mm_dtype, const float *, int64_t, uint16_t *) = MM_PACKED_ISA_LIST(narrow);
    by[mm_packed_isa_fastest()](type, src, n, dst);
}

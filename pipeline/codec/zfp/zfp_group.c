/* SPDX-License-Identifier: MIT */
#include "pipeline/codec/zfp/zfp_group.h"

static uint32_t portable_encode(const mm_zfp_group_values *values, int maxbits, mm_zfp_group_code *code_out) {
    uint32_t nonfinite = 0;
    for (int l = 0; l < MM_ZFP_GROUP; l++) {
        float block[MM_ZFP_VALUES];
        uint32_t words[MM_ZFP_MAX_WORDS];
        for (int i = 0; i < MM_ZFP_VALUES; i++) block[i] = values->at[i][l];
        const int e = mm_zfp_exponent(block, 2);
        if (e == MM_ZFP_NONFINITE) {
            nonfinite |= UINT32_C(1) << l;
            continue;
        }
        mm_zfp_block_encode(block, 2, e, maxbits, words);
        for (int j = 0; j < mm_zfp_words(maxbits); j++) code_out->word[j][l] = words[j];
    }
    return nonfinite;
}

static void portable_decode(const mm_zfp_group_code *code, int maxbits, mm_zfp_group_values *values_out) {
    for (int l = 0; l < MM_ZFP_GROUP; l++) {
        float block[MM_ZFP_VALUES];
        uint32_t words[MM_ZFP_MAX_WORDS + MM_ZFP_PAD_WORDS] = {0};
        for (int j = 0; j < mm_zfp_words(maxbits); j++) words[j] = code->word[j][l];
        mm_zfp_block_decode(words, 0, 2, maxbits, block);
        for (int i = 0; i < MM_ZFP_VALUES; i++) values_out->at[i][l] = block[i];
    }
}

const mm_zfp_kernel mm_zfp_kernel_portable = {
    .name = "portable",
    .encode = portable_encode,
    .decode = portable_decode,
};

const mm_zfp_kernel *mm_zfp_kernel_usable(size_t i) {
    const mm_zfp_kernel *usable[3];
    size_t n = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512vpopcntdq"))
        usable[n++] = &mm_zfp_kernel_avx512;
    if (__builtin_cpu_supports("avx2")) usable[n++] = &mm_zfp_kernel_avx2;
#endif
    usable[n++] = &mm_zfp_kernel_portable;
    return i < n ? usable[i] : NULL;
}

/* SPDX-License-Identifier: MIT */
/* CPU kernels that encode or decode a group of 16 blocks at once. Neighbouring blocks are neighbouring channels, so a
 * vector holds the same value, coefficient or plane of many blocks. All kernels make the same bits. */
#ifndef PIPELINE_CODEC_ZFP_ZFP_GROUP_H
#define PIPELINE_CODEC_ZFP_ZFP_GROUP_H

#include "pipeline/codec/block/zfp_block.h"

enum { MM_ZFP_GROUP = 16 };

/* [value][block] */
typedef struct mm_zfp_group_values {
    _Alignas(64) float at[MM_ZFP_VALUES][MM_ZFP_GROUP];
} mm_zfp_group_values;

typedef struct mm_zfp_group_code {
    _Alignas(64) uint32_t word[MM_ZFP_MAX_WORDS][MM_ZFP_GROUP];
} mm_zfp_group_code;

typedef struct mm_zfp_kernel {
    const char *name;
    /* Sets mm_zfp_words(maxbits) words of each block. Returns the set of blocks that are not finite (bit l is block l);
     * their words are undefined. */
    uint32_t (*encode)(const mm_zfp_group_values *values, int maxbits, mm_zfp_group_code *code_out);
    /* The inverse of encode. Bits past maxbits must be zero. A block that begins with a zero bit becomes zeros. */
    void (*decode)(const mm_zfp_group_code *code, int maxbits, mm_zfp_group_values *values_out);
} mm_zfp_kernel;

/* The i-th kernel that this machine can run, fastest first; NULL past the last. There is at least one. */
const mm_zfp_kernel *mm_zfp_kernel_usable(size_t i);

/* One kernel per file. AVX kernels may run only if mm_zfp_kernel_usable returns them. */
extern const mm_zfp_kernel mm_zfp_kernel_portable;
#if defined(__x86_64__)
extern const mm_zfp_kernel mm_zfp_kernel_avx2, mm_zfp_kernel_avx512;
#endif

#endif

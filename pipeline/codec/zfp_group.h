/* Groups of 16 blocks at once, the unit of the CPU's kernels: neighbouring blocks are neighbouring channels, so that
 * one vector holds the same value, coefficient or plane of many blocks. All kernels make the same bits. */
#ifndef PIPELINE_CODEC_ZFP_GROUP_H
#define PIPELINE_CODEC_ZFP_GROUP_H

#include "pipeline/codec/zfp_block.h"

enum { MM_ZFP_GROUP = 16 };

/* Column l is block l. */
typedef struct mm_zfp_group_values {
    _Alignas(64) float at[MM_ZFP_VALUES][MM_ZFP_GROUP];
} mm_zfp_group_values;

typedef struct mm_zfp_group_code {
    _Alignas(64) uint32_t word[MM_ZFP_MAX_WORDS][MM_ZFP_GROUP];
} mm_zfp_group_code;

typedef struct mm_zfp_kernel {
    const char *name;
    /* Sets mm_zfp_words(maxbits) words of each block; of those in the set that it returns (bit l is block l) the words
     * are undefined: these blocks are not finite. */
    uint32_t (*encode)(const mm_zfp_group_values *values, int maxbits, mm_zfp_group_code *code_out);
    /* The inverse, where bits past maxbits are zero. A block that starts with a zero bit becomes zeros. */
    void (*decode)(const mm_zfp_group_code *code, int maxbits, mm_zfp_group_values *values_out);
} mm_zfp_kernel;

/* The i-th kernel that this machine can run, fastest first, NULL past the last. There is at least one. */
const mm_zfp_kernel *mm_zfp_kernel_usable(size_t i);

/* One for each file; those for other instruction sets may only run where they are usable. */
extern const mm_zfp_kernel mm_zfp_kernel_portable;
#if defined(__x86_64__)
extern const mm_zfp_kernel mm_zfp_kernel_avx2, mm_zfp_kernel_avx512;
#endif

#endif

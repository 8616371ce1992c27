/* SPDX-License-Identifier: MIT */
/* List of the codes that kernels of other layers read and write themselves, together with other work on a map.
 * code_blocks_cuda.h has the functions. Plain C. */
#ifndef PIPELINE_CODEC_BLOCK_CODE_BLOCKS_H
#define PIPELINE_CODEC_BLOCK_CODE_BLOCKS_H

/* Codes of values: a number, and the type of code_blocks_cuda.h that encodes and decodes 4 x 4 pixels of a channel. */
#define MM_CODE_BLOCKS(X)                                                                                              \
    X(MM_BLOCKS_ZFP_4, zfp_code<64>)          /* zfp in two dimensions, at 4 bits a value, */                          \
    X(MM_BLOCKS_ZFP_6_4, zfp_code<102>)       /* 6.4, */                                                               \
    X(MM_BLOCKS_ZFP_8, zfp_code<128>)         /* and 8 */                                                              \
    X(MM_BLOCKS_DPR_FP16, dpr_code<5, 10, 2>) /* dpr:fp16 */                                                           \
    X(MM_BLOCKS_DPR_FP8, dpr_code<4, 3, 4>)   /* dpr:fp8 */

/* Values of mm_strips.blocks. MASK: the mask of MM_FORM_SIGN. */
#define MM_CODE_BLOCKS_NUMBER(number, ...) number,
typedef enum mm_code_blocks {
    MM_BLOCKS_NONE,
    MM_CODE_BLOCKS(MM_CODE_BLOCKS_NUMBER) MM_BLOCKS_MASK,
} mm_code_blocks;
#undef MM_CODE_BLOCKS_NUMBER

#endif

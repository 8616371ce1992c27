/* SPDX-License-Identifier: MIT */
/* Encodes and decodes a whole tensor on the CPU. Pure: no stream, no allocation, no state but the arguments. */
#ifndef PIPELINE_CODEC_ZFP_ZFP_CODE_H
#define PIPELINE_CODEC_ZFP_ZFP_CODE_H

#include "pipeline/codec/zfp/zfp_group.h"
#include "pipeline/codec/zfp/zfp_layout.h"

/* Encodes: writes all code_bytes of the layout. Returns the number of blocks with NaN or infinity. */
int64_t mm_zfp_code_encode(const mm_zfp_kernel *kernel, const mm_zfp_layout *layout, const void *src, uint8_t *dst);

/* Decodes: writes all elements. */
void mm_zfp_code_decode(const mm_zfp_kernel *kernel, const mm_zfp_layout *layout, const uint8_t *src, void *dst);

/* The same for layouts of 1 and 3 dims, in plain C (zfp_blocks.c). The functions above call them. */
int64_t mm_zfp_blocks_encode(const mm_zfp_layout *layout, const void *src, uint8_t *dst);
void mm_zfp_blocks_decode(const mm_zfp_layout *layout, const uint8_t *src, void *dst);

#endif

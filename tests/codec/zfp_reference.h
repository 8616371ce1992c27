/* SPDX-License-Identifier: MIT */
/* libzfp, as the reference for blocks and for whole tensors. */
#ifndef TESTS_CODEC_ZFP_REFERENCE_H
#define TESTS_CODEC_ZFP_REFERENCE_H

#include "pipeline/codec/zfp/zfp_layout.h"

typedef struct zfp_reference zfp_reference;

/* Creates a zeroed bit stream of `bytes` bytes (a multiple of 8) for blocks of `maxbits` bits. */
zfp_reference *zfp_reference_create(int maxbits, int64_t bytes);
void zfp_reference_destroy(zfp_reference *reference);

/* The stream's bytes. */
uint8_t *zfp_reference_code(zfp_reference *reference);

/* Encode and decode one dense block of 4, 16 or 64 values at the stream's start. */
void zfp_reference_encode_block(zfp_reference *reference, int dims, const float *values);
void zfp_reference_decode_block(zfp_reference *reference, int dims, float *values_out);

/* Encode and decode a tensor, block by block, from the stream's start. */
void zfp_reference_encode(zfp_reference *reference, const mm_zfp_layout *layout, const float *src);
void zfp_reference_decode(zfp_reference *reference, const mm_zfp_layout *layout, float *dst);

#endif

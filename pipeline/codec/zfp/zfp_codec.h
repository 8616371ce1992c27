/* SPDX-License-Identifier: MIT */
/* What the zfp codecs of all devices share: all but encode and decode. */
#ifndef PIPELINE_CODEC_ZFP_ZFP_CODEC_H
#define PIPELINE_CODEC_ZFP_ZFP_CODEC_H

#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/zfp/zfp_layout.h"
#include "pipeline/codec/zfp/zfp_spec.h"

typedef struct mm_zfp_codec {
    mm_codec base;
    mm_zfp_spec spec;
} mm_zfp_codec;

/* MM_ERR_INVALID, MM_ERR_NOMEM. The codec is destroyed with mm_codec_free. */
MM_CHECKED mm_status mm_zfp_codec_create(const mm_codec_ops *ops, const char *params, mm_codec **codec_out);
MM_CHECKED mm_status mm_zfp_codec_layout(const mm_codec *codec, const mm_shape *shape, mm_zfp_layout *layout_out);
MM_CHECKED mm_status mm_zfp_codec_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
int64_t mm_zfp_codec_split(const mm_codec *codec, const mm_shape *shape);

enum { MM_ZFP_SIDE = 4 }; /* values along a block's side */
/* Sets the sizes of strips (mm_codec_ops.strips), and all other members to zero. A strip is a row of blocks of an image
 * with all its channels, contiguous in memory and in the code. Returns false if the code has no strips, because their
 * bits would not end on 64-bit words. */
bool mm_zfp_codec_strips(mm_codec_strips *strips);

#endif

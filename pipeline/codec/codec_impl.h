/* What implementations of the codec contract share. For pipeline/codec/ only. */
#ifndef PIPELINE_CODEC_CODEC_IMPL_H
#define PIPELINE_CODEC_CODEC_IMPL_H

#include "pipeline/codec/codec.h"

#define MM_SHAPE_MAX_BYTES ((int64_t)1 << 62)

extern const mm_codec_ops mm_codec_raw_host_ops;
extern const mm_codec_ops mm_codec_mask_host_ops;
extern const mm_codec_ops mm_codec_zfp_host_ops;

/* Checks rank, dimensions and size; the number of elements. MM_ERR_INVALID says what is wrong. */
MM_CHECKED mm_status mm_shape_elems(const mm_shape *shape, int64_t *elems_out);

/* create and destroy of a codec without parameters. */
MM_CHECKED mm_status mm_codec_new_plain(const mm_codec_ops *ops, const char *params, mm_codec **codec_out);
void mm_codec_free(mm_codec *codec);

/* For a codec whose rows each make row_bits (> 0) bits, without gaps: its split. */
int64_t mm_split_rows(const mm_shape *shape, uint64_t row_bits);

int64_t mm_codec_no_scratch(const mm_codec *codec, const mm_shape *shape);

#endif

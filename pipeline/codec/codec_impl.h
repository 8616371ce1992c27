/* What implementations of the codec contract share. For pipeline/codec/ only. */
#ifndef PIPELINE_CODEC_CODEC_IMPL_H
#define PIPELINE_CODEC_CODEC_IMPL_H

#include "mm/device/host_pool.h"
#include "pipeline/codec/codec.h"

#define MM_SHAPE_MAX_BYTES ((int64_t)1 << 62)

/* Checks rank, dimensions and size; the number of elements. MM_ERR_INVALID says what is wrong. */
MM_CHECKED mm_status mm_shape_elems(const mm_shape *shape, int64_t *elems_out);

/* create and destroy of a codec without parameters. */
MM_CHECKED mm_status mm_codec_new_plain(const mm_codec_ops *ops, const char *params, mm_codec **codec_out);
void mm_codec_free(mm_codec *codec);

/* For a codec whose pieces may end after each `unit` (> 0) of what a row has `row` (> 0) of, without gaps: its split. */
int64_t mm_split_rows(const mm_shape *shape, uint64_t row, uint64_t unit);

/* On the host device: fn over all outermost rows, in ranges that are multiples of `split` (mm_codec_split; 0: all at
 * once), shared out among the pool's threads. */
typedef void (*mm_codec_rows_fn)(const void *job, int64_t from, int64_t to);
void mm_codec_run_rows(mm_host_pool *pool, int64_t rows, int64_t split, mm_codec_rows_fn fn, const void *job);

int64_t mm_codec_no_scratch(const mm_codec *codec, const mm_shape *shape);

/* mask: whether each element is > 0 (NaN is not), one bit an element, least significant bit first in 32-bit
 * little-endian words, padded with zeros: the mask that MM_FORM_SIGN promises. */
enum { MM_MASK_WORD_BITS = 32 };
#define MM_MASK_SUMMARY "whether each element is > 0, one bit an element"
/* The bits of +Inf of a type of floats with 16 bits, whose elements are > 0 from 1 to these; 0 for MM_F32. */
uint16_t mm_mask_infinity(mm_dtype dtype);
MM_CHECKED mm_status mm_mask_elems(const mm_codec *codec, const mm_shape *shape, int64_t *elems_out);
MM_CHECKED mm_status mm_mask_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
int64_t mm_mask_split(const mm_codec *codec, const mm_shape *shape);

#endif

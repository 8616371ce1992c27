/* SPDX-License-Identifier: MIT */
/* Shared by the implementations of codecs. Private to pipeline/codec/. */
#ifndef PIPELINE_CODEC_CODEC_IMPL_H
#define PIPELINE_CODEC_CODEC_IMPL_H

#include "mm/device/host/host_pool.h"
#include "mm/mm_base.h"
#include "pipeline/codec/codec.h"

#define MM_SHAPE_MAX_BYTES ((int64_t)1 << 62)

/* Checks rank, dimensions and size, and counts the elements. MM_ERR_INVALID: the message says what is wrong. */
MM_CHECKED mm_status mm_shape_elems(const mm_shape *shape, int64_t *elems_out);

/* The same as mm_shape_elems, for a codec of floats. MM_ERR_UNSUPPORTED: the type is not one of floats. */
MM_CHECKED mm_status mm_float_elems(const char *spec, const mm_shape *shape, int64_t *elems_out);

/* A codec in zeroed memory of `bytes`, for its ops to fill in; mm_codec_free destroys it. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_codec_new(const mm_codec_ops *ops, size_t bytes, mm_codec **codec_out);
/* mm_codec_ops.create and destroy for a codec without parameters. */
MM_CHECKED mm_status mm_codec_new_plain(const mm_codec_ops *ops, const char *params, mm_codec **codec_out);
void mm_codec_free(mm_codec *codec);

/* The split (mm_codec_split) of a codec whose rows follow one another without gaps. row (> 0): a row's length, in bits
 * or elements; unit (> 0): a code can be split at multiples of it. */
int64_t mm_split_rows(const mm_shape *shape, uint64_t row, uint64_t unit);

/* On the host device: calls fn for all outermost rows, in ranges of multiples of `split` rows (mm_codec_split; 0: in
 * one range), on the pool's threads. */
typedef void (*mm_codec_rows_fn)(const void *job, int64_t from, int64_t to);
void mm_codec_run_rows(mm_host_pool *pool, int64_t rows, int64_t split, mm_codec_rows_fn fn, const void *job);

int64_t mm_codec_no_scratch(const mm_codec *codec, const mm_shape *shape);

/* The mask of MM_FORM_SIGN: one bit per element, set if the element is > 0 (NaN is not), least significant bit first in
 * 32-bit little-endian words, padded with zeros. */
enum { MM_MASK_WORD_BITS = 32 };
#define MM_MASK_SUMMARY "whether each element is > 0, one bit an element"
/* The bits of +Inf of a 16-bit float type; an element is > 0 if its bits are from 1 to this value. 0 for MM_F32. */
uint16_t mm_mask_infinity(mm_dtype dtype);
MM_CHECKED mm_status mm_mask_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out);
int64_t mm_mask_split(const mm_codec *codec, const mm_shape *shape);
mm_strips mm_mask_strips(int64_t elems);

/* For the codec `signs` on CUDA: enqueues mm_signs_value of the n elements of a decoded map, given its mask. */
MM_CHECKED mm_status mm_signs_mend_cuda(mm_stream *stream, mm_dtype dtype, const void *mask, void *map, int64_t n);

#endif

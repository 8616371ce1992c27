/* SPDX-License-Identifier: MIT */
/* Functions that codecs of all devices share. */
#include "pipeline/codec/codec_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "mm/core/graph/dtype.h"

mm_status mm_codec_new(const mm_codec_ops *ops, size_t bytes, mm_codec **codec_out) {
    mm_codec *codec = calloc(1, bytes);
    if (!codec) return mm_fail(MM_ERR_NOMEM, "codec %s: out of memory for %zu bytes", ops->name, bytes);
    codec->ops = ops;
    codec->flags = ops->flags;
    *codec_out = codec;
    return MM_OK;
}

mm_status mm_codec_new_plain(const mm_codec_ops *ops, const char *params, mm_codec **codec_out) {
    if (params[0]) return mm_fail(MM_ERR_INVALID, "codec %s takes no parameter, got '%s'", ops->name, params);
    MM_TRY(mm_codec_new(ops, sizeof **codec_out, codec_out));
    snprintf((*codec_out)->spec, sizeof(*codec_out)->spec, "%s", ops->name);
    return MM_OK;
}

void mm_codec_free(mm_codec *codec) { free(codec); }

int64_t mm_codec_no_scratch(const mm_codec *codec, const mm_shape *shape) {
    (void)codec, (void)shape;
    return 0;
}

mm_shape mm_codec_shape(const mm_tensor_info *tensor) {
    mm_shape shape = {.dtype = tensor->dtype, .rank = tensor->rank < 4 ? tensor->rank : 4, .dims = {1, 1, 1, 1}};
    const int merged = tensor->rank - shape.rank;
    shape.dims[0] = tensor->dims[0];
    for (int d = 1; d < tensor->rank; d++) shape.dims[d <= merged + 1 ? 1 : d - merged] *= tensor->dims[d];
    return shape;
}

mm_status mm_shape_elems(const mm_shape *shape, int64_t *elems_out) {
    if (shape->rank < 1 || shape->rank > 4)
        return mm_fail(MM_ERR_INVALID, "shape of rank %d: 1 to 4 are possible", shape->rank);
    int64_t bytes = (int64_t)mm_dtype_bytes(shape->dtype);
    for (int d = 0; d < shape->rank; d++) {
        const int64_t dim = shape->dims[d];
        if (dim < 1) return mm_fail(MM_ERR_INVALID, "shape's dimension %d is %lld", d, (long long)dim);
        if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > MM_SHAPE_MAX_BYTES)
            return mm_fail(MM_ERR_INVALID, "shape has more than 2^62 bytes");
    }
    *elems_out = bytes / (int64_t)mm_dtype_bytes(shape->dtype);
    return MM_OK;
}

mm_status mm_float_elems(const char *spec, const mm_shape *shape, int64_t *elems_out) {
    int64_t elems;
    MM_TRY(mm_shape_elems(shape, &elems));
    if (!mm_dtype_table[shape->dtype].has_sign)
        return mm_fail(MM_ERR_UNSUPPORTED, "codec %s takes floats only (f32, f16, bf16), not %s", spec,
                       mm_dtype_name(shape->dtype));
    *elems_out = elems;
    return MM_OK;
}

int64_t mm_split_rows(const mm_shape *shape, uint64_t row, uint64_t unit) {
    uint64_t divisor = unit, rest = row % unit; /* ends as the greatest common divisor */
    while (rest > 0) {
        const uint64_t next = divisor % rest;
        divisor = rest, rest = next;
    }
    const int64_t rows = (int64_t)(unit / divisor);
    return rows < shape->dims[0] ? rows : 0;
}

/* ---------------------------------------------------------------- rows */

typedef struct rows_run {
    int64_t rows, each;
    mm_codec_rows_fn fn;
    const void *job;
} rows_run;

static mm_status run_piece(void *ctx, int64_t piece, int thread) {
    const rows_run *run = ctx;
    int64_t from = piece * run->each, to = from + run->each;
    (void)thread;
    run->fn(run->job, from, to < run->rows ? to : run->rows);
    return MM_OK;
}

void mm_codec_run_rows(mm_host_pool *pool, int64_t rows, int64_t split, mm_codec_rows_fn fn, const void *job) {
    enum { PIECES_A_THREAD = 4 }; /* several, so that a thread on a busy core takes fewer */
    int64_t pieces = (int64_t)mm_host_pool_threads(pool) * PIECES_A_THREAD, each = rows;
    if (pool && split > 0) each = ((rows + pieces - 1) / pieces + split - 1) / split * split;
    rows_run run = {.rows = rows, .each = each, .fn = fn, .job = job};
    mm_status never_fails = mm_host_pool_run(pool, (rows + each - 1) / each, run_piece, &run);
    (void)never_fails;
}

/* ---------------------------------------------------------------- mask */

uint16_t mm_mask_infinity(mm_dtype dtype) { return dtype == MM_F16 ? 0x7c00 : dtype == MM_BF16 ? 0x7f80 : 0; }

mm_status mm_mask_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    int64_t elems;
    MM_TRY(mm_float_elems(codec->spec, shape, &elems));
    *bytes_out = (elems + MM_MASK_WORD_BITS - 1) / MM_MASK_WORD_BITS * 4;
    return MM_OK;
}

int64_t mm_mask_split(const mm_codec *codec, const mm_shape *shape) {
    int64_t elems;
    if (mm_float_elems(codec->spec, shape, &elems) != MM_OK) return 0;
    return mm_split_rows(shape, (uint64_t)(elems / shape->dims[0]), 64);
}

enum { STRIP_WORDS = 64 }; /* 2048 elements, 8 KiB: a quarter of a first-level cache */

mm_strips mm_mask_strips(int64_t elems) {
    return (mm_strips){.elems = elems,
                       .period_elems = elems,
                       .strip_elems = STRIP_WORDS * MM_MASK_WORD_BITS,
                       .strip_bytes = STRIP_WORDS * 4};
}

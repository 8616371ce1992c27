/* SPDX-License-Identifier: MIT */
#include "tests/codec/zfp_reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <zfp.h>

#include <cmocka.h>

struct zfp_reference {
    zfp_stream *stream;
    uint8_t *code;
    size_t bytes;
};

zfp_reference *zfp_reference_create(int maxbits, int64_t bytes) {
    zfp_reference *reference = calloc(1, sizeof *reference);
    assert_non_null(reference);
    reference->bytes = (size_t)bytes;
    reference->code = calloc(1, reference->bytes);
    assert_non_null(reference->code);
    reference->stream = zfp_stream_open(stream_open(reference->code, reference->bytes));
    assert_non_null(reference->stream);
    reference->stream->minbits = reference->stream->maxbits = (uint)maxbits;
    return reference;
}

void zfp_reference_destroy(zfp_reference *reference) {
    stream_close(reference->stream->stream);
    zfp_stream_close(reference->stream);
    free(reference->code);
    free(reference);
}

uint8_t *zfp_reference_code(zfp_reference *reference) { return reference->code; }

void zfp_reference_encode_block(zfp_reference *reference, int dims, const float *values) {
    memset(reference->code, 0, reference->bytes);
    zfp_stream_rewind(reference->stream);
    if (dims == 1)
        zfp_encode_block_float_1(reference->stream, values);
    else if (dims == 2)
        zfp_encode_block_float_2(reference->stream, values);
    else
        zfp_encode_block_float_3(reference->stream, values);
    zfp_stream_flush(reference->stream);
}

void zfp_reference_decode_block(zfp_reference *reference, int dims, float *values_out) {
    zfp_stream_rewind(reference->stream);
    if (dims == 1)
        zfp_decode_block_float_1(reference->stream, values_out);
    else if (dims == 2)
        zfp_decode_block_float_2(reference->stream, values_out);
    else
        zfp_decode_block_float_3(reference->stream, values_out);
}

/* One block of a tensor: its first value, how much of it is inside, and the strides of x, y and z. */
typedef struct place {
    int64_t first;
    size_t nx, ny, nz;
    ptrdiff_t sx, sy, sz;
} place;

static size_t inside(int64_t extent, int64_t from) { return extent - from < 4 ? (size_t)(extent - from) : 4; }

static place place_of(const mm_zfp_layout *layout, int64_t block) {
    const bool planes = layout->channels_first;
    const int64_t by = layout->blocks_y, bx = layout->blocks_x, bc = layout->blocks_c;
    const int64_t c = (planes ? block / bx / by % bc : block % bc) * (layout->dims == 3 ? 4 : 1);
    const int64_t x = (planes ? block % bx : block / bc % bx) * 4;
    const int64_t y = (planes ? block / bx % by : block / bc / bx % by) * 4, n = block / bc / bx / by;
    return (place){
        .first = planes ? ((n * layout->channels + c) * layout->rows + y) * layout->columns + x
                        : ((n * layout->rows + y) * layout->columns + x) * layout->channels + c,
        .nx = inside(layout->columns, x),
        .ny = inside(layout->rows, y),
        .nz = inside(layout->channels, c),
        .sx = planes ? 1 : layout->channels,
        .sy = layout->columns * (planes ? 1 : layout->channels),
        .sz = planes ? layout->rows * layout->columns : 1,
    };
}

static void encode_place(zfp_stream *stream, int dims, const place *at, const float *p) {
    const bool whole = at->nx == 4 && (dims == 1 || at->ny == 4) && (dims < 3 || at->nz == 4);
    if (dims == 1 && whole)
        zfp_encode_block_strided_float_1(stream, p, at->sx);
    else if (dims == 1)
        zfp_encode_partial_block_strided_float_1(stream, p, at->nx, at->sx);
    else if (dims == 2 && whole)
        zfp_encode_block_strided_float_2(stream, p, at->sx, at->sy);
    else if (dims == 2)
        zfp_encode_partial_block_strided_float_2(stream, p, at->nx, at->ny, at->sx, at->sy);
    else if (whole)
        zfp_encode_block_strided_float_3(stream, p, at->sx, at->sy, at->sz);
    else
        zfp_encode_partial_block_strided_float_3(stream, p, at->nx, at->ny, at->nz, at->sx, at->sy, at->sz);
}

static void decode_place(zfp_stream *stream, int dims, const place *at, float *p) {
    const bool whole = at->nx == 4 && (dims == 1 || at->ny == 4) && (dims < 3 || at->nz == 4);
    if (dims == 1 && whole)
        zfp_decode_block_strided_float_1(stream, p, at->sx);
    else if (dims == 1)
        zfp_decode_partial_block_strided_float_1(stream, p, at->nx, at->sx);
    else if (dims == 2 && whole)
        zfp_decode_block_strided_float_2(stream, p, at->sx, at->sy);
    else if (dims == 2)
        zfp_decode_partial_block_strided_float_2(stream, p, at->nx, at->ny, at->sx, at->sy);
    else if (whole)
        zfp_decode_block_strided_float_3(stream, p, at->sx, at->sy, at->sz);
    else
        zfp_decode_partial_block_strided_float_3(stream, p, at->nx, at->ny, at->nz, at->sx, at->sy, at->sz);
}

void zfp_reference_encode(zfp_reference *reference, const mm_zfp_layout *layout, const float *src) {
    zfp_stream_rewind(reference->stream);
    for (int64_t block = 0; block < layout->blocks; block++) {
        const place at = place_of(layout, block);
        encode_place(reference->stream, layout->dims, &at, src + at.first);
    }
    zfp_stream_flush(reference->stream);
}

void zfp_reference_decode(zfp_reference *reference, const mm_zfp_layout *layout, float *dst) {
    zfp_stream_rewind(reference->stream);
    for (int64_t block = 0; block < layout->blocks; block++) {
        const place at = place_of(layout, block);
        decode_place(reference->stream, layout->dims, &at, dst + at.first);
    }
}

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

void zfp_reference_encode_block(zfp_reference *reference, const float values[16]) {
    memset(reference->code, 0, reference->bytes);
    zfp_stream_rewind(reference->stream);
    zfp_encode_block_float_2(reference->stream, values);
    zfp_stream_flush(reference->stream);
}

void zfp_reference_decode_block(zfp_reference *reference, float values_out[16]) {
    zfp_stream_rewind(reference->stream);
    zfp_decode_block_float_2(reference->stream, values_out);
}

/* One block of a tensor: its first value and how much of it is inside. */
typedef struct place {
    int64_t first;
    size_t width, height;
} place;

static place place_of(const mm_zfp_layout *layout, int64_t block) {
    const int64_t c = block % layout->channels;
    block /= layout->channels;
    const int64_t x = block % layout->blocks_x * 4;
    block /= layout->blocks_x;
    const int64_t y = block % layout->blocks_y * 4, n = block / layout->blocks_y;
    const int64_t width = layout->columns - x, height = layout->rows - y;
    return (place){
        .first = ((n * layout->rows + y) * layout->columns + x) * layout->channels + c,
        .width = width < 4 ? (size_t)width : 4,
        .height = height < 4 ? (size_t)height : 4,
    };
}

void zfp_reference_encode(zfp_reference *reference, const mm_zfp_layout *layout, const float *src) {
    const ptrdiff_t sx = layout->channels, sy = layout->columns * layout->channels;
    zfp_stream_rewind(reference->stream);
    for (int64_t block = 0; block < layout->blocks; block++) {
        const place at = place_of(layout, block);
        if (at.width == 4 && at.height == 4)
            zfp_encode_block_strided_float_2(reference->stream, src + at.first, sx, sy);
        else
            zfp_encode_partial_block_strided_float_2(reference->stream, src + at.first, at.width, at.height, sx, sy);
    }
    zfp_stream_flush(reference->stream);
}

void zfp_reference_decode(zfp_reference *reference, const mm_zfp_layout *layout, float *dst) {
    const ptrdiff_t sx = layout->channels, sy = layout->columns * layout->channels;
    zfp_stream_rewind(reference->stream);
    for (int64_t block = 0; block < layout->blocks; block++) {
        const place at = place_of(layout, block);
        if (at.width == 4 && at.height == 4)
            zfp_decode_block_strided_float_2(reference->stream, dst + at.first, sx, sy);
        else
            zfp_decode_partial_block_strided_float_2(reference->stream, dst + at.first, at.width, at.height, sx, sy);
    }
}

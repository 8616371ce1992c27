/* How fast the host's codecs are, beside libzfp and memcpy measured in the same rounds, on one core.
 *
 *      codec_bench [ROUNDS [N H W C [SPEC...]]]
 *
 * One line for each codec and direction: the elements' bytes a second (slowest, median and 95th percentile of the
 * rounds), and the medians' ratio to memcpy of the same bytes and to libzfp at the same bits a block. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zfp.h>

#include "pipeline/codec/codec.h"

enum { DEFAULT_ROUNDS = 15, MAX_SPECS = 16 };

static const char *const default_specs[] = {"raw", "mask", "zfp:rate=2", "zfp:rate=4", "zfp", "zfp:rate=8", "zfp:rate=16"};

typedef struct series {
    char name[96];
    double *gb_per_s; /* one a round */
    const struct series *peer;
} series;

typedef struct bench {
    mm_shape shape;
    int64_t bytes;
    int rounds;
    mm_device *device;
    mm_stream *stream;
    float *src, *dst;
    void *code;
    int64_t code_bytes;
} bench;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* ---------------------------------------------------------------- what is measured */

static mm_status run_memcpy(bench *b) {
    memcpy(b->dst, b->src, (size_t)b->bytes);
    return MM_OK;
}

/* libzfp on the blocks that our layout has where width and height are multiples of 4. */
static mm_status run_libzfp(bench *b, zfp_stream *stream, bool encode) {
    const int64_t *d = b->shape.dims, channels = d[3];
    const ptrdiff_t sx = channels, sy = d[2] * channels;
    float *data = encode ? b->src : b->dst;
    zfp_stream_rewind(stream);
    for (int64_t y = 0; y < d[0] * d[1]; y += 4)
        for (int64_t x = 0; x < d[2]; x += 4)
            for (int64_t c = 0; c < channels; c++) {
                float *block = data + y * sy + x * sx + c;
                if (encode)
                    zfp_encode_block_strided_float_2(stream, block, sx, sy);
                else
                    zfp_decode_block_strided_float_2(stream, block, sx, sy);
            }
    if (encode) zfp_stream_flush(stream);
    return MM_OK;
}

static mm_status run_codec(bench *b, const mm_codec *codec, bool encode) {
    if (encode)
        MM_TRY(mm_codec_encode(codec, b->stream, &b->shape, b->src, b->code, NULL, NULL));
    else
        MM_TRY(mm_codec_decode(codec, b->stream, &b->shape, b->code, b->dst, NULL, NULL));
    return mm_stream_sync(b->stream);
}

/* ---------------------------------------------------------------- rounds */

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const series *s, int rounds) { return s->gb_per_s[rounds / 2]; }

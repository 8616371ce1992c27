/* zfp: fixed-rate ZFP of 4x4 blocks, libzfp's bits. zfp_layout.h says which blocks, zfp_block.h what a block's bits
 * are. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zfp.h>

#include "mm/device/device_host.h"
#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/zfp_layout.h"

enum { MIN_BITS = 1 + 8, MAX_BITS = 512, BLOCK = 16, RATE_DIGITS = 9 };

static const char default_rate[] = "6.4";

typedef struct zfp_codec {
    mm_codec base;
    int maxbits; /* per block */
} zfp_codec;

typedef struct zfp_job {
    const void *src;
    void *dst;
    mm_zfp_layout layout;
    int maxbits;
    mm_codec_counters *counters;
} zfp_job;

/* "4", "6.4": the bits of a block, floor(16 * rate + 0.5) as libzfp has it, in integers so that no locale and no
 * rounding matters. -1: not such a decimal. `canonical_out` gets it without needless zeros. */
static int64_t parse_rate(const char *text, char *canonical_out, size_t capacity) {
    const size_t whole = strspn(text, "0123456789");
    const char *fraction = text[whole] == '.' ? text + whole + 1 : text + whole;
    size_t digits = strspn(fraction, "0123456789");
    if (fraction[digits] || whole + digits == 0 || whole > RATE_DIGITS || digits > RATE_DIGITS) return -1;
    while (digits > 0 && fraction[digits - 1] == '0') digits--;

    int64_t value = 0, one = 1;
    for (size_t i = 0; i < whole; i++) value = 10 * value + (text[i] - '0');
    const int64_t integer = value;
    for (size_t i = 0; i < digits; i++, one *= 10) value = 10 * value + (fraction[i] - '0');
    snprintf(canonical_out, capacity, "%" PRId64 "%s%.*s", integer, digits ? "." : "", (int)digits, fraction);
    return (32 * value + one) / (2 * one);
}

static mm_status zfp_create(const char *params, mm_codec **codec_out) {
    static const char key[] = "rate=";
    const char *rate = default_rate;
    if (params[0]) {
        if (strncmp(params, key, sizeof key - 1) != 0)
            return mm_fail(MM_ERR_INVALID, "codec zfp: unknown parameter '%s'; there is rate=BITS_PER_VALUE", params);
        rate = params + sizeof key - 1;
    }
    char canonical[2 * RATE_DIGITS + 2];
    const int64_t bits = parse_rate(rate, canonical, sizeof canonical);
    if (bits < MIN_BITS || bits > MAX_BITS)
        return mm_fail(MM_ERR_INVALID, "codec zfp: rate=%s is not a decimal from 0.53125 to 32 (%d to %d bits a block)",
                       rate, MIN_BITS, MAX_BITS);

    zfp_codec *codec = calloc(1, sizeof *codec);
    if (!codec) return mm_fail(MM_ERR_NOMEM, "codec zfp: %zu bytes", sizeof *codec);
    codec->base.ops = &mm_codec_zfp_host_ops;
    snprintf(codec->base.spec, sizeof codec->base.spec, "zfp:rate=%s", canonical);
    codec->maxbits = (int)bits;
    *codec_out = &codec->base;
    return MM_OK;
}

static mm_status zfp_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    mm_zfp_layout layout;
    MM_TRY(mm_zfp_layout_make(shape, ((const zfp_codec *)codec)->maxbits, &layout));
    *bytes_out = layout.code_bytes;
    return MM_OK;
}

static zfp_stream *open_stream(const zfp_job *job, const void *code) {
    zfp_stream *stream = zfp_stream_open(stream_open((void *)code, (size_t)job->layout.code_bytes));
    stream->minbits = stream->maxbits = (uint)job->maxbits;
    return stream;
}

static void close_stream(zfp_stream *stream) {
    stream_close(stream->stream);
    zfp_stream_close(stream);
}

static int value_class(float value) { return isnan(value) ? 3 : isinf(value) ? (value > 0 ? 1 : 2) : 0; }

static bool classify(const float *p, int w, int h, ptrdiff_t sx, ptrdiff_t sy, int classes[BLOCK]) {
    bool any = false;
    for (int i = 0; i < BLOCK; i++) {
        const int x = i % 4, y = i / 4;
        static const int pad[5][4] = {{0}, {0, 0, 0, 0}, {0, 1, 1, 0}, {0, 1, 2, 0}, {0, 1, 2, 3}};
        classes[i] = value_class(p[pad[w][x] * sx + pad[h][y] * sy]);
        any |= classes[i] != 0;
    }
    return any;
}

static void write_nonfinite(bitstream *stream, int maxbits, const int classes[BLOCK]) {
    int used = 1;
    stream_write_bit(stream, 0);
    for (int i = 0; i < BLOCK && maxbits >= 1 + 2 * BLOCK; i++, used += 2)
        stream_write_bits(stream, (uint64_t)classes[i], 2);
    const bool marked = used > 1;
    for (; used < maxbits; used++) stream_write_bit(stream, !marked);
}

/* true: the block was one. */
static bool read_nonfinite(bitstream *stream, int maxbits, float block[BLOCK]) {
    const bitstream_offset begin = stream_rtell(stream);
    bool any = false;
    if (!stream_read_bit(stream)) {
        static const float values[4] = {0, INFINITY, -INFINITY, NAN};
        if (maxbits < 1 + 2 * BLOCK) {
            const bool nan = stream_read_bit(stream);
            for (int i = 0; i < BLOCK; i++) block[i] = nan ? NAN : 0;
        } else {
            for (int i = 0; i < BLOCK; i++) block[i] = values[stream_read_bits(stream, 2)];
        }
        any = true;
    }
    stream_rseek(stream, any ? begin + (bitstream_offset)maxbits : begin);
    return any;
}

static mm_status run(const zfp_job *job, bool encode) {
    const mm_zfp_layout *l = &job->layout;
    zfp_stream *stream = open_stream(job, encode ? job->dst : job->src);
    const ptrdiff_t sx = l->channels, sy = l->columns * l->channels;
    const int64_t batch = l->blocks / (l->blocks_y * l->blocks_x * l->channels);
    int64_t nonfinite = 0;
    for (int64_t n = 0; n < batch; n++)
        for (int64_t by = 0; by < l->blocks_y; by++)
            for (int64_t bx = 0; bx < l->blocks_x; bx++)
                for (int64_t c = 0; c < l->channels; c++) {
                    const int64_t offset = ((n * l->rows + 4 * by) * l->columns + 4 * bx) * l->channels + c;
                    const int w = l->columns - 4 * bx < 4 ? (int)(l->columns - 4 * bx) : 4;
                    const int h = l->rows - 4 * by < 4 ? (int)(l->rows - 4 * by) : 4;
                    if (encode) {
                        const float *p = (const float *)job->src + offset;
                        int classes[BLOCK];
                        if (classify(p, w, h, sx, sy, classes)) {
                            write_nonfinite(stream->stream, job->maxbits, classes);
                            nonfinite++;
                        } else {
                            zfp_encode_partial_block_strided_float_2(stream, p, (size_t)w, (size_t)h, sx, sy);
                        }
                        continue;
                    }
                    float *p = (float *)job->dst + offset, block[BLOCK];
                    if (!read_nonfinite(stream->stream, job->maxbits, block)) zfp_decode_block_float_2(stream, block);
                    for (int y = 0; y < h; y++)
                        for (int x = 0; x < w; x++) p[y * sy + x * sx] = block[4 * y + x];
                }
    if (encode) stream_flush(stream->stream);
    close_stream(stream);
    if (nonfinite && job->counters) atomic_fetch_add(&job->counters->nonfinite_blocks, nonfinite);
    return MM_OK;
}

static mm_status run_encode(void *arg) { return run(arg, true); }
static mm_status run_decode(void *arg) { return run(arg, false); }

static mm_status zfp_enqueue(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                             void *dst, mm_codec_counters *counters, mm_status (*fn)(void *)) {
    zfp_job job = {.src = src, .dst = dst, .maxbits = ((const zfp_codec *)codec)->maxbits, .counters = counters};
    MM_TRY(mm_zfp_layout_make(shape, job.maxbits, &job.layout));
    return mm_host_launch(stream, fn, &job, sizeof job);
}

static mm_status zfp_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                            void *scratch, mm_codec_counters *counters) {
    (void)scratch;
    return zfp_enqueue(codec, stream, shape, src, dst, counters, run_encode);
}

static mm_status zfp_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src, void *dst,
                            void *scratch, mm_codec_counters *counters) {
    (void)scratch;
    return zfp_enqueue(codec, stream, shape, src, dst, counters, run_decode);
}

const mm_codec_ops mm_codec_zfp_host_ops = {
    .name = "zfp",
    .summary = "fixed-rate ZFP, lossy; rate=BITS_PER_VALUE, 0.53125 to 32, default 6.4",
    .device = "host",
    .flags = {.fixed_size = true, .gives_value = true},
    .create = zfp_create,
    .destroy = mm_codec_free,
    .bound = zfp_bound,
    .scratch = mm_codec_no_scratch,
    .encode = zfp_encode,
    .decode = zfp_decode,
};

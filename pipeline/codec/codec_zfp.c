/* zfp: fixed-rate ZFP. zfp_layout.h says which blocks, zfp_block.h what a block's bits are, zfp_group.h how fast. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/device/device_host.h"
#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/zfp_code.h"

enum { RATE_DIGITS = 9, RATE_MOST = 32 };

static const char default_rate[] = "6.4";

typedef struct zfp_codec {
    mm_codec base;
    int maxbits;
    const mm_zfp_kernel *kernel;
} zfp_codec;

typedef struct zfp_job {
    const void *src;
    void *dst;
    mm_zfp_layout layout;
    const mm_zfp_kernel *kernel;
    mm_codec_counters *counters;
} zfp_job;

/* "4", "6.4": the bits of a block, floor(16 * rate + 0.5) as libzfp has it, in integers so that no locale and no
 * rounding matters. -1: not such a decimal, or above 32. `canonical_out` gets it without needless zeros. */
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
    if (value > RATE_MOST * one) return -1;
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
    char canonical[32];
    const int64_t bits = parse_rate(rate, canonical, sizeof canonical);
    if (bits < MM_ZFP_MIN_BITS)
        return mm_fail(MM_ERR_INVALID, "codec zfp: rate=%s is not a decimal from 0.53125 to 32 (%d to %d bits a block)",
                       rate, MM_ZFP_MIN_BITS, MM_ZFP_MAX_BITS);

    zfp_codec *codec = calloc(1, sizeof *codec);
    if (!codec) return mm_fail(MM_ERR_NOMEM, "codec zfp: %zu bytes", sizeof *codec);
    codec->base.ops = &mm_codec_zfp_host_ops;
    snprintf(codec->base.spec, sizeof codec->base.spec, "zfp:rate=%s", canonical);
    codec->maxbits = (int)bits;
    codec->kernel = mm_zfp_kernel_usable(0);
    *codec_out = &codec->base;
    return MM_OK;
}

static mm_status zfp_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    mm_zfp_layout layout;
    MM_TRY(mm_zfp_layout_make(shape, ((const zfp_codec *)codec)->maxbits, &layout));
    *bytes_out = layout.code_bytes;
    return MM_OK;
}

/* A tensor of lower rank is one field, and its blocks span rows. */
static int64_t zfp_split(const mm_codec *codec, const mm_shape *shape) {
    mm_zfp_layout layout;
    if (shape->rank != 4 || mm_zfp_layout_make(shape, ((const zfp_codec *)codec)->maxbits, &layout) != MM_OK) return 0;
    return mm_split_rows(shape, (uint64_t)(layout.blocks / shape->dims[0]) * (uint64_t)layout.maxbits);
}

static mm_status run_encode(void *arg) {
    const zfp_job *job = arg;
    const int64_t nonfinite = mm_zfp_code_encode(job->kernel, &job->layout, job->src, job->dst);
    if (nonfinite && job->counters) atomic_fetch_add(&job->counters->nonfinite_blocks, nonfinite);
    return MM_OK;
}

static mm_status run_decode(void *arg) {
    const zfp_job *job = arg;
    mm_zfp_code_decode(job->kernel, &job->layout, job->src, job->dst);
    return MM_OK;
}

static mm_status zfp_enqueue(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                             void *dst, mm_codec_counters *counters, mm_status (*fn)(void *)) {
    const zfp_codec *zfp = (const zfp_codec *)codec;
    zfp_job job = {.src = src, .dst = dst, .kernel = zfp->kernel, .counters = counters};
    MM_TRY(mm_zfp_layout_make(shape, zfp->maxbits, &job.layout));
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
    .split = zfp_split,
    .encode = zfp_encode,
    .decode = zfp_decode,
};

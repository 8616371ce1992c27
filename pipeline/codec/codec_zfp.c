/* zfp: fixed-rate ZFP. zfp_layout.h says which blocks, zfp_block.h what a block's bits are, zfp_group.h how fast. */
#include <stdio.h>
#include <stdlib.h>

#include "mm/device/device_host.h"
#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/zfp_code.h"
#include "pipeline/codec/zfp_spec.h"

typedef struct zfp_codec {
    mm_codec base;
    int dims, maxbits;
    const mm_zfp_kernel *kernel; /* of 2-D blocks */
} zfp_codec;

typedef struct zfp_job {
    const void *src;
    void *dst;
    mm_zfp_layout layout;
    const mm_zfp_kernel *kernel;
    mm_codec_counters *counters;
} zfp_job;

static mm_status zfp_create(const char *params, mm_codec **codec_out) {
    mm_zfp_spec spec;
    MM_TRY(mm_zfp_spec_parse(params, &spec));
    zfp_codec *codec = calloc(1, sizeof *codec);
    if (!codec) return mm_fail(MM_ERR_NOMEM, "codec zfp: %zu bytes", sizeof *codec);
    codec->base.ops = &mm_codec_zfp_host_ops;
    snprintf(codec->base.spec, sizeof codec->base.spec, "zfp:%s", spec.canonical);
    codec->dims = spec.dims;
    codec->maxbits = spec.maxbits;
    codec->kernel = mm_zfp_kernel_usable(0);
    *codec_out = &codec->base;
    return MM_OK;
}

static mm_status layout_of(const mm_codec *codec, const mm_shape *shape, mm_zfp_layout *layout_out) {
    const zfp_codec *zfp = (const zfp_codec *)codec;
    return mm_zfp_layout_make(shape, zfp->dims, zfp->maxbits, layout_out);
}

static mm_status zfp_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    mm_zfp_layout layout;
    MM_TRY(layout_of(codec, shape, &layout));
    *bytes_out = layout.code_bytes;
    return MM_OK;
}

/* A tensor of lower rank is one field, and its blocks span rows. */
static int64_t zfp_split(const mm_codec *codec, const mm_shape *shape) {
    mm_zfp_layout layout;
    if (shape->rank != 4 || layout_of(codec, shape, &layout) != MM_OK) return 0;
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
    zfp_job job = {.src = src, .dst = dst, .kernel = ((const zfp_codec *)codec)->kernel, .counters = counters};
    MM_TRY(layout_of(codec, shape, &job.layout));
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
    .summary = MM_ZFP_SUMMARY,
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

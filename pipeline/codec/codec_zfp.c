/* zfp, fixed-rate ZFP, on the host device. zfp_layout.h says which blocks, zfp_block.h what a block's bits are,
 * zfp_group.h how fast. */
#include "mm/device/device_host.h"
#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/zfp_code.h"
#include "pipeline/codec/zfp_codec.h"

typedef struct zfp_job {
    const void *src;
    void *dst;
    mm_zfp_layout layout;
    const mm_zfp_kernel *kernel;
    mm_codec_counters *counters;
} zfp_job;

static mm_status zfp_create(const char *params, mm_codec **codec_out) {
    return mm_zfp_codec_create(&mm_codec_zfp_host_ops, params, codec_out);
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
    zfp_job job = {.src = src, .dst = dst, .kernel = mm_zfp_kernel_usable(0), .counters = counters};
    MM_TRY(mm_zfp_codec_layout(codec, shape, &job.layout));
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
    .bound = mm_zfp_codec_bound,
    .scratch = mm_codec_no_scratch,
    .split = mm_zfp_codec_split,
    .encode = zfp_encode,
    .decode = zfp_decode,
};

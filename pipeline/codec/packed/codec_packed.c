/* SPDX-License-Identifier: MIT */
/* Packed codecs on the host device: jobs that run the kernels. */
#include <string.h>

#include "mm/device/host/device_host.h"
#include "pipeline/codec/packed/half_host.h"
#include "pipeline/codec/packed/packed_host.h"

typedef struct packed_job {
    mm_packed_encode_fn encode; /* set in an encode */
    mm_packed_decode_fn decode;
    const void *src;
    void *dst;
    mm_packed_layout layout;
    mm_packed_draw draw;
    bool fills_up; /* pads an incomplete last group with the last element; else with zeros */
    mm_host_pool *pool;
    mm_codec_counters *counters;
} packed_job;

/* Number of full groups among `from` to `to` - 1. *rest_out: elements of the incomplete group, if it is among them,
 * else 0. */
static int64_t full_groups(const mm_packed_layout *layout, int64_t from, int64_t to, int64_t *rest_out) {
    const int64_t full = layout->elems / layout->format.group_elems;
    *rest_out = to > full ? layout->elems - full * layout->format.group_elems : 0;
    return (to < full ? to : full) - from;
}

/* Elements of 16 bits are widened in a buffer that fits in the cache; f32 are used in place. */
enum { BUFFER_ELEMS = 2048 };
static int64_t groups_at_once(const mm_packed_layout *layout) {
    return layout->type == MM_F32 ? layout->groups : BUFFER_ELEMS / layout->format.group_elems;
}

static void encode_groups(const void *arg, int64_t from, int64_t to) {
    const packed_job *job = arg;
    const mm_packed_format *format = &job->layout.format;
    uint8_t *dst = (uint8_t *)job->dst + from * format->group_bytes;
    int64_t rest, nonfinite = 0;
    const int64_t full = full_groups(&job->layout, from, to, &rest), at_once = groups_at_once(&job->layout);
    for (int64_t g = 0, n; g < full; g += n) {
        float buffer[BUFFER_ELEMS];
        const int64_t first = (from + g) * format->group_elems;
        n = full - g < at_once ? full - g : at_once;
        mm_packed_draw draw = job->draw;
        draw.first += first;
        const float *src = mm_elems_read(job->layout.type, job->src, first, n * format->group_elems, buffer);
        nonfinite += job->encode(src, n, dst + g * format->group_bytes, &draw);
    }
    if (rest > 0) {
        float buffer[MM_PACKED_GROUP_MOST], last[MM_PACKED_GROUP_MOST] = {0};
        const int64_t first = (from + full) * format->group_elems;
        mm_packed_draw draw = job->draw;
        draw.first += first;
        const float *src = mm_elems_read(job->layout.type, job->src, first, rest, buffer);
        memcpy(last, src, (size_t)rest * sizeof *last);
        for (int64_t i = rest; job->fills_up && i < format->group_elems; i++) last[i] = src[rest - 1];
        nonfinite += job->encode(last, 1, dst + full * format->group_bytes, &draw);
    }
    if (nonfinite && job->counters) atomic_fetch_add(&job->counters->nonfinite_blocks, nonfinite);
}

static void decode_groups(const void *arg, int64_t from, int64_t to) {
    const packed_job *job = arg;
    const mm_packed_format *format = &job->layout.format;
    const uint8_t *src = (const uint8_t *)job->src + from * format->group_bytes;
    const mm_dtype type = job->layout.type;
    int64_t rest;
    const int64_t full = full_groups(&job->layout, from, to, &rest), at_once = groups_at_once(&job->layout);
    for (int64_t g = 0, n; g < full; g += n) {
        float buffer[BUFFER_ELEMS];
        const int64_t first = (from + g) * format->group_elems;
        n = full - g < at_once ? full - g : at_once;
        float *dst = type == MM_F32 ? (float *)job->dst + first : buffer;
        job->decode(src + g * format->group_bytes, n, dst);
        mm_elems_write(type, dst, n * format->group_elems, job->dst, first);
    }
    if (rest > 0) {
        float last[MM_PACKED_GROUP_MOST];
        job->decode(src + full * format->group_bytes, 1, last);
        mm_elems_write(type, last, rest, job->dst, (from + full) * format->group_elems);
    }
}

static mm_status run(void *arg) {
    const packed_job *job = arg;
    mm_codec_run_rows(job->pool, job->layout.groups, 1, job->encode ? encode_groups : decode_groups, job);
    return MM_OK;
}

static mm_status enqueue(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, bool encode, packed_job job) {
    const mm_packed_host *own = codec->ops->own;
    MM_TRY(mm_packed_layout_of(codec, shape, &job.layout));
    const mm_packed_kernels *kernels = &own->kernels[job.layout.number];
    if (encode)
        job.encode = kernels->encode[mm_packed_isa_fastest()];
    else
        job.decode = kernels->decode[mm_packed_isa_fastest()];
    if (stream->device->ops == &mm_device_host_ops) job.pool = mm_host_codec_pool(stream);
    return mm_host_launch(stream, run, &job, sizeof job);
}

mm_status mm_packed_host_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                                void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch;
    return enqueue(codec, stream, shape, true,
                   (packed_job){.src = src,
                                .dst = dst,
                                .draw = mm_packed_draw_of(codec, inputs),
                                .fills_up = codec->flags.reads_iteration,
                                .counters = counters});
}

mm_status mm_packed_host_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                                void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch, (void)inputs, (void)counters;
    return enqueue(codec, stream, shape, false, (packed_job){.src = src, .dst = dst});
}

/* ---------------------------------------------------------------- strips */

/* The job for the groups of n strips. Only the last group of the tensor's last strip may be incomplete. */
static packed_job strips_job(const mm_strips *strips, int64_t first, int64_t n) {
    const mm_codec_strips *s = (const mm_codec_strips *)strips;
    packed_job job = {.src = NULL};
    /* this call did not fail when the strips were made, so it cannot fail now */
    mm_status known_to_do = mm_packed_layout_of(s->codec, &s->shape, &job.layout);
    (void)known_to_do;
    job.layout.elems = mm_strips_elems(strips, first, n);
    job.layout.groups = (job.layout.elems + job.layout.format.group_elems - 1) / job.layout.format.group_elems;
    return job;
}

static const mm_packed_kernels *kernels_of(const mm_strips *strips, const packed_job *job) {
    const mm_codec *codec = ((const mm_codec_strips *)strips)->codec;
    return &((const mm_packed_host *)codec->ops->own)->kernels[job->layout.number];
}

static void decode_strips(const mm_strips *strips, const void *code, int64_t first, int64_t n, float *elems_out) {
    packed_job job = strips_job(strips, first, n);
    job.decode = kernels_of(strips, &job)->decode[mm_packed_isa_fastest()];
    job.src = (const uint8_t *)code + first * strips->strip_bytes;
    job.dst = elems_out;
    decode_groups(&job, 0, job.layout.groups);
}

static void encode_strips(const mm_strips *strips, const float *elems, int64_t first, int64_t n, void *code_out,
                          void *counters) {
    packed_job job = strips_job(strips, first, n);
    job.encode = kernels_of(strips, &job)->encode[mm_packed_isa_fastest()];
    job.src = elems;
    job.dst = (uint8_t *)code_out + first * strips->strip_bytes;
    job.counters = counters;
    encode_groups(&job, 0, job.layout.groups);
}

bool mm_packed_host_strips(mm_codec_strips *s) {
    mm_packed_layout layout;
    if (mm_packed_layout_of(s->codec, &s->shape, &layout) != MM_OK) return false;
    s->strips = mm_packed_strips(&layout);
    s->strips.decode = decode_strips;
    s->strips.encode = encode_strips;
    return true;
}
